package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/units"
)

var factColumns = []report.Column{
	{
		Key: "result", Title: "result", Unit: report.UnitText,
		About: "set if nothing was found, or not all rules were checked",
	},
	{Key: "rules_checked", Title: "", Unit: report.UnitCount, About: "rules that were checked"},
}

// ruleFacts returns the result, and the number of places of each rule. unchecked is the number of chosen
// rules whose events are not in the recording.
func ruleFacts(checked []*Rule, unchecked int, hits []Hit) []report.Fact {
	var result []string
	if len(hits) == 0 {
		result = append(result, fmt.Sprintf("no rule of %d found anything", len(checked)))
	}
	if unchecked > 0 {
		result = append(result, units.Plural(int64(unchecked), "rule")+" not checked: the recording leaves out the "+
			"calls they need (--record)")
	}
	list := report.Facts(factColumns, report.Values{
		"result":        strings.Join(result, "; "),
		"rules_checked": int64(len(checked)),
	})
	for _, r := range All() {
		var places any
		if slices.Contains(checked, r) {
			n := int64(0)
			for i := range hits {
				if hits[i].Rule == r {
					n += int64(max(1, len(hits[i].Places)))
				}
			}
			places = n
		}
		list = append(list, report.Fact{Column: r.column(), Value: places})
	}
	return list
}

// column returns the column of the number of places of a rule, for --fail-on.
func (r *Rule) column() report.Column {
	return report.Column{
		Key:   strings.ReplaceAll(r.ID, "-", "_"),
		Title: "",
		Unit:  report.UnitCount,
		About: "rows of evidence of " + r.ID + ", 0: it did not fire, absent: it was not checked. " + r.About,
	}
}

// ruleColumns returns the columns of all rules.
func ruleColumns() (list []report.Column) {
	for _, r := range All() {
		list = append(list, r.column())
	}
	return list
}

var hitColumns = []report.Column{
	{Key: "rule", Title: "RULE", Unit: report.UnitText, About: "name of the rule"},
	{
		Key: "severity", Title: "SEVERITY", Unit: report.UnitText,
		About: "problem: the program fails, hangs or leaks, or a GPU is in trouble; notice: it costs time or " +
			"memory; info: worth knowing",
	},
	{Key: "confidence", Title: "CONFIDENCE", Unit: report.UnitText, About: "high, medium or low"},
	{
		Key: "confidence_reasons", Title: "", Unit: report.UnitText,
		About: "what lowers it: lost calls, a short or damaged recording, inferred stacks, calls of which only the " +
			"entry is known, too few samples",
	},
	{
		Key: "places", Title: "", Unit: report.UnitCount,
		About: "rows of evidence; the most important ones are in the table evidence",
	},
	{
		Key: "first_ns", Title: "", Unit: report.UnitNs,
		About: "when it was first seen, from the recording's start; absent if it has no time",
	},
	{Key: "advice", Title: "", Unit: report.UnitText, About: "what to do"},
	{Key: "more", Title: "", Unit: report.UnitText, About: "the command that shows more"},
	{Key: "what", Title: "WHAT", Unit: report.UnitText, About: "what was found"},
	{
		Key: "where", Title: "WHERE", Unit: report.UnitText,
		About: "the place in the program, GPU or process with most of it",
	},
}

// hitTable returns a table with a row per hit.
func hitTable(t *timeline.Timeline, hits []Hit) report.Table {
	table := report.Table{
		Name:      "hits",
		Title:     "what experts would look at",
		Columns:   hitColumns,
		HideFirst: []string{"confidence"},
		Keys:      []string{"rule", "where"},
	}
	for i := range hits {
		h := &hits[i]
		where, stack, first := h.Where(), int32(0), any(nil)
		for k := range h.Places {
			if at := h.Places[k].FirstNs; at != 0 && (first == nil || at-t.Recording().FromNs < first.(int64)) {
				first = at - t.Recording().FromNs
			}
		}
		if len(h.Places) > 0 {
			stack = h.Places[0].Stack
		}
		more := "gpurec analyze " + h.Rule.Report + " " + ShellWord(t.Rec.Path)
		row := table.Add(report.Values{
			"rule":               h.Rule.ID,
			"severity":           gpu.VerdictLevels[h.Severity],
			"confidence":         h.Level,
			"confidence_reasons": h.Reasons,
			"places":             int64(len(h.Places)),
			"first_ns":           first,
			"advice":             h.Advice,
			"more":               more,
			"what":               h.What,
			"where":              where,
		})
		row.StackID, row.Evidence = stack, fmt.Sprintf(
			"%s. %s C%s. More: %s",
			h.What,
			h.Advice,
			report.ConfidenceText(h.Level, h.Reasons)[1:],
			more,
		)
	}
	return table
}

// Where returns the most important place, and the number of others, in words; nil if there is none.
func (h *Hit) Where() any {
	switch n := len(h.Places); {
	case n == 0 || h.Places[0].Where == "":
		return nil
	case n > 1:
		return fmt.Sprintf("%s, and %d more", h.Places[0].Where, n-1)
	}
	return h.Places[0].Where
}

