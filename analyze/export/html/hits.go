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

// The page begins with the hits of rules, as summary and rules tell them. What is no hit but was
// seen all the same follows as findings: reports tell them that rules have no share in, or they are
// too little for a rule.

// htmlHit is a hit as the page shows it.
type htmlHit struct {
	Level, Rule, Text, Where string
	Evidence                 []string // the first few places, with their numbers
	Frames                   []string // stack of the first of them
	Advice, Confidence, More string
	Section, SectionTitle    string
}

// htmlFinding is a sentence and the section that shows more.
type htmlFinding struct{ Text, Section, SectionTitle string }

// htmlPlaces is how many places of a hit the page tells of; its section shows more.
const htmlPlaces = 3

func (b *htmlBuilder) verdicts() (list []htmlHit) {
	for i := range b.hits {
		h := &b.hits[i]
		v := htmlHit{
			Level:   gpu.VerdictLevels[h.Severity],
			Rule:    h.Rule.ID,
			Text:    Brief(h.What),
			Advice:  Brief(h.Advice),
			Section: ofRuleSection(h.Rule),
			More:    "gpurec analyze " + h.Rule.Report + " " + rules.ShellWord(units.OneLine(b.opt.Name)),
		}
		v.SectionTitle = sectionTitle(v.Section)
		text := report.ConfidenceText(h.Level, h.Reasons)
		v.Confidence = Brief(strings.ToUpper(text[:1]) + text[1:])
		if where, ok := h.Where().(string); ok {
			v.Where = shortText(where)
		}
		for k := range h.Places {
			if k == htmlPlaces {
				v.Evidence = append(
					v.Evidence,
					fmt.Sprintf("… and %s", units.Plural(int64(len(h.Places)-k), "more place")),
				)
				break
			}
			if text := ofPlaceText(&h.Places[k], b.t); text != "" {
				v.Evidence = append(v.Evidence, Brief(text))
			}
		}
		if len(h.Places) > 0 {
			for _, f := range frames.ForDisplay(&b.t.Stacks, h.Places[0].Stack, htmlStackFrames, b.opt.FrameRules()) {
				v.Frames = append(v.Frames, shortText(render.Text(&f)))
			}
		}
		list = append(list, v)
	}
	return list
}

// Brief is a sentence as the page shows it.
func Brief(s string) string { return render.CutMiddle(units.OneLine(s), 2*longestText) }

// ofPlaceText is a place with what is known of it.
func ofPlaceText(p *rules.Place, t *timeline.Timeline) string {
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

// ofRuleSection is the part of the page that shows more of what a rule is about.
func ofRuleSection(r *rules.Rule) string {
	command, _, _ := strings.Cut(r.Report, " ")
	for i := range pageSections {
		if pageSections[i].command == command {
			return pageSections[i].ID
		}
	}
	return "verdicts" // TestEveryRuleHasASection sees to it that there is none
}

// attention counts the hits that are more than information.
func (b *htmlBuilder) attention() (n int) {
	for i := range b.hits {
		if b.hits[i].Severity < rules.SeverityInfo {
			n++
		}
	}
	return n
}

// findings are what no rule speaks of.
func (b *htmlBuilder) findings() (list []htmlFinding) {
	add := func(section, format string, args ...any) {
		list = append(list, htmlFinding{Brief(fmt.Sprintf(format, args...)), section, sectionTitle(section)})
	}
	spaces := ofReportTable(b.reports["frag"], "spaces")
	for i := range spaces.Rows {
		if r := &spaces.Rows[i]; ofTableText(spaces, r, "verdict") == "fragmented" {
			add(
				"frag",
				"%s of %s reserved by process %s cannot be used or given back: %s",
				ofTableText(spaces, r, "kept_bytes"),
				ofTableText(spaces, r, "reserved_bytes"),
				ofTableText(spaces, r, "pid"),
				ofTableText(spaces, r, "space"),
			)
		}
	}
	errors := ofReportTable(b.reports["errors"], "errors")
	for i := range errors.Rows {
		r := &errors.Rows[i]
		n, _ := ofTableCell(errors, r, "calls").(int64)
		if ofTableText(errors, r, "class") == "call" && !b.fired(&rules.UncheckedError) &&
			!b.isInvalidFree(ofTableText(errors, r, "name"), ofTableText(errors, r, "site")) {
			add(
				"errors",
				"%s of %s returned %s, first at %s: too few for a rule, or the program ended with it",
				units.Plural(n, "call"),
				ofTableText(errors, r, "name"),
				ofTableText(errors, r, "result_name"),
				ofTableText(errors, r, "first_ns"),
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
		add("xid", "%s reported before the recording began, of whatever program", units.Plural(before, "Xid"))
	}
	return list[:min(mostFindings, len(list))]
}

// isInvalidFree reports whether the rule invalid-free speaks of a function's failures at a site.
func (b *htmlBuilder) isInvalidFree(name, site string) bool {
	frees := ofReportTable(b.reports["errors"], "invalid_frees")
	return b.fired(&rules.InvalidFree) && slices.ContainsFunc(frees.Rows, func(r report.Row) bool {
		return ofTableText(frees, &r, "name") == name && ofTableText(frees, &r, "site") == site
	})
}

// mostFindings of the page; sections show the rest.
const mostFindings = 6

// fired reports whether a rule has a hit.
func (b *htmlBuilder) fired(r *rules.Rule) bool {
	for i := range b.hits {
		if b.hits[i].Rule == r {
			return true
		}
	}
	return false
}
