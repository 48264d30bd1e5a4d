package report_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/internal/testclass"
)

var columns = []report.Column{{Key: "bytes"}, {Key: "site"}}

func TestAddPutsValuesUnderTheirColumns(t *testing.T) {
	testclass.Unit(t)
	table := report.Table{Name: "sites", Columns: columns}
	table.Add(report.Values{"site": "main", "bytes": int64(7)}).Brief = true
	row := &table.Rows[0]
	if want := []any{int64(7), "main"}; !reflect.DeepEqual(row.Cells, want) || !row.Brief {
		t.Errorf("row %+v, want %v and brief", row, want)
	}
	if got := table.Cell(row, "site"); got != "main" {
		t.Errorf("site %v, want main", got)
	}
}

func TestFactsAreInTheOrderOfTheColumns(t *testing.T) {
	testclass.Unit(t)
	got := report.NewFacts(columns, report.Values{"site": "main", "bytes": nil})
	if want := []report.Fact{{Column: columns[0]}, {Column: columns[1], Value: "main"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestSortFollowsItsKeysInTurn(t *testing.T) {
	testclass.Unit(t)
	for keys, want := range map[string]string{
		"bytes site":   "[5 a][5 b][3 a][<nil> c]",
		"bytes -site":  "[5 b][5 a][3 a][<nil> c]",
		"-bytes site":  "[<nil> c][3 a][5 a][5 b]",
		"-site -bytes": "[<nil> c][5 b][3 a][5 a]",
	} {
		table := report.Table{Columns: columns}
		for _, v := range []report.Values{
			{"bytes": int64(3), "site": "a"},
			{"bytes": nil, "site": "c"},
			{"bytes": int64(5), "site": "b"},
			{"bytes": int64(5), "site": "a"},
		} {
			table.Add(v)
		}
		table.Sort(strings.Fields(keys)...)
		var got strings.Builder
		for _, r := range table.Rows {
			fmt.Fprint(&got, r.Cells)
		}
		if got.String() != want {
			t.Errorf("by %s: %s, want %s", keys, got.String(), want)
		}
	}
}

func TestValuesAndColumnsMustMatch(t *testing.T) {
	testclass.Unit(t)
	table := &report.Table{Name: "sites", Columns: columns}
	for name, c := range map[string]struct {
		do   func()
		want []string
	}{
		"missing":    {func() { table.Add(report.Values{"site": "main"}) }, []string{"sites", "bytes"}},
		"unknown":    {func() { table.Add(report.Values{"site": "main", "bytes": nil, "byte": 1}) }, []string{"sites", `"byte"`}},
		"misspelled": {func() { report.NewFacts(columns, report.Values{"site": "main", "byte": 1}) }, []string{`"bytes"`, `"byte"`}},
		"two alike":  {func() { report.NewFacts([]report.Column{{Key: "site"}, {Key: "site"}}, report.Values{"site": 1}) }, []string{`"site"`}},
		"cell":       {func() { table.Cell(&report.Row{Cells: []any{1, 2}}, "sit") }, []string{"sites", `"sit"`}},
		"sort":       {func() { table.Sort("-sit") }, []string{"sites", `"sit"`}},
		"insert":     {func() { report.InsertColumnAfter(columns, "sit", report.Column{}) }, []string{`"sit"`}},
		"pick":       {func() { report.PickColumns(columns, "bytes", "sit") }, []string{`"sit"`}},
		"join":       {func() { report.JoinValues(report.Values{"site": 1}, report.Values{"site": 1}) }, []string{"site"}},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				text := fmt.Sprint(recover())
				for _, want := range c.want {
					if !strings.Contains(text, want) {
						t.Errorf("panic %q does not name %s", text, want)
					}
				}
			}()
			c.do()
		})
	}
}

func TestInsertAfterLeavesTheColumnsAlone(t *testing.T) {
	testclass.Unit(t)
	got := report.InsertColumnAfter(columns, "bytes", report.Column{Key: "share_pct"})
	if want := []report.Column{
		{Key: "bytes"},
		{Key: "share_pct"},
		{Key: "site"},
	}; !reflect.DeepEqual(got, want) ||
		len(columns) != 2 {
		t.Errorf("%v and %v, want %v", got, columns, want)
	}
}

func TestPickFollowsItsKeys(t *testing.T) {
	testclass.Unit(t)
	if got, want := report.PickColumns(
		columns,
		"site",
		"bytes",
	), []report.Column{
		{Key: "site"},
		{Key: "bytes"},
	}; !reflect.DeepEqual(
		got,
		want,
	) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestInsertColumnFillsEveryRow(t *testing.T) {
	testclass.Unit(t)
	table := report.Table{Columns: columns}
	table.Add(report.Values{"bytes": int64(2), "site": "a"})
	table.Add(report.Values{"bytes": int64(3), "site": "b"})
	table.InsertColumn(
		"bytes",
		report.Column{Key: "twice_bytes"},
		func(r *report.Row) any { return 2 * table.Cell(r, "bytes").(int64) },
	)
	got := fmt.Sprint(table.Rows[0].Cells, table.Rows[1].Cells, table.Columns[1].Key, len(columns))
	if want := "[2 4 a] [3 6 b]twice_bytes2"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
