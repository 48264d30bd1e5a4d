package rules

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// A problem often makes several rules fire: a symptom, such as an idle GPU, and its cause, such as garbage collection.
// Reports show such hits as one finding: the hit of the cause, with the symptom as its headline. The other hits are
// folded into it. They still count: in the numbers of --fail-on, and in JSON and CSV.

const (
	// minCausePct is the smallest share of a symptom, %, whose cause is named. Below it, something else is more
	// important.
	minCausePct = 30.0
	// minFurtherPct is the smallest share of a symptom, %, of a further cause in its headline.
	minFurtherPct = 5.0
	// maxNamedCauses is the largest number of causes in a headline.
	maxNamedCauses = 3
)

// sortHits sorts hits: the most severe first, then by what they cost, then by the share of time, the largest first.
func sortHits(hits []Hit) {
	kinds := kindsOfRules()
	slices.SortStableFunc(hits, func(a, b Hit) int {
		return cmp.Or(
			cmp.Compare(a.Severity, b.Severity),
			cmp.Compare(kinds[a.Rule], kinds[b.Rule]),
			cmp.Compare(b.sharePct, a.sharePct),
		)
	})
}

// Findings returns the hits that are not folded into others.
func Findings(hits []Hit) (list []Hit) {
	for i := range hits {
		if hits[i].FoldedInto == nil {
			list = append(list, hits[i])
		}
	}
	return list
}

// foldHits folds symptoms into their causes.
func (s *Survey) foldHits(hits []Hit) error {
	f := folding{s: s, hits: hits}
	if err := f.explainIdleGPUs(); err != nil {
		return err
	}
	for i := range symptoms {
		f.foldSymptom(&symptoms[i])
	}
	f.foldEqualPlaces()
	return nil
}

// symptoms lists rules that fire because of another rule's problem, in the order in which they are folded. The headline
// stays that of the cause.
var symptoms = []symptom{
	{rule: &HangRule, causes: []*Rule{&rankMissingRule, &collectiveMismatchRule}},
	{rule: &oomFragmentationRule, causes: []*Rule{&OutOfMemoryRule}},
	{rule: &allocRetryRule, causes: []*Rule{&OutOfMemoryRule}},
	{rule: &memoryFullRule, causes: []*Rule{&OutOfMemoryRule, &growingSiteRule, &cacheGrowthRule}},
	{rule: &brokenContextRule, causes: []*Rule{&xidRule, &useAfterFreeRule}},
	{rule: &UncheckedErrorRule, causes: []*Rule{&brokenContextRule}},
	{rule: &tinyKernelRule, causes: []*Rule{&launchBoundRule}},
	{rule: &lowSMActivityRule, causes: []*Rule{&launchBoundRule, &tinyKernelRule}},
	{rule: &exposedCommunicationRule, causes: []*Rule{&stragglerRule}, isOfOthers: true},
	{rule: &gpuIdleRule, causes: []*Rule{&stragglerRule}}, // what makes the rank late leaves its GPU idle
}

// symptom is a rule that fires because of the problem of another rule.
type symptom struct {
	rule       *Rule
	causes     []*Rule // the first that has a finding counts
	isOfOthers bool    // the cause is in another process
}

// folding folds the hits of a recording.
type folding struct {
	s    *Survey
	hits []Hit
}

// fold folds a hit into another one. What was folded into it before follows.
func (f *folding) fold(hit, into *Hit) {
	hit.FoldedInto = into.Rule
	into.Explains = append(into.Explains, hit.Rule.ID)
	into.sharePct = max(into.sharePct, hit.sharePct)
	into.Severity = min(into.Severity, hit.Severity)
}

// findingOf returns the first hit of a rule that is not folded and concerns a process; nil without one. pid 0 is any.
func (f *folding) findingOf(rule *Rule, pid int32) *Hit {
	for i := range f.hits {
		h := &f.hits[i]
		if h.Rule == rule && h.FoldedInto == nil && (pid == 0 || h.pid == 0 || h.pid == pid) {
			return h
		}
	}
	return nil
}

