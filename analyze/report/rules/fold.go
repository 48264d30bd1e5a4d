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
	// leastOfJobPct is the smallest share of the step, %, by which a late rank comes before other findings of its kind:
	// it costs the time of all ranks.
	leastOfJobPct = 10.0
	// maxNamedCauses is the largest number of causes in a headline.
	maxNamedCauses = 3
)

// sortHits sorts hits: the most severe first, then by what they cost, then late ranks, then by the share of time, the
// largest first.
func sortHits(hits []Hit) {
	kinds := kindsOfRules()
	slices.SortStableFunc(hits, func(a, b Hit) int {
		return cmp.Or(
			cmp.Compare(a.Severity, b.Severity),
			cmp.Compare(kinds[a.Rule], kinds[b.Rule]),
			report.CompareBools(b.isOfJob(), a.isOfJob()),
			cmp.Compare(b.sharePct, a.sharePct),
		)
	})
}

// isOfJob reports whether all ranks wait for the subject of a hit.
func (h *Hit) isOfJob() bool { return h.Rule == &stragglerRule && h.sharePct >= leastOfJobPct }

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
func (s *Scan) foldHits(hits []Hit) error {
	f := folding{s: s, hits: hits}
	if err := f.explainIdleGPUs(); err != nil {
		return err
	}
	for i := range symptoms {
		f.foldSymptom(&symptoms[i])
	}
	f.foldEqualPlaces()
	for i := range hits {
		if root := hits[i].root(); root != &hits[i] {
			hits[i].FoldedInto = root.Rule
		}
	}
	return nil
}

// root returns the finding that a hit belongs to: itself, or the end of the chain of causes.
func (h *Hit) root() *Hit {
	for h.cause != nil {
		h = h.cause
	}
	return h
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
	{rule: &lowSMActivityRule, causes: []*Rule{&launchBoundRule, &tinyKernelRule, &syncLoopRule}},
	{rule: &exposedCommunicationRule, causes: []*Rule{&stragglerRule}, isOfOthers: true},
	{rule: &gpuIdleRule, causes: []*Rule{&stragglerRule}}, // what makes the rank late leaves its GPU idle
	{rule: &gpuIdleRule, causes: []*Rule{&stragglerRule}, isOfOthers: true, leastPct: minCausePct},
}

// symptom is a rule that fires because of the problem of another rule.
type symptom struct {
	rule       *Rule
	causes     []*Rule // the first that has a finding counts
	isOfOthers bool    // the cause is in another process
	leastPct   float64 // share of the symptom, %, that the cause has at least
}

// folding folds the hits of a recording.
type folding struct {
	s    *Scan
	hits []Hit
}

// foldInto folds a hit into another one. What was folded into it before follows.
func (h *Hit) foldInto(cause *Hit) {
	h.cause = cause
	cause.Explains = append(append(cause.Explains, h.Rule.ID), h.Explains...)
	cause.sharePct = max(cause.sharePct, h.sharePct)
}

// hitOf returns the first hit of a rule that concerns a process; nil without one. pid 0 is any.
func (f *folding) hitOf(rule *Rule, pid int32) *Hit {
	for i := range f.hits {
		h := &f.hits[i]
		if h.Rule == rule && (pid == 0 || h.pid == 0 || h.pid == pid) {
			return h
		}
	}
	return nil
}

// foldSymptom folds the hits of a symptom into the finding of its cause.
func (f *folding) foldSymptom(p *symptom) {
	for i := range f.hits {
		h := &f.hits[i]
		if h.Rule != p.rule || h.cause != nil {
			continue
		}
		pid := h.pid
		if p.isOfOthers {
			pid = 0
		}
		for _, rule := range p.causes {
			cause := f.hitOf(rule, pid)
			if cause != nil && cause.root() != h && 100*cause.sharePct >= p.leastPct*h.sharePct {
				h.foldInto(cause.root())
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
		if h.cause == nil && h.pid != 0 && len(h.Evidence) > 0 && h.Evidence[0].Stack != 0 {
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
				h.cause = most
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
		causes := f.s.idleCausesOf(h)
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
	cause := f.findingOfAny(main.rules, main.pidOfRule(h.pid))
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
		h.foldInto(cause)
	}
	for _, further := range causes.named()[1:] {
		if hit := f.findingOfAny(further.rules, further.pidOfRule(h.pid)); hit != nil && hit != cause {
			hit.foldInto(cause)
		}
	}
}

// findingOfAny returns the hit of the first rule that has one and is not folded; nil without one.
func (f *folding) findingOfAny(rules []*Rule, pid int32) *Hit {
	for _, rule := range rules {
		if h := f.hitOf(rule, pid); h != nil && h.cause == nil {
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
