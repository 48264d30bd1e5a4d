package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// NeededClasses has the classes of events that a rule needs to find something, by its ID. Rules that
// are not listed need no class in particular.
var NeededClasses = map[string][]string{
	"hang":                  {format.RecordLaunch, format.RecordSync},
	"out-of-memory":         {format.RecordMemory},
	"oom-fragmentation":     {format.RecordMemory},
	"invalid-free":          {format.RecordMemory},
	"failed-alloc-in-loop":  {format.RecordMemory},
	"growing-site":          {quality.MemoryOrAllocator},
	"exit-leak":             {quality.MemoryOrAllocator},
	"memory-near-limit":     {format.RecordMemory},
	"alloc-in-loop":         {quality.MemoryOrAllocator},
	"gpu-idle":              {format.RecordLaunch, format.RecordCopy, format.RecordSync},
	"launch-bound":          {format.RecordLaunch, format.RecordSync},
	"low-sm-activity":       {format.RecordLaunch},
	"low-occupancy":         {format.RecordLaunch},
	"tensor-cores-unused":   {format.RecordLaunch},
	"tiny-kernels":          {format.RecordLaunch},
	"sync-in-loop":          {format.RecordSync},
	"memcpy-async-pageable": {format.RecordCopy, format.RecordMemory},
	"small-copies":          {format.RecordCopy},
	"module-load-in-loop":   {format.RecordModule},
}

// Checkable returns the rules whose classes of events are in the recording.
func Checkable(t *timeline.Timeline, chosen []*Rule) []*Rule {
	return slices.DeleteFunc(
		slices.Clone(chosen),
		func(r *Rule) bool { return len(quality.Missing(t, NeededClasses[r.ID])) > 0 },
	)
}

// Check returns the hits of the chosen rules, the worst first. The Survey must have run.
func (s *Survey) Check(chosen []*Rule) ([]Hit, error) {
	var hits []Hit
	for _, r := range chosen {
		found, err := r.check(s)
		if err != nil {
			return nil, err
		}
		for i := range found {
			found[i].Rule = r
			found[i].Advice = cmp.Or(found[i].Advice, r.advice)
		}
		hits = append(hits, found...)
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(a.Severity, b.Severity) })
	return hits, nil
}

// worthPct is the share of time, %, below which most rules find nothing: it is not worth a change of
// a program, and windows of the same training differ by more.
const worthPct = 1.0

// newHit returns a hit without places, with the confidence of the recording where calls are counted.
// A few lost calls do not lower it: they change no rate.
func (s *Survey) newHit(severity int, format string, args ...any) Hit {
	h := Hit{Severity: severity, What: fmt.Sprintf(format, args...), Level: report.ConfidenceHigh}
	q := &s.Quality
	switch lost := q.LostEvents; {
	case lost*10 > q.Events:
		h.lower(report.ConfidenceLow, "%s lost", units.Plural(lost, "call"))
	case lost*100 > q.Events:
		h.lower(report.ConfidenceMedium, "%s lost", units.Plural(lost, "call"))
	}
	if n := q.DamagedSegments; n > 0 {
		h.lower(report.ConfidenceMedium, "%s damaged", units.Plural(n, "segment"))
	}
	if d := s.Window.DurNs(); d < int64(3*time.Second) {
		h.lower(report.ConfidenceMedium, "only %s were recorded", units.Duration(d))
	}
	return h
}

// lower lowers the confidence to a level, and adds a reason.
func (h *Hit) lower(to, format string, args ...any) {
	if h.Level == report.ConfidenceHigh || to == report.ConfidenceLow {
		h.Level = to
	}
	h.Reasons = append(h.Reasons, fmt.Sprintf(format, args...))
}

// bySite lowers the confidence of a hit that names call sites, if inferred stacks may be wrong.
func (s *Survey) bySite(h *Hit) {
	if pct, ok := sampling.ErrorPct(&s.Quality.Inferred).(float64); ok && pct >= worthPct {
		h.lower(report.ConfidenceMedium, "%.0f%% of inferred stacks are another call's", pct)
	}
}

// onlyEntries lowers the confidence if the return of some launches was not recorded; unknown is
// their number.
func (s *Survey) onlyEntries(h *Hit, unknown, launches int64) {
	if unknown > 0 {
		h.lower(
			report.ConfidenceMedium,
			"of %.0f%% of the launches only the entry is known",
			units.Percent(unknown, launches),
		)
	}
}

// sortPlaces sorts places by time, calls and bytes, from large to small.
func sortPlaces(list []Place) {
	slices.SortFunc(list, func(a, b Place) int {
		return cmp.Or(
			report.CompareCells(a.Ns, b.Ns),
			report.CompareCells(a.Count, b.Count),
			report.CompareCells(a.Bytes, b.Bytes),
			strings.Compare(a.Where, b.Where),
			strings.Compare(a.Detail, b.Detail),
		)
	})
}

// isWork reports whether a call gives work to the GPU, or gets memory for it. A program that cleans
// up does neither.
func isWork(name string) bool {
	for _, prefix := range []string{"cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset", "cuMemAlloc", "cuMemCreate"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// CountBySeverity returns the number of hits of each severity.
func CountBySeverity(hits []Hit) (n [NumSeverities]int64) {
	for i := range hits {
		n[hits[i].Severity]++
	}
	return n
}
