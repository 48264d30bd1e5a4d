package rules

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/analyze/units"
)

// InvalidFreeRule is the rule for frees that failed because of their pointer.
var InvalidFreeRule = Rule{
	ID: "invalid-free",
	About: "a free failed because of its pointer: see analyze errors. A problem if the pointer was freed before, is " +
		"inside of a live block, or belongs to another free function. " +
		"A notice if the memory was freed with its context, or if no recorded call returned the pointer",
	Report: "errors",
	check:  checkInvalidFree,
}

// invalidFreeAdvice is the advice for each verdict on an invalid free.
var invalidFreeAdvice = [fault.NumFreeVerdicts]string{
	fault.VerdictDoubleFree: "Give the block one owner, and set the pointer to null after the free. " +
		"If a new allocation gets the same address, the second free destroys that block.",
	fault.VerdictInsideBlock: "Free the pointer that the allocation returned. Until then the block stays allocated.",
	fault.VerdictWrongFunction: "Free the memory with the function that belongs to its allocation. Until then the " +
		"memory stays allocated.",
	fault.VerdictContextEnded: "Free memory before its context is destroyed or reset, or rely on " +
		"the context to free it.",
	fault.VerdictUnknownPointer: "Find out where the pointer comes from: another process, another allocator, or an " +
		"uninitialized variable.",
}

// checkInvalidFree returns one hit for program faults, and one for frees that may be harmless.
func checkInvalidFree(s *Scan) ([]Hit, error) {
	var hits []Hit
	for _, severity := range []int{SeverityProblem, SeverityNotice} {
		h := Hit{Severity: severity}
		var calls int64
		for i := range s.invalidFrees {
			f := &s.invalidFrees[i]
			if (f.Verdict >= fault.VerdictContextEnded) != (severity == SeverityNotice) {
				continue
			}
			if len(h.Evidence) == 0 {
				h.Confidence, h.Reasons = f.Level, f.Reasons
				h.Advice = invalidFreeAdvice[f.Verdict]
			}
			calls += f.Calls
			h.Evidence = append(h.Evidence, s.newInvalidFreeEvidence(f))
		}
		if len(h.Evidence) == 0 {
			continue
		}
		h.Summary = fmt.Sprintf("%s failed; %s", units.CountWithNoun(calls, "free"), h.Evidence[0].Detail)
		s.lowerConfidenceForInferredStacks(&h)
		hits = append(hits, h)
	}
	return hits, nil
}

// newInvalidFreeEvidence returns the row of evidence for a group of equal invalid frees.
func (s *Scan) newInvalidFreeEvidence(f *cudaerrors.InvalidFree) Evidence {
	p := Evidence{
		Where: s.errors.Names.List[f.Site], Stack: f.Stack, Count: f.Calls,
		FirstNs: f.StartNs, lastNs: f.LastNs,
	}
	if f.Allocated && f.Block.Bytes > 0 {
		p.Bytes = f.Block.Bytes
	}
	p.Detail = fmt.Sprintf("%s, %s", f.Verdict, s.errors.Names.List[f.Name])
	if f.FreedAt != "" {
		p.Detail += ", already freed at " + f.FreedAt
	}
	if f.Right != "" {
		p.Detail += ", free it with " + f.Right
	}
	if f.AllocatedAt != "" {
		p.Detail += ", allocated at " + f.AllocatedAt
	}
	return p
}