// ShellWord returns a path as a word of a shell command, quoted if necessary.
func ShellWord(path string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("/._-+,:@%=", r)
	}
	if path != "" && strings.IndexFunc(path, func(r rune) bool { return !plain(r) }) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

var evidenceColumns = []report.Column{
	{Key: "rule", Title: "RULE", Unit: report.UnitText, About: "the rule that it is evidence for"},
	{Key: "count", Title: "COUNT", Unit: report.UnitCount, About: "calls, blocks or samples"},
	{
		Key: "time_ns", Title: "TIME", Unit: report.UnitNs,
		About: "time that it took or lasted, of calls whose duration is known",
	},
	{Key: "bytes", Title: "BYTES", Unit: report.UnitBytes, About: "bytes that it is about"},
	{Key: "first_ns", Title: "FIRST", Unit: report.UnitNs, About: "when it was first seen, from the recording's start"},
	{Key: "last_ns", Title: "LAST", Unit: report.UnitNs, About: "when it was last seen"},
	{Key: "detail", Title: "DETAIL", Unit: report.UnitText, About: "what else is known"},
	{Key: "where", Title: "WHERE", Unit: report.UnitText, About: "place in the program, GPU or process"},
}

// mostPlaces is the most rows of evidence of a hit, unless Options.Top is 0.
const mostPlaces = 5

// evidenceTable returns a table with a row per place of each hit.
func evidenceTable(t *timeline.Timeline, hits []Hit, top int) report.Table {
	table := report.Table{
		Name:      "evidence",
		Title:     "evidence",
		Columns:   evidenceColumns,
		Secondary: true,
		Keys:      []string{"rule", "where", "detail"},
		HideFirst: []string{"last_ns", "first_ns", "bytes"},
	}
	from := func(ns int64) any {
		if ns == 0 {
			return nil
		}
		return ns - t.Recording().FromNs
	}
	for i := range hits {
		h := &hits[i]
		for k := range h.Places {
			if top > 0 && k == mostPlaces {
				table.OmittedRows += len(h.Places) - k
				break
			}
			p := &h.Places[k]
			table.Add(report.Values{
				"rule":     h.Rule.ID,
				"count":    p.Count,
				"time_ns":  p.Ns,
				"bytes":    p.Bytes,
				"first_ns": from(p.FirstNs),
				"last_ns":  from(p.lastNs),
				"detail":   units.Known(p.Detail),
				"where":    units.Known(p.Where),
			})
		}
	}
	return table
}

// ShortHitColumns are the columns of ShortHits.
var ShortHitColumns = []report.Column{
	{Key: "severity", Title: "SEVERITY", Unit: report.UnitText, About: "problem, notice or info: see analyze rules"},
	{Key: "rule", Title: "RULE", Unit: report.UnitText, About: "name of the rule"},
	{Key: "what", Title: "WHAT", Unit: report.UnitText, About: "what was found"},
	{
		Key: "confidence", Title: "CONFIDENCE", Unit: report.UnitText,
		About: "high, medium or low; analyze rules says why",
	},
	{
		Key: "where", Title: "WHERE", Unit: report.UnitText,
		About: "the place in the program, GPU or process with most of it",
	},
}

// ShortHits returns a table with a row per hit, for the summary.
func ShortHits(hits []Hit) report.Table {
	table := report.Table{
		Name:       "hits",
		Title:      "what experts would look at; gpurec analyze rules says why, and what to do",
		Columns:    ShortHitColumns,
		AboveFacts: true,
		HideFirst:  []string{"confidence"},
		Keys:       []string{"rule", "where"},
	}
	for i := range hits {
		h := &hits[i]
		table.Add(report.Values{
			"severity":   gpu.VerdictLevels[h.Severity],
			"rule":       h.Rule.ID,
			"what":       h.What,
			"confidence": h.Level,
			"where":      h.Where(),
		})
	}
	return table
}

var totalColumns = []report.Column{
	{Key: "hits", Title: "hits", Unit: report.UnitCount, About: "rules that found something; of GPUs, per GPU"},
	{
		Key: "problems", Title: "problems", Unit: report.UnitCount,
		About: "hits of severity problem: the program fails, hangs or leaks, or a GPU is in trouble",
	},
	{
		Key: "notices", Title: "notices", Unit: report.UnitCount,
		About: "hits of severity notice: it costs time or memory",
	},
	{Key: "infos", Title: "infos", Unit: report.UnitCount, About: "hits of severity info: worth knowing"},
}

// totals counts the hits.
func totals(hits []Hit) []report.Fact {
	n := CountBySeverity(hits)
	return report.Facts(totalColumns, report.Values{
		"hits":     int64(len(hits)),
		"problems": n[SeverityProblem],
		"notices":  n[SeverityNotice],
		"infos":    n[SeverityInfo],
	})
}
