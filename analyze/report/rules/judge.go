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

// NeededClasses has what a rule needs to find something, by its id. Rules that are not here
// need no calls of one class in particular.
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

// Checkable returns those rules for which the recording has the calls.
func Checkable(t *timeline.Timeline, chosen []*Rule) []*Rule {
	return slices.DeleteFunc(slices.Clone(chosen), func(r *Rule) bool { return len(quality.Missing(t, NeededClasses[r.ID])) > 0 })
}

// Check applies rules; the worst hits come first.
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

// A rule is something that experts look for in a recording. It is a function of a survey: rules compute nothing of which there is a
// report, they say when what the report counts is worth somebody's time. Each rule has its own thresholds, as constants beside it
// that say where they come from. Most of them ask for worthPct of the time: what costs less is not worth a change of a program.

// worthPct is from which share of the time on something is worth telling, %: windows of one and the same training differ by more.
const worthPct = 1.0

// newHit begins a hit with the confidence that the recording as a whole deserves where calls are counted: a loss of a few changes no
// rate, and an inferred stack may be another call's.
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

// lower lowers the confidence.
func (h *Hit) lower(to, format string, args ...any) {
	if h.Level == report.ConfidenceHigh || to == report.ConfidenceLow {
		h.Level = to
	}
	h.Reasons = append(h.Reasons, fmt.Sprintf(format, args...))
}

// bySite lowers the confidence of hits that blame places of calls whose stacks are inferred.
func (s *Survey) bySite(h *Hit) {
	if pct, ok := sampling.ErrorPct(&s.Quality.Inferred).(float64); ok && pct >= worthPct {
		h.lower(report.ConfidenceMedium, "%.0f%% of inferred stacks are another call's", pct)
	}
}

// onlyEntries says of which share of launches only the entry is known.
func (s *Survey) onlyEntries(h *Hit, unknown, launches int64) {
	if unknown > 0 {
		h.lower(report.ConfidenceMedium, "of %.0f%% of the launches only the entry is known", units.Percent(unknown, launches))
	}
}

// sortPlaces puts places with most time first, then most calls.
func sortPlaces(list []Place) {
	slices.SortFunc(list, func(a, b Place) int {
		return cmp.Or(report.CompareCells(a.Ns, b.Ns), report.CompareCells(a.Count, b.Count), report.CompareCells(a.Bytes, b.Bytes), strings.Compare(a.Where, b.Where), strings.Compare(a.Detail, b.Detail))
	})
}

// isWork reports whether a call gives work to the GPU, or gets memory for it: what a program does that goes on, and not one that
// tidies up.
func isWork(name string) bool {
	for _, prefix := range []string{"cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset", "cuMemAlloc", "cuMemCreate"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// CountBySeverity returns how many hits there are of each severity.
func CountBySeverity(hits []Hit) (n [NumSeverities]int64) {
	for i := range hits {
		n[hits[i].Severity]++
	}
	return n
}
