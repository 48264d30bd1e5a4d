package diff

import (
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/report"
)

// errorWord is the part of the key of a column that has the error of another column: the value of
// gpu_sum_ns is known up to plus or minus gpu_sum_plus_minus_ns.
const errorWord = "_plus_minus"

// errorKeyOf returns the key of the column with the error of the column with a key.
func errorKeyOf(key string) string {
	for _, unit := range []string{"_ns", "_bytes_per_min"} {
		if name, ok := strings.CutSuffix(key, unit); ok {
			return name + errorWord + unit
		}
	}
	return key + errorWord + "_ns"
}

// isMeasureColumn reports whether the values of a column in two recordings can be subtracted.
// Names, points in time and time series cannot.
func isMeasureColumn(c *report.Column) bool {
	switch c.Unit {
	case report.UnitText, report.UnitTime, report.UnitID, report.UnitSeries:
		return false
	case report.UnitNs:
		return !keyHasWord(c, "at", "first", "last", "moment") && !strings.Contains(c.Key, errorWord)
	case report.UnitBytesRate:
		return !strings.Contains(c.Key, errorWord)
	}
	return true
}

// isSumColumn reports whether the values of a column grow with the length of a recording.
func isSumColumn(c *report.Column) bool {
	return (c.Unit == report.UnitCount || c.Unit == report.UnitBytes || c.Unit == report.UnitNs) &&
		isMeasureColumn(c) &&
		!keyHasWord(
			c,
			"max",
			"min",
			"med",
			"median",
			"avg",
			"mean",
			"p50",
			"p90",
			"p95",
			"p99",
			"stddev",
			"age",
			"in",
			"per",
			"largest",
			"longest",
			"shortest",
			"peak",
			"first",
			"last",
			"depth",
			"dur",
			"stacks",
			"threads",
			"processes",
			"devices",
		)
}

// keyHasWord reports whether the key of a column contains one of the words.
func keyHasWord(c *report.Column, words ...string) bool {
	return slices.ContainsFunc(strings.Split(c.Key, "_"), func(w string) bool { return slices.Contains(words, w) })
}

// comparedMeasure is a number column with the keys of the columns that compare it. changeError is "" if the
// column has no errors.
type comparedMeasure struct {
	report.Column
	before, after, change, changePct, changeError string
}

// newMeasure returns the measure of a column or fact. isTaken reports whether the report itself has
// a column or fact with a key, such as launches_per_second.
func (rc *reportComparer) newMeasure(c report.Column, isTaken func(key string) bool) comparedMeasure {
	name := c.Key
	if unit := rc.after.per.unit; rc.after.amount > 0 && isSumColumn(&c) {
		if name += "_per_" + unit; isTaken(name) {
			name = c.Key + "_by_" + unit
		}
	}
	m := comparedMeasure{c, name + "_before", name + "_after", name + "_change", name + "_change_pct", ""}
	if isTaken(errorKeyOf(c.Key)) {
		m.changeError = name + "_change" + errorWord
	}
	return m
}

// changeValuesWithin returns the values of both recordings like changeValues. A change of at most its error
// is unknown.
func (m *comparedMeasure) changeValuesWithin(errorNs, was, is, from, to any) report.Values {
	values := m.changeValues(was, is, from, to)
	if m.changeError == "" {
		return values
	}
	values[m.changeError] = errorNs
	change, ok := report.AsNumber(values[m.change])
	most, known := report.AsNumber(errorNs)
	if !ok || known && math.Abs(change) <= most {
		values[m.change], values[m.changePct] = nil, nil
	}
	return values
}

// joinErrors returns the error of the difference of two values. Bounds add up, other errors are independent.
func joinErrors(was, is any, bounded bool) any {
	a, known := report.AsNumber(was)
	b, alsoKnown := report.AsNumber(is)
	switch {
	case !known && !alsoKnown:
		return nil
	case bounded:
		return a + b
	}
	return math.Hypot(a, b)
}

// changeValues returns the values of both recordings, and the change between the numbers from and
// to.
func (m *comparedMeasure) changeValues(was, is, from, to any) report.Values {
	diff, pct := computeChange(from, to)
	return report.Values{m.before: was, m.after: is, m.change: diff, m.changePct: pct}
}

// cellNumber returns the number in a cell. A sum is divided by seconds or steps if --per is set.
// value returns nil if the cell is no number.
func (s *Side) cellNumber(c *report.Column, v any) any {
	var n float64
	switch v := v.(type) {
	case int64:
		if s.amount == 0 || !isSumColumn(c) {
			return v
		}
		n = float64(v)
	case float64:
		n = v
	case catalog.MetricValue:
		n = v.Value
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	default:
		return nil
	}
	if s.amount > 0 && isSumColumn(c) {
		n /= s.amount
	}
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return nil
	}
	return n
}

// computeChange returns after - before, and the same in percent of before. It returns nil for
// unknown values.
func computeChange(before, after any) (diff, pct any) {
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
	a, isInt := before.(int64)
	b, alsoInt := after.(int64)
	if isInt && alsoInt && (b-a < 0) == (b < a) { // the difference does not overflow
		return b - a, pct
	}
	if diff := is - was; !math.IsInf(diff, 0) {
		return diff, pct
	}
	return nil, pct
}

// signedUnit returns the unit of differences of values in unit u.
func signedUnit(u report.Unit) report.Unit {
	if u == report.UnitText {
		return u
	}
	return u | report.UnitSigned
}

// verdictChanges counts rows that got or lost a verdict.
type verdictChanges struct {
	names        []string
	gained, lost map[string]int64 // number of rows by verdict
}

// newVerdictChanges returns a verdictChanges with the verdicts of a table, all 0.
func newVerdictChanges(t *report.Table) *verdictChanges {
	return &verdictChanges{slices.Clone(t.Verdicts), make(map[string]int64), make(map[string]int64)}
}

// addRow counts a row with a verdict in each recording. nil means that the row has no verdict.
func (v *verdictChanges) addRow(was, is any) {
	before, _ := was.(string)
	after, _ := is.(string)
	for _, s := range []string{before, after} {
		if s != "" && !slices.Contains(v.names, s) {
			v.names = append(v.names, s)
		}
	}
	if before != after {
		v.gained[after]++
		v.lost[before]++
	}
}

// changeFacts returns two totals per verdict: rows that got it, and rows that lost it.
func (v *verdictChanges) changeFacts() (list []report.Fact) {
	for _, name := range v.names {
		key := strings.ReplaceAll(name, " ", "_")
		gained := report.Column{
			Key:   "new_" + key,
			Title: "now " + name,
			Unit:  report.UnitCount,
			About: "rows that got the verdict " + name,
		}
		lost := report.Column{
			Key:   "gone_" + key,
			Title: "no longer " + name,
			Unit:  report.UnitCount,
			About: "rows that lost the verdict " + name,
		}
		list = append(
			list,
			report.Fact{Column: gained, Value: v.gained[name]},
			report.Fact{Column: lost, Value: v.lost[name]},
		)
	}
	return list
}
