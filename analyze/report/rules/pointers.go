package rules

import (
	"cmp"
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/report/pointers"
	"github.com/gpurec/gpurec/analyze/units"
)

var useAfterFreeRule = Rule{
	ID: "use-after-free",
	About: "work of the GPU failed, and an argument of a launch before points into memory that was freed: a problem. " +
		"A notice if it points into no known memory. Also a notice: memory that was freed after the launch without " +
		"waiting for the kernel, and a block that a caching allocator kept after its free. " +
		"Needs record --kernel-args",
	Report: "pointers",
	advice: "Free the memory only after the last kernel that uses it has ended, or launch with the pointer of the " +
		"new block. Run the program under compute-sanitizer to see the access.",
	check:          checkUseAfterFree,
	needsArguments: true,
}

// checkUseAfterFree returns one hit for arguments that point into freed memory, and one for less certain suspects.
func checkUseAfterFree(s *Scan) ([]Hit, error) {
	scan, err := pointers.NewScan(s.t, s.filter)
	if err != nil || len(scan.Arguments) == 0 {
		return nil, err
	}
	scan.Judge(&s.Quality)
	var hits []Hit
	for _, severity := range []int{SeverityProblem, SeverityNotice} {
		h := Hit{Severity: severity}
		for i := range scan.Arguments {
			a := &scan.Arguments[i]
			if a.IsUseAfterFree() != (severity == SeverityProblem) {
				continue
			}
			if len(h.Evidence) == 0 {
				h.Confidence, h.Reasons = a.Level, a.Reasons
			}
			h.Evidence = append(h.Evidence, newPointerEvidence(scan, a))
		}
		// Less certain suspects add nothing to a certain one.
		if len(h.Evidence) == 0 || severity == SeverityNotice && len(hits) > 0 {
			continue
		}
		h.Summary = fmt.Sprintf("%s into %s before the GPU failed; %s",
			units.CountWithNoun(int64(len(h.Evidence)), "kernel argument"), memoryOfHit(&scan.Arguments[0]),
			h.Evidence[0].Detail)
		hits = append(hits, h)
	}
	return hits, nil
}

// memoryOfHit names the memory of the first argument of a hit.
func memoryOfHit(a *pointers.Argument) string {
	switch a.State {
	case fault.PointerCached:
		return "blocks in the allocator's cache"
	case fault.PointerFreedLater:
		return "memory that was freed soon after the launch"
	case fault.PointerUnknown:
		return "no known memory"
	}
	return "freed memory"
}

// newPointerEvidence returns the row of evidence for an argument.
func newPointerEvidence(scan *pointers.Scan, a *pointers.Argument) Evidence {
	allocated, freed := scan.Sites(a)
	e := Evidence{
		Where: scan.LaunchSite(a), Stack: a.Launch.Stack, Count: int64(1), FirstNs: a.Launch.StartNs,
		lastNs: a.Launch.StartNs,
	}
	if a.Block.Bytes > 0 {
		e.Bytes = a.Block.Bytes
	}
	e.Detail = fmt.Sprintf("%s, parameter %d, %s", cmp.Or(a.Launch.Kernel, a.Launch.Name), a.Index, a.State)
	if freed != "" {
		e.Detail += ", freed at " + freed
	}
	if allocated != "" {
		e.Detail += ", allocated at " + allocated
	}
	return e
}
