package diff

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// keyNames are the columns that say what a row is about where a table does not declare its keys. Numbers of processes, threads
// and handles are not among them: they are others in every recording.
var keyNames = []string{"name", "kind", "call", "kernel", "function", "module", "library", "owner", "site", "stack", "thread", "stream", "size", "size_bucket",
	"direction", "copy_kind", "memory_kind", "device", "device_name", "metric", "reason", "status", "class", "check", "result", "result_name", "process", "event", "pool", "rule",
	"rank", "job", "container", "pod", "cgroup"}

// keyColumns are the indices of the columns that say what a row is about.
func keyColumns(t *report.Table) (list []int) {
	names := t.Keys
	if names == nil {
		names = keyNames
	}
	for i, c := range t.Columns {
		if slices.Contains(names, c.Key) {
			list = append(list, i)
		}
	}
	return list
}

// keysIn is keyColumns without those that the other table lacks: only one recording may have ranks.
func keysIn(t *report.Table, other *report.Table) []int {
	return slices.DeleteFunc(keyColumns(t), func(i int) bool {
		return report.ColumnOf(other, t.Columns[i].Key) < 0
	})
}

// isComparable reports whether rows of the table can be paired, and have numbers.
func isComparable(t *report.Table) bool {
	return len(keyColumns(t)) > 0 && slices.ContainsFunc(t.Columns, func(c report.Column) bool { return isMeasure(&c) })
}

// isMeasure reports whether values of a column of two recordings can be subtracted: they are no names and no moments.
func isMeasure(c *report.Column) bool {
	switch c.Unit {
	case report.UnitText, report.UnitTime, report.UnitID, report.UnitCourse:
		return false
	case report.UnitNs:
		return !has(c, "at", "first", "last", "moment")
	}
	return true
}

// isSum reports whether a value grows with the length of a recording.
func isSum(c *report.Column) bool {
	return (c.Unit == report.UnitCount || c.Unit == report.UnitBytes || c.Unit == report.UnitNs) && isMeasure(c) &&
		!has(c, "max", "min", "med", "median", "avg", "mean", "p50", "p90", "p95", "p99", "stddev", "age", "in", "per", "largest", "longest", "shortest", "peak", "first", "last", "depth", "dur", "stacks", "threads", "processes", "devices")
}

// has reports whether the key has one of the words.
func has(c *report.Column, words ...string) bool {
	return slices.ContainsFunc(strings.Split(c.Key, "_"), func(w string) bool { return slices.Contains(words, w) })
}

// differ joins tables and sums up what it finds.
type differ struct {
	before, after            *Side
	changed, fresh, gone, ok int64
	numbers                  []report.Fact // of both reports, for programs
	verdicts                 []report.Fact
}

// per says by what numbers are divided.
func (d *differ) per() string {
	if d.after.amount == 0 {
		return ""
	}
	return fmt.Sprintf("%s: before %s, after %s", d.after.per.unit, units.RateText(d.before.amount), units.RateText(d.after.amount))
}

// name is the key of a column in a comparison.
func (d *differ) name(c *report.Column) string {
	if d.after.amount > 0 && isSum(c) {
		return c.Key + "_per_" + d.after.per.unit
	}
	return c.Key
}

// value is a cell as it is compared: divided if that is asked for, and nil if it is no number.
func (s *Side) value(c *report.Column, v any) any {
	var n float64
	switch v := v.(type) {
	case int64:
		if s.amount == 0 || !isSum(c) {
			return v
		}
		n = float64(v)
	case float64:
		n = v
	case catalog.Measured:
		n = v.Value
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	default:
		return nil
	}
	if s.amount > 0 && isSum(c) {
		n /= s.amount
	}
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return nil
	}
	return n
}

// difference is after - before, and that in percent of before; what is not known has none.
func difference(before, after any) (diff, pct any) {
	was, wasNumber := report.AsNumber(before)
	is, isNumber := report.AsNumber(after)
	if !wasNumber || !isNumber {
		return nil, nil
	}
	if was != 0 {
		if p := 100 * (is - was) / math.Abs(was); !math.IsInf(p, 0) {
			pct = p
		}
	}
	a, whole := before.(int64)
	b, alsoWhole := after.(int64)
	if whole && alsoWhole && (b-a < 0) == (b < a) { // no overflow
		return b - a, pct
	}
	if diff := is - was; !math.IsInf(diff, 0) {
		return diff, pct
	}
	return nil, pct
}

