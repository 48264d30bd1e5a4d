package byrank

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// Limits of fold.
const (
	// similarity is the largest difference, as a part of the larger value, of values that count as similar.
	similarity = 0.1
	// maxClusters is the number of rows that one identity may have. Of more, the extreme ranks stay, and the others
	// become one.
	maxClusters = 4
)

// floors are differences that count as none, by unit: jitter of counts, sizes and times.
var floors = map[report.Unit]float64{
	report.UnitCount: 2, report.UnitBytes: 1 << 20, report.UnitNs: 100_000, report.UnitPercent: 2,
}

// spreadColumn says how similar the ranks of a row are.
var spreadColumn = report.Column{
	Key: "spread_pct", Title: "SPREAD%", Unit: report.UnitPercent,
	About: "largest difference between the ranks of the row in their main value, in percent of the largest; " +
		"the row has the values of the rank with the median",
}

// cluster is a set of rows that become one row.
type cluster struct {
	rows    []int // indexes in the table
	isOther bool  // it deviates from the most ranks
}

// fold makes rows of ranks that are equal one row. Rows of events, which have no identity, stay.
func (t *rankTable) fold() {
	isEvents := t.table.Keys != nil && len(t.table.Keys) == 0
	compared := t.comparedColumns()
	var folded []cluster
	for _, rows := range t.identities() {
		if isEvents || len(compared) == 0 && len(rows) > 1 && !t.areEqual(rows) {
			for _, row := range rows {
				folded = append(folded, cluster{rows: []int{row}})
			}
			continue
		}
		folded = append(folded, t.split(rows, compared)...)
	}
	slices.SortStableFunc(folded, func(a, b cluster) int {
		return cmp.Or(report.CompareBools(b.isOther, a.isOther), cmp.Compare(t.places[a.rows[0]], t.places[b.rows[0]]))
	})
	t.replaceRows(folded, compared)
}

// comparedColumns returns the columns whose values must be similar: the first visible one of each unit of numbers.
// Shares are compared only in tables without other numbers: most depend on the other rows.
func (t *rankTable) comparedColumns() (list []int) {
	seen := make(map[report.Unit]bool)
	for i, c := range t.table.Columns {
		if _, ok := floors[c.Unit]; ok && c.Title != "" && !seen[c.Unit] {
			seen[c.Unit] = true
			list = append(list, i)
		}
	}
	isShare := func(column int) bool { return t.table.Columns[column].Unit == report.UnitPercent }
	if others := slices.DeleteFunc(slices.Clone(list), isShare); len(others) > 0 {
		return others
	}
	return list
}

// identities returns the rows by identity, in the order of their first row.
func (t *rankTable) identities() (list [][]int) {
	index := make(map[string]int)
	for i := range t.table.Rows {
		var key strings.Builder
		for column, isKey := range t.isKey {
			if isKey {
				fmt.Fprintf(&key, "%v\x00", t.table.Rows[i].Cells[column])
			}
		}
		at, ok := index[key.String()]
		if !ok {
			at = len(list)
			index[key.String()] = at
			list = append(list, nil)
		}
		list[at] = append(list[at], i)
	}
	return list
}

// areEqual reports whether rows have the same text in all visible columns that do not belong to a process.
func (t *rankTable) areEqual(rows []int) bool {
	for column, c := range t.table.Columns {
		if c.Title == "" || slices.Contains(processColumns, c.Key) || c.Key == "host" {
			continue
		}
		first := c.Unit.FormatValue(t.table.Rows[rows[0]].Cells[column])
		if slices.ContainsFunc(rows, func(row int) bool {
			return c.Unit.FormatValue(t.table.Rows[row].Cells[column]) != first
		}) {
			return false
		}
	}
	return true
}

