package byrank

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/report"
)

// ranksTable returns the table of ranks, with their totals and the facts in which they differ. It adds the facts to
// merged: one that is equal on all ranks as it is, another as text with the ranks of each value.
func ranksTable(merged *report.Report, parts []Part) rankTable {
	columns := slices.Clone(memberColumns)
	columns[1].Title = "" // a row has several ranks
	totals := unionOfColumns(parts, func(r *report.Report) []report.Fact { return r.Totals })
	for i := range totals {
		totals[i].Title = strings.ToUpper(totals[i].Title)
	}
	columns = append(columns, totals...)
	for _, c := range unionOfColumns(parts, func(r *report.Report) []report.Fact { return r.Facts }) {
		values := make([]any, len(parts))
		for i := range parts {
			values[i] = factValue(parts[i].Report.Facts, c.Key)
		}
		if differs(values) {
			merged.Facts = append(merged.Facts, report.Fact{Column: asText(c), Value: valuesByRank(&c, parts, values)})
			if !slices.ContainsFunc(columns, func(o report.Column) bool { return o.Key == c.Key }) {
				c.Title = ""
				columns = append(columns, c)
			}
		} else {
			merged.Facts = append(merged.Facts, report.Fact{Column: c, Value: values[0]})
		}
	}
	t := newRankTable(&report.Table{Name: "ranks", Title: "ranks", Columns: columns, Secondary: true})
	clear(t.isKey) // all ranks are compared
	for i := range parts {
		t.addRank(&parts[i])
	}
	return t
}

// addRank adds the row of a part to the table of ranks.
func (t *rankTable) addRank(p *Part) {
	cells := []any{p.Host, int64(p.Members[0].Pid)}
	if len(p.Members) > 1 {
		cells[1] = nil
	}
	for _, c := range t.table.Columns[len(cells):] {
		value := factValue(p.Report.Totals, c.Key)
		if value == nil {
			value = factValue(p.Report.Facts, c.Key)
		}
		cells = append(cells, value)
	}
	t.table.Rows = append(t.table.Rows, report.Row{Cells: cells})
	t.ranks = append(t.ranks, p.Members)
	t.places = append(t.places, len(t.places))
}

// unionOfColumns returns the columns of the facts of all parts.
func unionOfColumns(parts []Part, of func(*report.Report) []report.Fact) (columns []report.Column) {
	for i := range parts {
		for _, f := range of(parts[i].Report) {
			if !slices.ContainsFunc(columns, func(c report.Column) bool { return c.Key == f.Key }) {
				columns = append(columns, f.Column)
			}
		}
	}
	return columns
}

// factValue returns the value of the fact with a key, nil if there is none.
func factValue(facts []report.Fact, key string) any {
	for i := range facts {
		if facts[i].Key == key {
			return facts[i].Value
		}
	}
	return nil
}

func differs(values []any) bool {
	return slices.ContainsFunc(values, func(v any) bool { return !reflect.DeepEqual(v, values[0]) })
}

// asText returns a column of text.
func asText(c report.Column) report.Column {
	c.Unit = report.UnitText
	return c
}

// maxValues is the number of different values of a fact that its text lists.
const maxValues = 3

// valuesByRank returns the values of a fact as text with their ranks, the value of the fewest ranks first.
func valuesByRank(c *report.Column, parts []Part, values []any) string {
	ranks := make(map[string][]*job.Member)
	var texts []string
	for i := range parts {
		if values[i] == nil || values[i] == "" {
			continue
		}
		text := c.Unit.FormatValue(values[i])
		if ranks[text] == nil {
			texts = append(texts, text)
		}
		ranks[text] = append(ranks[text], parts[i].Members...)
	}
	slices.SortStableFunc(texts, func(a, b string) int { return len(ranks[a]) - len(ranks[b]) })
	more := len(texts) - maxValues
	texts = texts[:min(len(texts), maxValues)]
	for i, text := range texts {
		texts[i] = fmt.Sprintf("%s (%s)", text, labelOf(ranks[text]))
	}
	if more > 0 {
		texts = append(texts, fmt.Sprintf("and %d other values", more))
	}
	return strings.Join(texts, "; ")
}