// signed is a unit for differences.
func signed(u report.Unit) report.Unit {
	if u == report.UnitText {
		return u
	}
	return u | report.UnitSigned
}

// columns are before, after, change and change in percent of a column; main ones are shown.
func (d *differ) columns(c *report.Column, main bool) []report.Column {
	name := d.name(c)
	list := []report.Column{
		{Key: name + "_before", Title: "", Unit: c.Unit, About: "before: " + c.About},
		{Key: name + "_after", Title: "", Unit: c.Unit, About: "after: " + c.About},
		{Key: name + "_change", Title: "", Unit: signed(c.Unit), About: "after - before"},
		{Key: name + "_change_pct", Title: "", Unit: signed(report.UnitPercent), About: "change in percent of before"},
	}
	if main {
		list[0].Title, list[1].Title, list[2].Title, list[3].Title = c.Title+" BEFORE", "AFTER", "CHANGE", "CHANGE%"
	}
	return list
}

// numberTable compares facts and totals.
func (d *differ) numberTable() report.Table {
	table := report.Table{Name: "numbers", Title: "numbers", Aside: true, Columns: []report.Column{
		{Key: "name", Title: "NUMBER", Unit: report.UnitText, About: "fact or total of the report"}, {Key: "before", Title: "BEFORE", Unit: report.UnitText, About: "in the first recording"}, {Key: "after", Title: "AFTER", Unit: report.UnitText, About: "in the second"},
		{Key: "change", Title: "CHANGE", Unit: report.UnitText, About: "after - before"}, {Key: "change_pct", Title: "CHANGE%", Unit: signed(report.UnitPercent), About: "in percent of before"}}}
	a := slices.Concat(d.before.report.Totals, d.before.report.Facts)
	seen := make(map[string]bool)
	for _, f := range slices.Concat(d.after.report.Totals, d.after.report.Facts) {
		at := slices.IndexFunc(a, func(o report.Fact) bool { return o.Key == f.Key })
		if at < 0 || !isMeasure(&f.Column) || seen[f.Key] {
			continue
		}
		seen[f.Key] = true
		was, is := d.before.value(&f.Column, a[at].Value), d.after.value(&f.Column, f.Value)
		diff, pct := difference(was, is)
		for i, c := range d.columns(&f.Column, false) {
			d.numbers = append(d.numbers, report.Fact{Column: c, Value: []any{was, is, diff, pct}[i]})
		}
		if n, ok := report.AsNumber(diff); f.Title != "" && ok && n != 0 {
			table.Rows = append(table.Rows, report.Row{Cells: []any{cmp.Or(f.Title, f.Key), f.Unit.Text(was), f.Unit.Text(is), signed(f.Unit).Text(diff), pct}})
		}
	}
	return table
}

func (d *differ) totals() []report.Fact {
	return append(report.Fill(totalColumns, d.changed, d.fresh, d.gone, d.ok), d.verdicts...)
}

// pair is a row of two recordings; one of them may have none.
type pair struct{ before, after *report.Row }

// pairs finds counterparts: rows with equal keys, the first with the first.
func pairs(a, b *report.Table) []pair {
	index := make(map[string][]int)
	var list []pair
	keysOfA, keysOfB := keysIn(a, b), keysIn(b, a)
	for i := range a.Rows {
		key := keyOf(a, &a.Rows[i], keysOfA)
		index[key] = append(index[key], len(list))
		list = append(list, pair{before: &a.Rows[i]})
	}
	for i := range b.Rows {
		key := keyOf(b, &b.Rows[i], keysOfB)
		if at := index[key]; len(at) > 0 {
			list[at[0]].after, index[key] = &b.Rows[i], at[1:]
			continue
		}
		list = append(list, pair{after: &b.Rows[i]})
	}
	return list
}