// split divides the rows of one identity into clusters of similar values, the largest last.
func (t *rankTable) split(rows []int, compared []int) []cluster {
	rest := slices.Clone(rows)
	var list []cluster
	for len(rest) > 0 {
		t.sortByMain(rest, compared)
		median := rest[len(rest)/2]
		var near, far []int
		for _, row := range rest {
			if t.isSimilar(row, median, compared) {
				near = append(near, row)
			} else {
				far = append(far, row)
			}
		}
		list = append(list, cluster{rows: near})
		rest = far
	}
	if len(list) > maxClusters {
		rest = slices.Clone(rows)
		t.sortByMain(rest, compared)
		last := len(rest) - 1
		list = []cluster{{rows: rest[1:last]}, {rows: rest[:1]}, {rows: rest[last:]}}
	}
	slices.SortStableFunc(list, func(a, b cluster) int { return len(a.rows) - len(b.rows) })
	for i := range list[:len(list)-1] {
		list[i].isOther = true
	}
	return list
}

// sortByMain sorts rows by their first compared value.
func (t *rankTable) sortByMain(rows []int, compared []int) {
	if len(compared) > 0 {
		slices.SortStableFunc(rows, func(a, b int) int {
			return cmp.Compare(t.number(a, compared[0]), t.number(b, compared[0]))
		})
	}
}

// number returns a cell as a number, 0 if it is none.
func (t *rankTable) number(row, column int) float64 {
	n, _ := report.AsNumber(t.table.Rows[row].Cells[column])
	return n
}

// isSimilar reports whether the compared values of two rows are similar.
func (t *rankTable) isSimilar(a, b int, compared []int) bool {
	for _, column := range compared {
		x, y := t.number(a, column), t.number(b, column)
		tolerance := max(floors[t.table.Columns[column].Unit], similarity*max(math.Abs(x), math.Abs(y)))
		if math.Abs(x-y) > tolerance {
			return false
		}
	}
	return true
}

// replaceRows replaces the rows by one for each cluster, and adds the column of the spread if a row has several ranks.
func (t *rankTable) replaceRows(list []cluster, compared []int) {
	rows, ranks := make([]report.Row, len(list)), make([][]*job.Member, len(list))
	spreads := make([]any, len(list))
	hasSpread := false
	for i, c := range list {
		t.sortByMain(c.rows, compared)
		rows[i] = t.table.Rows[c.rows[len(c.rows)/2]]
		if len(c.rows) > 1 && len(compared) > 0 {
			low, high := t.number(c.rows[0], compared[0]), t.number(c.rows[len(c.rows)-1], compared[0])
			spreads[i] = 0.0
			if high > 0 {
				spreads[i] = 100 * (high - low) / high
			}
			hasSpread = true
		}
		for _, row := range c.rows {
			for _, m := range t.ranks[row] {
				if !slices.Contains(ranks[i], m) {
					ranks[i] = append(ranks[i], m)
				}
			}
		}
		if host := report.ColumnIndex(&t.table, "host"); host >= 0 && len(ranks[i]) > 1 {
			rows[i].Cells = slices.Clone(rows[i].Cells)
			rows[i].Cells[host] = t.hostsOf(c.rows, host)
		}
	}
	t.table.Rows, t.ranks, t.places = rows, ranks, nil
	if hasSpread {
		t.table.Columns = slices.Insert(slices.Clone(t.table.Columns), 0, spreadColumn)
		for i := range rows {
			rows[i].Cells = slices.Insert(slices.Clone(rows[i].Cells), 0, spreads[i])
		}
		t.table.HideFirst = slices.Insert(slices.Clone(t.table.HideFirst), 0, spreadColumn.Key)
	}
}

// hostsOf names the hosts of rows.
func (t *rankTable) hostsOf(rows []int, column int) any {
	var names []string
	for _, row := range rows {
		if name, _ := t.table.Rows[row].Cells[column].(string); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) > 2 {
		return units.CountWithNoun(int64(len(names)), "host")
	}
	return strings.Join(names, ", ")
}
