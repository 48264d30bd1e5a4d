package rules

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/analyze/units"
)

var InvalidFree = Rule{
	ID: "invalid-free",
	About: "a free failed because of its pointer, by analyze errors: freed twice, inside a live block, or by the " +
		"wrong function (a problem); " +
		"freed with its context, or never returned by a recorded call (a notice)",
	Report: "errors",
	check:  checkInvalidFree,
}

// invalidFreeAdvice has the advice for each verdict.
var invalidFreeAdvice = [fault.NumFreeVerdicts]string{
	fault.DoubleFree: "Give the block one owner, and set the pointer to null where it is freed. " +
		"Once its address is handed out again, the second free ends another block.",
	fault.InsideBlock: "Free the pointer that the allocation returned: the block stays allocated until then.",
	fault.WrongFunction: "Free the memory with the function that belongs to its allocation: it stays allocated " +
		"until then.",
	fault.ContextEnded: "Free memory before its context is destroyed or reset, or not at all: the context frees it.",
	fault.UnknownPointer: "Look where the pointer comes from: another process, another allocator, or a variable " +
		"that was never set.",
}

// checkInvalidFree returns a hit for faults of the program, and one for frees that may be harmless.
func checkInvalidFree(s *Survey) ([]Hit, error) {
	var hits []Hit
	for _, severity := range []int{SeverityProblem, SeverityNotice} {
		h := Hit{Severity: severity}
		var calls int64
		for i := range s.frees {
			f := &s.frees[i]
			if (f.Verdict >= fault.ContextEnded) != (severity == SeverityNotice) {
				continue
			}
			if len(h.Places) == 0 {
				h.Level, h.Reasons = f.Level, f.Reasons
				h.Advice = invalidFreeAdvice[f.Verdict]
			}
			calls += f.Calls
			h.Places = append(h.Places, s.invalidFreePlace(f))
		}
		if len(h.Places) == 0 {
			continue
		}
		h.What = fmt.Sprintf("%s failed; %s", units.Plural(calls, "free"), h.Places[0].Detail)
		s.bySite(&h)
		hits = append(hits, h)
	}
	return hits, nil
}

// invalidFreePlace returns the evidence of a group of invalid frees.
func (s *Survey) invalidFreePlace(f *cudaerrors.InvalidFree) Place {
	p := Place{
		Where: s.errors.Names.List[f.Site], Stack: f.Stack, Count: f.Calls,
		FirstNs: f.StartNs, lastNs: f.LastNs,
	}
	if f.Allocated && f.Block.Bytes > 0 {
		p.Bytes = f.Block.Bytes
	}
	p.Detail = fmt.Sprintf("%s, %s", f.Verdict, s.errors.Names.List[f.Name])
	if f.FreedAt != "" {
		p.Detail += ", freed before at " + f.FreedAt
	}
	if f.Right != "" {
		p.Detail += ", free it with " + f.Right
	}
	if f.AllocatedAt != "" {
		p.Detail += ", allocated at " + f.AllocatedAt
	}
	return p
}
