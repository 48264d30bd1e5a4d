package analyze

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
)

// The page begins with the hits of rules, as summary and rules tell them. What is no hit but was seen all the same follows as findings:
// reports tell them that rules have no share in, or they are too little for a rule.

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
		v := htmlHit{Level: verdictLevels[h.severity], Rule: h.rule.id, Text: brief(h.what), Advice: brief(h.advice), Section: h.rule.section(),
			More: "gpurec analyze " + h.rule.report + " " + shellWord(units.OneLine(b.opt.Name))}
		v.SectionTitle = sectionTitle(v.Section)
		text := confidenceText(h.level, h.reasons)
		v.Confidence = brief(strings.ToUpper(text[:1]) + text[1:])
		if where, ok := h.where().(string); ok {
			v.Where = shortText(where)
		}
		for k := range h.places {
			if k == htmlPlaces {
				v.Evidence = append(v.Evidence, fmt.Sprintf("… and %s", units.Plural(int64(len(h.places)-k), "more place")))
				break
			}
			if text := h.places[k].text(b.t); text != "" {
				v.Evidence = append(v.Evidence, brief(text))
			}
		}
		if len(h.places) > 0 {
			for _, f := range framesShown(&b.t.Stacks, h.places[0].stack, htmlStackFrames, b.opt.FrameRules()) {
				v.Frames = append(v.Frames, shortText(f.text()))
			}
		}
		list = append(list, v)
	}
	return list
}

// brief is a sentence as the page shows it.
func brief(s string) string { return cutMiddle(units.OneLine(s), 2*longestText) }

// text is a place with what is known of it.
func (p *place) text(t *timeline.Timeline) string {
	var parts []string
	if n, ok := p.count.(int64); ok && n > 1 {
		parts = append(parts, units.Count(n)+" times")
	}
	if ns, ok := p.ns.(int64); ok && ns > 0 {
		parts = append(parts, units.Duration(ns))
	}
	if bytes, ok := p.bytes.(int64); ok {
		parts = append(parts, units.Bytes(bytes))
	}
	if p.firstNs != 0 {
		parts = append(parts, "first at "+units.Duration(p.firstNs-t.Recording().FromNs))
	}
	if p.detail != "" {
		parts = append(parts, p.detail)
	}
	text := strings.Join(parts, ", ")
	if p.where == "" || text == "" {
		return p.where + text
	}
	return p.where + ": " + text
}

// section is the part of the page that shows more of what a rule is about.
func (r *rule) section() string {
	command, _, _ := strings.Cut(r.report, " ")
	for i := range htmlSections {
		for _, of := range htmlSections[i].reports {
			if of.command == command {
				return htmlSections[i].id
			}
		}
	}
	return "verdicts" // TestEveryRuleHasASection sees to it that there is none
}

// attention counts the hits that are more than information.
func (b *htmlBuilder) attention() (n int) {
	for i := range b.hits {
		if b.hits[i].severity < anInfo {
			n++
		}
	}
	return n
}

// findings are what no rule speaks of.
func (b *htmlBuilder) findings() (list []htmlFinding) {
	add := func(section, format string, args ...any) {
		list = append(list, htmlFinding{brief(fmt.Sprintf(format, args...)), section, sectionTitle(section)})
	}
	spaces := b.reports["frag"].table("spaces")
	for i := range spaces.Rows {
		if r := &spaces.Rows[i]; spaces.text(r, "verdict") == "fragmented" {
			add("frag", "%s of %s reserved by process %s cannot be used or given back: %s", spaces.text(r, "kept_bytes"), spaces.text(r, "reserved_bytes"), spaces.text(r, "pid"), spaces.text(r, "space"))
		}
	}
	errors := b.reports["errors"].table("errors")
	for i := range errors.Rows {
		r := &errors.Rows[i]
		n, _ := errors.cell(r, "calls").(int64)
		if errors.text(r, "class") == "call" && !b.fired(&ruleUncheckedError) && !b.isInvalidFree(errors.text(r, "name"), errors.text(r, "site")) {
			add("errors", "%s of %s returned %s, first at %s: too few for a rule, or the program ended with it", units.Plural(n, "call"), errors.text(r, "name"), errors.text(r, "result_name"), errors.text(r, "first_ns"))
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
	frees := b.reports["errors"].table("invalid_frees")
	return b.fired(&ruleInvalidFree) && slices.ContainsFunc(frees.Rows, func(r Row) bool {
		return frees.text(&r, "name") == name && frees.text(&r, "site") == site
	})
}

// mostFindings of the page; sections show the rest.
const mostFindings = 6

// fired reports whether a rule has a hit.
func (b *htmlBuilder) fired(r *rule) bool {
	for i := range b.hits {
		if b.hits[i].rule == r {
			return true
		}
	}
	return false
}
