package analyze

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/units"
)

var ruleInvalidFree = rule{
	id: "invalid-free",
	about: "a free failed because of its pointer, by analyze errors: freed twice, inside a live block, or by the wrong function (a problem); " +
		"freed with its context, or never returned by a recorded call (a notice)",
	report: "errors",
	check:  checkInvalidFree,
}

// invalidFreeAdvice says what to do about a verdict.
var invalidFreeAdvice = [fault.NumFreeVerdicts]string{
	fault.DoubleFree: "Give the block one owner, and set the pointer to null where it is freed. " +
		"Once its address is handed out again, the second free ends another block.",
	fault.InsideBlock:    "Free the pointer that the allocation returned: the block stays allocated until then.",
	fault.WrongFunction:  "Free the memory with the function that belongs to its allocation: it stays allocated until then.",
	fault.ContextEnded:   "Free memory before its context is destroyed or reset, or not at all: the context frees it.",
	fault.UnknownPointer: "Look where the pointer comes from: another process, another allocator, or a variable that was never set.",
}

// checkInvalidFree makes a hit of the program's faults, and one of what may be harmless.
func checkInvalidFree(s *survey) ([]hit, error) {
	var hits []hit
	for _, severity := range []int{aProblem, aNotice} {
		h := hit{severity: severity}
		var calls int64
		for i := range s.frees {
			f := &s.frees[i]
			if (f.Verdict >= fault.ContextEnded) != (severity == aNotice) {
				continue
			}
			if len(h.places) == 0 {
				h.level, h.reasons = f.level, f.reasons
				h.advice = invalidFreeAdvice[f.Verdict]
			}
			calls += f.calls
			h.places = append(h.places, s.invalidFreePlace(f))
		}
		if len(h.places) == 0 {
			continue
		}
		h.what = fmt.Sprintf("%s failed; %s", units.Plural(calls, "free"), h.places[0].detail)
		s.bySite(&h)
		hits = append(hits, h)
	}
	return hits, nil
}

// invalidFreePlace is the evidence of some failed frees.
func (s *survey) invalidFreePlace(f *invalidFree) place {
	p := place{where: s.errors.names.List[f.Site], stack: f.Stack, count: f.calls,
		firstNs: f.StartNs, lastNs: f.lastNs}
	if f.Allocated && f.Block.Bytes > 0 {
		p.bytes = f.Block.Bytes
	}
	p.detail = fmt.Sprintf("%s, %s", f.Verdict, s.errors.names.List[f.Name])
	if f.freedAt != "" {
		p.detail += ", freed before at " + f.freedAt
	}
	if f.Right != "" {
		p.detail += ", free it with " + f.Right
	}
	if f.allocatedAt != "" {
		p.detail += ", allocated at " + f.allocatedAt
	}
	return p
}
