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

var resultFactColumns = []report.Column{
	{
		Key: "result", Title: "result", Unit: report.UnitText,
		About: "set if no rule fired, or if some rules were not checked",
	},
	{Key: "rules_checked", Title: "", Unit: report.UnitCount, About: "number of rules that were checked"},
}

// newRuleFacts returns the facts of the report: the result, the number of checked rules, and the
// rows of evidence of each rule. unchecked is the number of chosen rules whose events were not
// recorded.
func newRuleFacts(checked []*Rule, unchecked int, hits []Hit) []report.Fact {
	var result []string
	if len(hits) == 0 {
		result = append(
			result,
			fmt.Sprintf("no rule fired (%s checked)", units.CountWithNoun(int64(len(checked)), "rule")),
		)
	}
	if unchecked > 0 {
		result = append(
			result,
			units.CountWithNoun(int64(unchecked), "rule")+" not checked, because the required calls "+
				"were not recorded (gpurec record --record)",
		)
	}
	list := report.NewFacts(resultFactColumns, report.Values{
		"result":        strings.Join(result, "; "),
		"rules_checked": int64(len(checked)),
	})
	for _, r := range AllRules() {
		var rows any
		if slices.Contains(checked, r) {
			n := int64(0)
			for i := range hits {
				if hits[i].Rule == r {
					n += hits[i].places
				}
			}
			rows = n
		}
		list = append(list, report.Fact{Column: r.factColumn(), Value: rows})
	}
	return list
}

// factColumn describes the fact with the number of rows of evidence of a rule, for --fail-on.
func (r *Rule) factColumn() report.Column {
	return report.Column{
		Key:   strings.ReplaceAll(r.ID, "-", "_"),
		Title: "",
		Unit:  report.UnitCount,
		About: "rows of evidence of rule " + r.ID + "; 0 if it did not fire, absent if it was not checked. " +
			"It fires if " + r.About,
	}
}

// ruleFactColumns describes the facts of all rules, for --explain.
func ruleFactColumns() (list []report.Column) {
	for _, r := range AllRules() {
		list = append(list, r.factColumn())
	}
	return list
}

var hitColumns = []report.Column{
	{Key: "rule", Title: "RULE", Unit: report.UnitText, About: "name of the rule"},
	{
		Key: "severity", Title: "SEVERITY", Unit: report.UnitText,
		About: "problem: the program fails, hangs or leaks, or a GPU has an error; notice: the program loses time or " +
			"memory; info: worth knowing",
	},
	{
		Key: "confidence", Title: "CONFIDENCE", Unit: report.UnitText,
		About: "confidence in the hit: high, medium or low",
	},
	{
		Key:   "confidence_reasons",
		Title: "",
		Unit:  report.UnitText,
		About: "reasons for a confidence below high: lost calls, a short or damaged recording, inferred stacks, " +
			"calls without a recorded return, too few samples",
	},
	{
		Key: "places", Title: "", Unit: report.UnitCount,
		About: "rows of evidence; the table evidence has the most important ones",
	},
	{
		Key: "first_ns", Title: "", Unit: report.UnitNs,
		About: "time of the first occurrence, from the start of the recording; absent if the evidence has no time",
	},
	{
		Key: "folded_into", Title: "", Unit: report.UnitText,
		About: "the rule of the hit that says why this one fired. Text output and the page leave the row out",
	},
	{
		Key: "explains", Title: "", Unit: report.UnitText,
		About: "the rules that fired because of this hit, and are folded into it",
	},
	{Key: "advice", Title: "", Unit: report.UnitText, About: "recommended action"},
	{Key: "more", Title: "", Unit: report.UnitText, About: "the gpurec command that shows the details"},
	{Key: "what", Title: "WHAT", Unit: report.UnitText, About: "the problem in one phrase, with its main number"},
	{
		Key: "where", Title: "WHERE", Unit: report.UnitText,
		About: "the call site, GPU or process with the most important evidence",
	},
}

