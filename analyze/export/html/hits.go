package html

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/units"
)

// The page begins with the hits of rules, as in the reports rules and summary. The findings follow:
// problems that no rule checks, or that are too small for a rule.

// hitView is the hit of a rule.
type hitView struct {
	Level        string   // severity: problem, notice or info
	Rule         string   // ID of the rule that fired
	Text         string   // the problem in one phrase
	Where        string   // call site, GPU or process of the most important evidence
	Evidence     []string // the first rows of evidence, with their numbers
	Frames       []string // stack of the first row of evidence
	Advice       string
	Confidence   string // confidence in the hit, with its reasons
	More         string // the gpurec command with the details
	Section      string // ID of the section with the details
	SectionTitle string
}

// findingView is a sentence about a problem, with the ID and title of the section with the details.
type findingView struct{ Text, Section, SectionTitle string }

// maxEvidenceRows is the largest number of rows of evidence for each hit.
const maxEvidenceRows = 3

// newHitViews returns the hits of the rules, the most severe first.
func (b *pageBuilder) newHitViews() (list []hitView) {
	for _, h := range rules.Findings(b.hits) {
		v := hitView{
			Level:   gpu.VerdictLevels[h.Severity],
			Rule:    h.Rule.ID,
			Text:    ShortenSentence(h.Summary),
			Advice:  ShortenSentence(h.Advice),
			Section: findRuleSection(h.Rule),
			More:    "gpurec analyze " + h.Rule.Report + " " + rules.QuoteShellWord(units.SanitizeText(b.opt.Name)),
		}
		v.SectionTitle = findSectionTitle(v.Section)
		text := report.ConfidenceText(h.Confidence, h.Reasons)
		v.Confidence = ShortenSentence(strings.ToUpper(text[:1]) + text[1:])
		if where, ok := h.MainLocation().(string); ok {
			v.Where = shortenText(where)
		}
		for k := range h.Evidence {
			if k == maxEvidenceRows {
				v.Evidence = append(
					v.Evidence,
					fmt.Sprintf("… and %s", units.CountWithNoun(int64(len(h.Evidence)-k), "more row")),
				)
				break
			}
			if text := formatEvidence(&h.Evidence[k], b.t); text != "" {
				v.Evidence = append(v.Evidence, ShortenSentence(text))
			}
		}
		if len(h.Evidence) > 0 {
			of, rules := stack.Pair{Stack: h.Evidence[0].Stack, Via: h.Evidence[0].Via}, b.opt.FrameRules()
			for _, f := range frames.DisplayFrames(&b.t.Stacks, of, maxStackFrames, rules) {
				v.Frames = append(v.Frames, shortenText(render.FormatFrame(&f)))
			}
		}
		list = append(list, v)
	}
	return list
}

// ShortenSentence returns a sentence as the page shows it: on one line, and cut in the middle if it
// is very long.
func ShortenSentence(s string) string {
	return render.CutTextMiddle(units.SanitizeText(s), 2*maxTextChars)
}

// formatEvidence returns a row of evidence as text: the place, then its numbers and details.
func formatEvidence(p *rules.Evidence, t *timeline.Timeline) string {
	var parts []string
	if n, ok := p.Count.(int64); ok && n > 1 {
		parts = append(parts, units.FormatCount(n)+" times")
	}
	if ns, ok := p.Ns.(int64); ok && ns > 0 {
		parts = append(parts, units.FormatDuration(ns))
	}
	if bytes, ok := p.Bytes.(int64); ok {
		parts = append(parts, units.FormatBytes(bytes))
	}
	if p.FirstNs != 0 {
		parts = append(parts, "first at "+units.FormatDuration(p.FirstNs-t.RecordingWindow().FromNs))
	}
	if p.Detail != "" {
		parts = append(parts, p.Detail)
	}
	text := strings.Join(parts, ", ")
	if p.Where == "" || text == "" {
		return p.Where + text
	}
	return p.Where + ": " + text
}

// findRuleSection returns the ID of the section with the report of a rule.
func findRuleSection(r *rules.Rule) string {
	command, _, _ := strings.Cut(r.Report, " ")
	for i := range pageSections {
		if pageSections[i].command == command {
			return pageSections[i].ID
		}
	}
	return "verdicts" // not reached: TestEveryRuleHasASection checks all rules
}

// countProblemsAndNotices returns the number of hits with severity problem or notice.
func (b *pageBuilder) countProblemsAndNotices() (n int) {
	for _, h := range rules.Findings(b.hits) {
		if h.Severity < rules.SeverityInfo {
			n++
		}
	}
	return n
}

// newFindingViews returns the problems that no rule reports: fragmented spaces, single failed
// calls, and Xid errors from before the recording.
func (b *pageBuilder) newFindingViews() (list []findingView) {
	add := func(section, format string, args ...any) {
		list = append(
			list,
			findingView{ShortenSentence(fmt.Sprintf(format, args...)), section, findSectionTitle(section)},
		)
	}
	spaces := findTable(b.reports["frag"], "spaces")
	for i := range spaces.Rows {
		if r := &spaces.Rows[i]; formatCell(spaces, r, "verdict") == "fragmented" {
			add(
				"frag",
				"%s of %s reserved by process %s can neither be used nor released: %s",
				formatCell(spaces, r, "kept_bytes"),
				formatCell(spaces, r, "reserved_bytes"),
				formatCell(spaces, r, "pid"),
				formatCell(spaces, r, "space"),
			)
		}
	}
	errors := findTable(b.reports["errors"], "errors")
	for i := range errors.Rows {
		r := &errors.Rows[i]
		n, _ := findCellValue(errors, r, "calls").(int64)
		if formatCell(errors, r, "class") == "call" && !b.hasRuleFired(&rules.UncheckedErrorRule) &&
			!b.isInvalidFreeSite(formatCell(errors, r, "name"), formatCell(errors, r, "site")) {
			add(
				"errors",
				"%s of %s returned %s, first at %s: too few for a rule, or the program ended afterwards",
				units.CountWithNoun(n, "call"),
				formatCell(errors, r, "name"),
				formatCell(errors, r, "result_name"),
				formatCell(errors, r, "first_ns"),
			)
		}
	}
	var before int64
	for i := range b.t.Facts.Xids {
		if b.t.Facts.Xids[i].Before {
			before++
		}
	}
	if before > 0 {
		add("xid", "%s reported before the recording began, by any program", units.CountWithNoun(before, "Xid"))
	}
	return list[:min(maxFindings, len(list))]
}

// isInvalidFreeSite reports whether the rule invalid-free covers the failures of a function at a
// call site.
func (b *pageBuilder) isInvalidFreeSite(name, site string) bool {
	frees := findTable(b.reports["errors"], "invalid_frees")
	return b.hasRuleFired(&rules.InvalidFreeRule) && slices.ContainsFunc(frees.Rows, func(r report.Row) bool {
		return formatCell(frees, &r, "name") == name && formatCell(frees, &r, "site") == site
	})
}

// maxFindings is the largest number of findings at the top of the page.
const maxFindings = 6

// hasRuleFired reports whether a rule has a hit.
func (b *pageBuilder) hasRuleFired(r *rules.Rule) bool {
	for i := range b.hits {
		if b.hits[i].Rule == r {
			return true
		}
	}
	return false
}
