package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Condition is a parsed --fail-on expression: comparisons of a report's numbers, joined by && and
// ||. The operator && binds tighter. Example:
//
//	growing>0 || live_bytes>100MiB && lost_events==0
type Condition struct {
	alternatives [][]comparison // the condition holds if all comparisons of one list hold
}

// comparison is one part of a Condition, such as live_bytes>100MiB.
type comparison struct {
	name  string
	op    string
	value float64
	text  string
}

// UnknownNameError is returned for an expression with the number Name that the report does not
// have. Known are the numbers of the report.
type UnknownNameError struct {
	Name  string
	Known []string
}

// Error lists the known names.
func (e *UnknownNameError) Error() string {
	return fmt.Sprintf("this report has no number %q; it has %s", e.Name, strings.Join(e.Known, ", "))
}

// comparisonOperators are the comparison operators, longest first, so that >= is not read as >.
var comparisonOperators = []string{">=", "<=", "==", "!=", ">", "<", "="}

// ParseCondition parses a --fail-on expression.
func ParseCondition(text string) (*Condition, error) {
	c := new(Condition)
	for _, alternative := range strings.Split(text, "||") {
		var all []comparison
		for _, part := range strings.Split(alternative, "&&") {
			comparison, err := parseComparison(strings.TrimSpace(part))
			if err != nil {
				return nil, fmt.Errorf("read condition %q: %w", text, err)
			}
			all = append(all, comparison)
		}
		c.alternatives = append(c.alternatives, all)
	}
	return c, nil
}

func parseComparison(text string) (comparison, error) {
	at := strings.IndexAny(text, "<>=!")
	if at < 0 {
		return comparison{}, fmt.Errorf("%q has no comparison: write it like growing>0", text)
	}
	name, rest := strings.TrimSpace(text[:at]), text[at:]
	if !isNumberName(name) {
		return comparison{}, fmt.Errorf("%q is not a valid name of a number", name)
	}
	for _, op := range comparisonOperators {
		if after, ok := strings.CutPrefix(rest, op); ok {
			v, err := parseNumber(strings.TrimSpace(after))
			if err != nil {
				return comparison{}, err
			}
			if op == "=" {
				op = "=="
			}
			return comparison{name, op, v, text}, nil
		}
	}
	return comparison{}, fmt.Errorf("%q has no operator: use one of > >= < <= == !=", text)
}

func isNumberName(s string) bool {
	for _, c := range s {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return s != ""
}

// unitMultipliers are the unit suffixes of a number. They convert sizes to bytes and times to ns.
var unitMultipliers = map[string]float64{
	"": 1, "%": 1, "b": 1,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
	"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "min": 60e9, "h": 3600e9,
}

func parseNumber(text string) (float64, error) {
	end := len(text)
	for end > 0 && (text[end-1] < '0' || text[end-1] > '9') && text[end-1] != '.' {
		end--
	}
	v, err := strconv.ParseFloat(text[:end], 64)
	if err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0, fmt.Errorf("%q is not a number", text)
	}
	factor, ok := unitMultipliers[strings.ToLower(strings.TrimSpace(text[end:]))]
	if !ok {
		return 0, fmt.Errorf("%q has an unknown unit: use B, KiB, MiB, GiB, KB, MB, GB, ns, us, ms, s, min or h", text)
	}
	return v * factor, nil
}

// Holds reports whether the condition holds for the report. because is the part that holds, with
// the values. A comparison with an unknown value does not hold. Holds returns an *UnknownNameError
// for a name that the report does not have.
func (c *Condition) Holds(r *Report) (holds bool, because string, err error) {
	for _, all := range c.alternatives {
		allHold := true
		var parts []string
		for _, comparison := range all {
			value, ok, known := r.FindNumber(comparison.name)
			if !known {
				return false, "", &UnknownNameError{comparison.name, r.NumberNames()}
			}
			allHold = allHold && ok && comparison.holds(value)
			number := strconv.FormatFloat(value, 'f', -1, 64)
			parts = append(parts, fmt.Sprintf("%s (it is %s)", comparison.text, number))
		}
		if allHold && !holds {
			holds, because = true, strings.Join(parts, " and ")
		}
	}
	return holds, because, nil
}

func (c *comparison) holds(v float64) bool {
	switch c.op {
	case ">":
		return v > c.value
	case ">=":
		return v >= c.value
	case "<":
		return v < c.value
	case "<=":
		return v <= c.value
	case "!=":
		return v != c.value
	}
	return v == c.value
}
