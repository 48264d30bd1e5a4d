package diff

import (
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/report"
)

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