// foldSymptom folds the hits of a symptom into the finding of its cause.
func (f *folding) foldSymptom(p *symptom) {
	for i := range f.hits {
		h := &f.hits[i]
		if h.Rule != p.rule || h.FoldedInto != nil {
			continue
		}
		pid := h.pid
		if p.isOfOthers {
			pid = 0
		}
		for _, rule := range p.causes {
			if cause := f.findingOf(rule, pid); cause != nil {
				f.fold(h, cause)
				break
			}
		}
	}
}

// foldEqualPlaces folds hits of a rule with the same place on other GPUs or in other processes into the largest of them.
func (f *folding) foldEqualPlaces() {
	type place struct {
		rule  *Rule
		where string
	}
	first := make(map[place][]*Hit)
	for i := range f.hits {
		h := &f.hits[i]
		if h.FoldedInto == nil && h.pid != 0 && len(h.Evidence) > 0 && h.Evidence[0].Stack != 0 {
			at := place{h.Rule, h.Evidence[0].Where}
			first[at] = append(first[at], h)
		}
	}
	for _, list := range first {
		most := list[0]
		for _, h := range list {
			if h.sharePct > most.sharePct {
				most = h
			}
		}
		for _, h := range list {
			if h != most {
				h.FoldedInto = most.Rule
				most.Evidence = append(most.Evidence, h.Evidence...)
			}
		}
		if n := len(list) - 1; n > 0 {
			most.Summary += ", and so on " + units.CountWithNoun(int64(n), "more GPU")
		}
	}
}

// explainIdleGPUs folds each hit of rule gpu-idle into the hits of its causes, or names its causes if no rule does.
func (f *folding) explainIdleGPUs() error {
	for i := range f.hits {
		h := &f.hits[i]
		if h.Rule != &gpuIdleRule {
			continue
		}
		causes, err := f.s.idleCausesOf(h)
		if err != nil {
			return err
		}
		if len(causes.list) > 0 && causes.sharePct(&causes.list[0]) >= minCausePct {
			f.explainIdle(h, causes)
		}
	}
	return nil
}

// explainIdle makes an idle GPU the headline of its causes.
func (f *folding) explainIdle(h *Hit, causes *idleCauses) {
	headline := fmt.Sprintf("GPU idle %.0f%%: %s", h.sharePct, causes.text())
	main := &causes.list[0]
	cause := f.findingOfAny(main.rules, h.pid)
	if cause == nil {
		h.Summary, h.Advice = headline, cmp.Or(main.advice, h.Advice)
		h.Evidence = append([]Evidence{main.evidence(causes)}, h.Evidence...)
		cause = h
	} else {
		if len(cause.Explains) == 0 {
			if main.isOfHost {
				cause.Summary = headline
			} else {
				cause.Summary = headline + "; " + cause.Summary
			}
			cause.Evidence = main.evidenceFirst(cause.Evidence)
		}
		cause.lowerConfidenceTo(h)
		f.fold(h, cause)
	}
	for _, further := range causes.named()[1:] {
		if hit := f.findingOfAny(further.rules, h.pid); hit != nil && hit != cause {
			f.fold(hit, cause)
		}
	}
}

// findingOfAny returns the finding of the first rule that has one.
func (f *folding) findingOfAny(rules []*Rule, pid int32) *Hit {
	for _, rule := range rules {
		if h := f.findingOf(rule, pid); h != nil {
			return h
		}
	}
	return nil
}

// lowerConfidenceTo lowers the confidence to that of another hit, with its reasons.
func (h *Hit) lowerConfidenceTo(o *Hit) {
	if o.Confidence == report.ConfidenceHigh {
		return
	}
	for _, reason := range o.Reasons {
		if !slices.Contains(h.Reasons, reason) {
			h.lowerConfidence(o.Confidence, "%s", reason)
		}
	}
}