// newHitTable returns a table with a row per hit.
func newHitTable(t *timeline.Timeline, hits []Hit) report.Table {
	table := report.Table{
		Name:      "hits",
		Title:     "hits of the rules, the worst first",
		Columns:   hitColumns,
		HideFirst: []string{"confidence"},
		Keys:      []string{"rule", "where"},
	}
	for _, h := range foldedLast(hits) {
		where, main, first := h.MainLocation(), Evidence{}, any(nil)
		for k := range h.Evidence {
			if at := h.Evidence[k].FirstNs; at != 0 && (first == nil || at-t.RecordingWindow().FromNs < first.(int64)) {
				first = at - t.RecordingWindow().FromNs
			}
		}
		if len(h.Evidence) > 0 {
			main = h.Evidence[0]
		}
		row := table.Add(report.Values{
			"rule":               h.Rule.ID,
			"severity":           gpu.VerdictLevels[h.Severity],
			"confidence":         h.Confidence,
			"confidence_reasons": h.Reasons,
			"places":             int64(len(h.Evidence)),
			"first_ns":           first,
			"folded_into":        h.foldedInto(),
			"explains":           h.Explains,
			"advice":             h.Advice,
			"more":               h.more(t),
			"what":               h.Summary,
			"where":              where,
		})
		row.StackID, row.ViaStackID = main.Stack, main.Via
		row.Folded, row.Evidence = h.FoldedInto != nil, h.text(t)
	}
	return table
}

// foldedLast returns the findings, and then the hits that are folded into them.
func foldedLast(hits []Hit) (list []*Hit) {
	for _, isFolded := range []bool{false, true} {
		for i := range hits {
			if (hits[i].FoldedInto != nil) == isFolded {
				list = append(list, &hits[i])
			}
		}
	}
	return list
}

// more returns the command that shows the details.
func (h *Hit) more(t *timeline.Timeline) string {
	return "gpurec analyze " + h.Rule.Report + " " + QuoteShellWord(t.Rec.Path)
}

// text returns the problem, what to do, the confidence, and the command that shows more.
func (h *Hit) text(t *timeline.Timeline) string {
	return fmt.Sprintf("%s. %s C%s. More: %s", h.Summary, h.Advice,
		report.ConfidenceText(h.Confidence, h.Reasons)[1:], h.more(t))
}

// foldedInto returns the ID of the rule of FoldedInto, or nil.
func (h *Hit) foldedInto() any {
	if h.FoldedInto == nil {
		return nil
	}
	return h.FoldedInto.ID
}

// MainLocation returns the call site, GPU or process of the most important evidence, and the number
// of further rows. It returns nil if the hit has no evidence, or evidence without a place.
func (h *Hit) MainLocation() any {
	switch n := len(h.Evidence); {
	case n == 0 || h.Evidence[0].Where == "":
		return nil
	case n > 1:
		return fmt.Sprintf("%s, and %d more", h.Evidence[0].Where, n-1)
	}
	return h.Evidence[0].Where
}

// QuoteShellWord returns a path as one word of a POSIX shell command, in single quotes if
// necessary.
func QuoteShellWord(path string) string {
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
	{Key: "rule", Title: "RULE", Unit: report.UnitText, About: "the rule that fired"},
	{Key: "count", Title: "COUNT", Unit: report.UnitCount, About: "number of calls, blocks or samples"},
	{
		Key: "time_ns", Title: "TIME", Unit: report.UnitNs,
		About: "duration of the problem, or sum of the durations of the calls whose duration is known",
	},
	{
		Key: "bytes", Title: "BYTES", Unit: report.UnitBytes,
		About: "bytes that were allocated, requested, copied or in use",
	},
	{
		Key: "first_ns", Title: "FIRST", Unit: report.UnitNs,
		About: "time of the first occurrence, from the start of the recording",
	},
	{
		Key: "last_ns", Title: "LAST", Unit: report.UnitNs,
		About: "time of the last occurrence, from the start of the recording",
	},
	{Key: "detail", Title: "DETAIL", Unit: report.UnitText, About: "further facts about this row"},
	{Key: "where", Title: "WHERE", Unit: report.UnitText, About: "call site, GPU or process"},
}

// maxEvidenceRows is the largest number of rows of evidence that a report shows of a hit. With
// query.Options.Top 0 it shows all rows.
const maxEvidenceRows = 5