// keyOf is what a row is about. The number of a stack or process is another one in every recording: instead of it counts what
// frames the stack has, and what the process or thread is called.
func keyOf(t *report.Table, r *report.Row, keys []int) string {
	var b strings.Builder
	for _, i := range keys {
		text := fmt.Sprint(r.Cells[i])
		switch t.Columns[i].Key {
		case "stack":
			if at := strings.LastIndex(text, " #"); at >= 0 {
				text = text[:at]
			}
			for _, f := range report.Named(r.Stack) {
				text += "\x00" + f.Func
			}
		case "pid", "thread":
			if number, name, ok := strings.Cut(text, " "); ok && strings.Trim(number, "0123456789/") == "" {
				text = name
			}
		case "stream":
			if strings.HasPrefix(text, "0x") {
				text = "(a stream)"
			}
		}
		b.WriteString(text)
		b.WriteByte(1)
	}
	return b.String()
}

// join compares the rows of a table.
func (d *differ) join(a, b *report.Table) report.Table {
	keys := keyColumns(b)
	var measures, words []int
	main := -1
	for i := range b.Columns {
		c := &b.Columns[i]
		switch {
		case slices.Contains(keys, i) || report.ColumnOf(a, c.Key) < 0:
		case isMeasure(c):
			measures = append(measures, i)
			if main < 0 && c.Title != "" && !slices.Contains(b.Spare, c.Key) {
				main = len(measures) - 1
			}
		case c.Unit == report.UnitText && c.Title != "" && !slices.Contains(b.Spare, c.Key):
			words = append(words, i)
		}
	}
	j := joined{differ: d, a: a, b: b, keys: keys, measures: measures, words: words, main: max(0, main)}
	return j.table()
}

// joined is a table that is being made of two.
type joined struct {
	*differ
	a, b                  *report.Table
	keys, measures, words []int // columns of b
	main                  int   // of measures, that which is shown
	target                report.Table
}

// moreShown is of how many measures beside the main one the change is shown.
const moreShown = 3

func (j *joined) table() report.Table {
	t := &j.target
	*t = report.Table{Name: j.b.Name, Title: j.b.Title, Aside: j.b.Aside, Columns: []report.Column{{Key: "row", Title: "ROW", Unit: report.UnitText, About: "new, gone, changed or same"}}}
	var labels []report.Column
	for _, i := range j.words {
		c := &j.b.Columns[i]
		t.Columns = append(t.Columns, report.Column{Key: c.Key + "_before", Title: "", Unit: report.UnitText, About: "before: " + c.About}, report.Column{Key: c.Key + "_after", Title: "", Unit: report.UnitText, About: "after: " + c.About})
		labels = append(labels, report.Column{Key: c.Key, Title: c.Title, Unit: report.UnitText, About: "before -> after"})
	}
	shown := 0
	for k, i := range j.measures {
		c := &j.b.Columns[i]
		columns := j.columns(c, k == j.main)
		if k != j.main && c.Title != "" && shown < moreShown && !slices.Contains(j.b.Spare, c.Key) {
			shown++
			columns[2].Title = "+/- " + c.Title
			t.Spare = slices.Insert(t.Spare, 0, columns[2].Key)
		}
		t.Columns = append(t.Columns, columns...)
	}
	t.Columns = append(t.Columns, labels...)
	for _, i := range j.keys {
		t.Columns = append(t.Columns, j.b.Columns[i])
	}
	verdicts := newVerdictCount(j.b)
	for _, p := range pairs(j.a, j.b) {
		j.row(p, verdicts)
	}
	if j.verdicts == nil { // a report's first table with verdicts is what it is about
		j.verdicts = verdicts.facts()
	}
	j.order()
	j.hideSame()
	return *t
}

// row adds a pair.
func (j *joined) row(p pair, verdicts *verdictCount) {
	cells := []any{"same"}
	var labels []any
	differs := p.before == nil || p.after == nil
	for _, i := range j.words {
		was, is := j.cell(p.before, true, i), j.cell(p.after, false, i)
		cells = append(cells, was, is)
		label := report.UnitText.Text(is)
		if is == nil {
			label = report.UnitText.Text(was)
		}
		if was != nil && is != nil && fmt.Sprint(was) != fmt.Sprint(is) {
			differs = true
			label = report.UnitText.Text(was) + " -> " + report.UnitText.Text(is)
		}
		labels = append(labels, label)
		if j.b.Columns[i].Key == "verdict" {
			verdicts.add(was, is)
		}
	}
	for _, i := range j.measures {
		c := &j.b.Columns[i]
		was, is := j.before.value(c, j.cell(p.before, true, i)), j.after.value(c, j.cell(p.after, false, i))
		from, to := was, is
		if p.before == nil {
			from = int64(0)
		}
		if p.after == nil {
			to = int64(0)
		}
		diff, pct := difference(from, to)
		if n, ok := report.AsNumber(diff); ok && n != 0 || (was == nil) != (is == nil) {
			differs = true
		}
		cells = append(cells, was, is, diff, pct)
	}
	of := cmp.Or(p.after, p.before)
	switch {
	case p.before == nil:
		cells[0] = "new"
		j.fresh++
	case p.after == nil:
		cells[0] = "gone"
		j.gone++
	case differs:
		cells[0] = "changed"
		j.changed++
	default:
		j.ok++
	}
	cells = append(cells, labels...)
	for _, i := range j.keys {
		cells = append(cells, j.cell(of, p.after == nil, i))
	}
	row := report.Row{Cells: cells, Stack: of.Stack, StackFrames: of.StackFrames, Brief: of.Brief || !differs}
	if len(of.Stack) > 0 || of.Evidence != "" {
		row.Evidence = evidenceOf(p)
	}
	j.target.Rows = append(j.target.Rows, row)
}

