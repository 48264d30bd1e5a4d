package html

import (
	"fmt"
	"slices"
	"strings"

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
	Rule         string   // ID of the rule
	Text         string   // the problem in one phrase
	Where        string   // call site, GPU or process of the most important evidence
	Evidence     []string // the first rows of evidence, with their numbers
	Frames       []string // stack of the first row of evidence
	Advice       string
	Confidence   string // with its reasons
	More         string // the gpurec command with the details
	Section      string // ID of the section with the details
	SectionTitle string
}

// findingView is a sentence about a problem, with the ID and title of the section with the details.
type findingView struct{ Text, Section, SectionTitle string }

// maxEvidence is the largest number of rows of evidence for each hit.
const maxEvidence = 3

// verdicts returns the hits of the rules, the most severe first.
func (b *pageBuilder) verdicts() (list []hitView) {
	for i := range b.hits {
		h := &b.hits[i]
		v := hitView{
			Level:   gpu.VerdictLevels[h.Severity],
			Rule:    h.Rule.ID,
			Text:    Brief(h.Summary),
			Advice:  Brief(h.Advice),
			Section: sectionOfRule(h.Rule),
			More:    "gpurec analyze " + h.Rule.Report + " " + rules.ShellWord(units.OneLine(b.opt.Name)),
		}
		v.SectionTitle = sectionTitle(v.Section)
		text := report.ConfidenceText(h.Confidence, h.Reasons)
		v.Confidence = Brief(strings.ToUpper(text[:1]) + text[1:])
		if where, ok := h.Where().(string); ok {
			v.Where = shortText(where)
		}
		for k := range h.Evidence {
			if k == maxEvidence {
				v.Evidence = append(
					v.Evidence,
					fmt.Sprintf("… and %s", units.Plural(int64(len(h.Evidence)-k), "more row")),
				)
				break
			}
			if text := evidenceText(&h.Evidence[k], b.t); text != "" {
				v.Evidence = append(v.Evidence, Brief(text))
			}
		}
		if len(h.Evidence) > 0 {
			for _, f := range frames.ForDisplay(&b.t.Stacks, h.Evidence[0].Stack, maxStackFrames, b.opt.FrameRules()) {
				v.Frames = append(v.Frames, shortText(render.FrameText(&f)))
			}
		}
		list = append(list, v)
	}
	return list
}

// Brief returns a sentence as the page shows it: on one line, and cut in the middle if it is very
// long.
func Brief(s string) string { return render.CutMiddle(units.OneLine(s), 2*maxTextLen) }

// evidenceText returns a row of evidence as text: the place, then its numbers and details.
func evidenceText(p *rules.Evidence, t *timeline.Timeline) string {
	var parts []string
	if n, ok := p.Count.(int64); ok && n > 1 {
		parts = append(parts, units.Count(n)+" times")
	}
	if ns, ok := p.Ns.(int64); ok && ns > 0 {
		parts = append(parts, units.Duration(ns))
	}
	if bytes, ok := p.Bytes.(int64); ok {
		parts = append(parts, units.Bytes(bytes))
	}
	if p.FirstNs != 0 {
		parts = append(parts, "first at "+units.Duration(p.FirstNs-t.Recording().FromNs))
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

// sectionOfRule returns the ID of the section with the report of a rule.
func sectionOfRule(r *rules.Rule) string {
	command, _, _ := strings.Cut(r.Report, " ")
	for i := range pageSections {
		if pageSections[i].command == command {
			return pageSections[i].ID
		}
	}
	return "verdicts" // not reached: TestEveryRuleHasASection checks all rules
}

// attention returns the number of hits with severity problem or notice.
func (b *pageBuilder) attention() (n int) {
	for i := range b.hits {
		if b.hits[i].Severity < rules.SeverityInfo {
			n++
		}
	}
	return n
}

// findings returns the problems that no rule reports: fragmented spaces, single failed calls, and
// Xid errors from before the recording.
func (b *pageBuilder) findings() (list []findingView) {
	add := func(section, format string, args ...any) {
		list = append(list, findingView{Brief(fmt.Sprintf(format, args...)), section, sectionTitle(section)})
	}
	spaces := tableNamed(b.reports["frag"], "spaces")
	for i := range spaces.Rows {
		if r := &spaces.Rows[i]; cellText(spaces, r, "verdict") == "fragmented" {
			add(
				"frag",
				"%s of %s reserved by process %s can neither be used nor released: %s",
				cellText(spaces, r, "kept_bytes"),
				cellText(spaces, r, "reserved_bytes"),
				cellText(spaces, r, "pid"),
				cellText(spaces, r, "space"),
			)
		}
	}
	errors := tableNamed(b.reports["errors"], "errors")
	for i := range errors.Rows {
		r := &errors.Rows[i]
		n, _ := cellValue(errors, r, "calls").(int64)
		if cellText(errors, r, "class") == "call" && !b.fired(&rules.UncheckedError) &&
			!b.isInvalidFree(cellText(errors, r, "name"), cellText(errors, r, "site")) {
			add(
				"errors",
				"%s of %s returned %s, first at %s: too few for a rule, or the program ended afterwards",
				units.Plural(n, "call"),
				cellText(errors, r, "name"),
				cellText(errors, r, "result_name"),
				cellText(errors, r, "first_ns"),
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
		add("xid", "%s reported before the recording began, by any program", units.Plural(before, "Xid"))
	}
	return list[:min(maxFindings, len(list))]
}

// isInvalidFree reports whether the rule invalid-free covers the failures of a function at a call
// site.
func (b *pageBuilder) isInvalidFree(name, site string) bool {
	frees := tableNamed(b.reports["errors"], "invalid_frees")
	return b.fired(&rules.InvalidFree) && slices.ContainsFunc(frees.Rows, func(r report.Row) bool {
		return cellText(frees, &r, "name") == name && cellText(frees, &r, "site") == site
	})
}

// maxFindings is the largest number of findings at the top of the page.
const maxFindings = 6

// fired reports whether a rule has a hit.
func (b *pageBuilder) fired(r *rules.Rule) bool {
	for i := range b.hits {
		if b.hits[i].Rule == r {
			return true
		}
	}
	return false
}