// newEvidenceTable returns a table of the evidence of all hits. top is query.Options.Top.
func newEvidenceTable(t *timeline.Timeline, hits []Hit, top int) report.Table {
	table := report.Table{
		Name:      "evidence",
		Title:     "evidence",
		Columns:   evidenceColumns,
		Secondary: true,
		Keys:      []string{"rule", "where", "detail"},
		HideFirst: []string{"last_ns", "first_ns", "bytes"},
	}
	sinceStart := func(ns int64) any {
		if ns == 0 {
			return nil
		}
		return ns - t.RecordingWindow().FromNs
	}
	for _, h := range foldedLast(hits) {
		for k := range h.Evidence {
			if top > 0 && k == maxEvidenceRows {
				table.OmittedRows += len(h.Evidence) - k
				break
			}
			p := &h.Evidence[k]
			row := table.Add(report.Values{
				"rule":     h.Rule.ID,
				"count":    p.Count,
				"time_ns":  p.Ns,
				"bytes":    p.Bytes,
				"first_ns": sinceStart(p.FirstNs),
				"last_ns":  sinceStart(p.lastNs),
				"detail":   units.TextOrNil(p.Detail),
				"where":    units.TextOrNil(p.Where),
			})
			row.Folded = h.FoldedInto != nil
		}
	}
	return table
}

// ShortHitColumns are the columns of the table that NewShortHitTable returns.
var ShortHitColumns = []report.Column{
	{Key: "severity", Title: "SEVERITY", Unit: report.UnitText, About: "problem, notice or info: see analyze rules"},
	{Key: "rule", Title: "RULE", Unit: report.UnitText, About: "name of the rule"},
	{Key: "what", Title: "WHAT", Unit: report.UnitText, About: "the problem in one phrase, with its main number"},
	{
		Key: "confidence", Title: "CONFIDENCE", Unit: report.UnitText,
		About: "confidence in the hit: high, medium or low; analyze rules gives the reasons",
	},
	{
		Key: "where", Title: "WHERE", Unit: report.UnitText,
		About: "the call site, GPU or process with the most important evidence",
	},
}

// NewShortHitTable returns a table with one row for each hit, for the summary. Text output has the advice for the
// first finding only.
func NewShortHitTable(t *timeline.Timeline, hits []Hit) report.Table {
	table := report.Table{
		Name:       "hits",
		Title:      "hits of the rules; gpurec analyze rules shows the evidence, and what to do",
		Columns:    ShortHitColumns,
		AboveFacts: true,
		HideFirst:  []string{"confidence"},
		Keys:       []string{"rule", "where"},
	}
	for i, h := range foldedLast(hits) {
		row := table.Add(report.Values{
			"severity":   gpu.VerdictLevels[h.Severity],
			"rule":       h.Rule.ID,
			"what":       h.Summary,
			"confidence": h.Confidence,
			"where":      h.MainLocation(),
		})
		row.Folded, row.Evidence, row.Brief = h.FoldedInto != nil, h.text(t), i > 0
	}
	return table
}

var hitTotalColumns = []report.Column{
	{
		Key: "hits", Title: "hits", Unit: report.UnitCount,
		About: "hits of all rules, folded ones too; a rule about GPUs has one hit for each GPU",
	},
	{
		Key: "findings", Title: "findings", Unit: report.UnitCount,
		About: "hits that are not folded into their cause: the rows of the table in text output",
	},
	{
		Key: "problems", Title: "problems", Unit: report.UnitCount,
		About: "hits of severity problem: the program fails, hangs or leaks, or a GPU has an error",
	},
	{
		Key: "notices", Title: "notices", Unit: report.UnitCount,
		About: "hits of severity notice: the program loses time or memory",
	},
	{Key: "infos", Title: "infos", Unit: report.UnitCount, About: "hits of severity info: worth knowing"},
}

// newTotalFacts returns the number of hits, in total and by severity.
func newTotalFacts(hits []Hit) []report.Fact {
	n := CountHitsBySeverity(hits)
	return report.NewFacts(hitTotalColumns, report.Values{
		"hits":     int64(len(hits)),
		"findings": int64(len(Findings(hits))),
		"problems": n[SeverityProblem],
		"notices":  n[SeverityNotice],
		"infos":    n[SeverityInfo],
	})
}