// evidenceOf is what the rows say.
func evidenceOf(p pair) string {
	switch {
	case p.before == nil:
		return p.after.Evidence
	case p.after == nil:
		return p.before.Evidence
	case p.before.Evidence == p.after.Evidence:
		return p.after.Evidence
	}
	return "before: " + p.before.Evidence + "; after: " + p.after.Evidence
}

// cell is the value of b's column i in a row of either table.
func (j *joined) cell(r *report.Row, ofA bool, i int) any {
	if r == nil {
		return nil
	}
	if ofA {
		i = report.ColumnOf(j.a, j.b.Columns[i].Key)
	}
	if i < 0 || i >= len(r.Cells) {
		return nil
	}
	return r.Cells[i]
}

// order sorts by the size of the main change, what is unknown last.
func (j *joined) order() {
	if len(j.measures) == 0 {
		return
	}
	at := 1 + 2*len(j.words) + 4*j.main + 2
	slices.SortStableFunc(j.target.Rows, func(a, b report.Row) int {
		x, ok := report.AsNumber(a.Cells[at])
		y, also := report.AsNumber(b.Cells[at])
		return cmp.Or(-report.CompareBools(ok, also), cmp.Compare(math.Abs(y), math.Abs(x)))
	})
}

// hideSame takes away headings of columns that say the same in all rows, verdicts excepted.
func (j *joined) hideSame() {
	t := &j.target
	for i := range t.Columns {
		c := &t.Columns[i]
		said := slices.ContainsFunc(t.Rows, func(r report.Row) bool {
			n, ok := report.AsNumber(r.Cells[i])
			return ok && n != 0
		})
		if strings.HasPrefix(c.Title, "+/- ") && !said {
			c.Title = ""
		}
	}
	for k, i := range j.words {
		key := j.b.Columns[i].Key
		at := 1 + 2*len(j.words) + 4*len(j.measures) + k
		if key != "verdict" && !slices.ContainsFunc(t.Rows, func(r report.Row) bool { return strings.Contains(r.Cells[at].(string), " -> ") }) {
			t.Columns[at].Title = ""
		}
	}
}

// verdictCount counts rows that got or lost a verdict.
type verdictCount struct {
	names     []string
	got, left map[string]int64
}

func newVerdictCount(t *report.Table) *verdictCount {
	return &verdictCount{slices.Clone(t.Verdicts), make(map[string]int64), make(map[string]int64)}
}

func (v *verdictCount) add(was, is any) {
	before, _ := was.(string)
	after, _ := is.(string)
	for _, s := range []string{before, after} {
		if s != "" && !slices.Contains(v.names, s) {
			v.names = append(v.names, s)
		}
	}
	if before != after {
		v.got[after]++
		v.left[before]++
	}
}

func (v *verdictCount) facts() (list []report.Fact) {
	for _, name := range v.names {
		key := strings.ReplaceAll(name, " ", "_")
		list = append(list, report.Fact{Column: report.Column{Key: "new_" + key, Title: "now " + name, Unit: report.UnitCount, About: "rows that got the verdict"}, Value: v.got[name]},
			report.Fact{Column: report.Column{Key: "gone_" + key, Title: "no longer " + name, Unit: report.UnitCount, About: "rows that lost the verdict"}, Value: v.left[name]})
	}
	return list
}
