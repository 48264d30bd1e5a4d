package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/kernelargs"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// NeededEventClasses lists, by the ID of a rule, the classes of events that the rule needs. A rule
// that is not listed works with any recording.
var NeededEventClasses = map[string][]string{
	"hang":                  {format.RecordLaunch, format.RecordSync},
	"rank-missing":          {format.RecordCollective},
	"collective-mismatch":   {format.RecordCollective},
	"straggler":             {format.RecordLaunch, format.RecordSync},
	"small-collectives":     {format.RecordCollective},
	"uneven-memory":         {format.RecordCollective, quality.ClassMemoryOrAllocator},
	"out-of-memory":         {format.RecordMemory},
	"oom-fragmentation":     {format.RecordMemory},
	"invalid-free":          {format.RecordMemory},
	"use-after-free":        {format.RecordMemory, format.RecordLaunch},
	"failed-alloc-in-loop":  {format.RecordMemory},
	"growing-site":          {quality.ClassMemoryOrAllocator},
	"cache-growth":          {format.RecordAllocator},
	"exit-leak":             {quality.ClassMemoryOrAllocator},
	"object-leak":           {objectClasses},
	"memory-near-limit":     {format.RecordMemory},
	"alloc-in-loop":         {quality.ClassMemoryOrAllocator},
	"gpu-idle":              {format.RecordLaunch, format.RecordCopy, format.RecordSync},
	"exposed-copies":        {format.RecordLaunch, format.RecordCopy, format.RecordSync},
	"exposed-communication": {format.RecordLaunch, format.RecordCopy, format.RecordSync},
	"dataloader-bound":      {format.RecordLaunch, format.RecordCopy, format.RecordSync},
	"gc-pause":              {format.RecordLaunch, format.RecordCopy, format.RecordSync},
	"gil-bound":             {format.RecordLaunch, format.RecordCopy, format.RecordSync},
	"cpu-throttled":         {format.RecordLaunch, format.RecordCopy, format.RecordSync},
	"oversubscribed-cpu":    {format.RecordLaunch, format.RecordCopy, format.RecordSync},
	"io-bound":              {format.RecordLaunch, format.RecordCopy, format.RecordSync},
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

// SelectCheckable returns the chosen rules whose classes of events were recorded. Some rules need GPU times,
// and others rows of class host.
func SelectCheckable(t *timeline.Timeline, chosen []*Rule) []*Rule {
	return slices.DeleteFunc(slices.Clone(chosen), func(r *Rule) bool {
		return len(quality.MissingClasses(t, NeededEventClasses[r.ID])) > 0 || !r.isFor(t)
	})
}

// isFor reports whether a recording has the GPU times, and the rows of classes host, collective and arguments, that
// the rule needs.
func (r *Rule) isFor(t *timeline.Timeline) bool {
	return (!r.needsGPUTimes || len(t.Facts.Channels) > 0) && (!r.needsHost || hosttime.HasRows(t)) &&
		(!r.needsRanks || hasOperations(t)) && (!r.needsJob || hasJob(t)) &&
		(!r.needsArguments || kernelargs.HasRows(t))
}

// countUnchecked returns the number of chosen rules whose classes of events were not recorded.
func countUnchecked(t *timeline.Timeline, chosen []*Rule) (n int) {
	for _, r := range chosen {
		if len(quality.MissingClasses(t, NeededEventClasses[r.ID])) > 0 && r.isFor(t) {
			n++
		}
	}
	return n
}

// Check completes the Scan after the survey, and returns the hits of the chosen rules, the most important first.
// Symptoms are folded into their causes: see Findings. It may be called once. After an error, the Scan must not be used.
func (s *Scan) Check(chosen []*Rule) ([]Hit, error) {
	if err := s.finish(); err != nil {
		return nil, err
	}
	var hits []Hit
	for _, r := range chosen {
		found, err := r.check(s)
		if err != nil {
			return nil, err
		}
		for i := range found {
			found[i].Rule = r
			found[i].Advice = cmp.Or(found[i].Advice, r.advice)
			found[i].places = int64(max(1, len(found[i].Evidence)))
		}
		hits = append(hits, found...)
	}
	if err := s.foldHits(hits); err != nil {
		return nil, err
	}
	sortHits(hits)
	return hits, nil
}

// minTimeSharePct is the smallest share of time, %, that most rules report. Saving less is not
// worth a change of the program, and two windows of the same training differ by more.
const minTimeSharePct = 1.0

// newHit returns a hit without evidence. Its confidence depends on losses in the recording and on
// the length of the window. Less than 1% of lost calls does not lower the confidence.
func (s *Scan) newHit(severity int, format string, args ...any) Hit {
	h := Hit{Severity: severity, Summary: fmt.Sprintf(format, args...), Confidence: report.ConfidenceHigh}
	q := &s.Quality
	switch lost := q.LostEvents; {
	case lost*10 > q.Events:
		h.lowerConfidence(report.ConfidenceLow, "%s lost", units.CountWithNoun(lost, "call"))
	case lost*100 > q.Events:
		h.lowerConfidence(report.ConfidenceMedium, "%s lost", units.CountWithNoun(lost, "call"))
	}
	if n := q.LateProcesses; n > 0 {
		h.lowerConfidence(report.ConfidenceMedium, "%s recorded late", units.CountWithNoun(n, "process"))
	}
	if n := q.DamagedSegments; n > 0 {
		h.lowerConfidence(report.ConfidenceMedium, "%s damaged", units.CountWithNoun(n, "segment"))
	}
	if d := s.Window.DurNs(); d < int64(3*time.Second) {
		h.lowerConfidence(report.ConfidenceMedium, "the window is only %s long", units.FormatDuration(d))
	}
	return h
}

// lowerConfidence lowers the confidence to the given level, unless it is lower already, and adds a
// reason.
func (h *Hit) lowerConfidence(level, format string, args ...any) {
	if h.Confidence == report.ConfidenceHigh || level == report.ConfidenceLow {
		h.Confidence = level
	}
	h.Reasons = append(h.Reasons, fmt.Sprintf(format, args...))
}

// lowerConfidenceForInferredStacks lowers the confidence of a hit that names call sites, if at
// least minTimeSharePct of the inferred stacks are wrong.
func (s *Scan) lowerConfidenceForInferredStacks(h *Hit) {
	if pct, ok := sampling.InferenceErrorPct(&s.Quality.Inferred).(float64); ok && pct >= minTimeSharePct {
		h.lowerConfidence(report.ConfidenceMedium, "%.0f%% of inferred stacks belong to another call", pct)
	}
}

// lowerConfidenceForMissingReturns lowers the confidence if the return of some launches was not
// recorded; unreturned is the number of these launches.
func (s *Scan) lowerConfidenceForMissingReturns(h *Hit, unreturned, launches int64) {
	if unreturned > 0 {
		h.lowerConfidence(
			report.ConfidenceMedium,
			"the return of %.0f%% of the launches was not recorded",
			units.Percent(unreturned, launches),
		)
	}
}

// sortEvidence sorts evidence by time, then by count, then by bytes, the largest first.
func sortEvidence(list []Evidence) {
	slices.SortFunc(list, func(a, b Evidence) int {
		return cmp.Or(
			report.CompareCells(a.Ns, b.Ns),
			report.CompareCells(a.Count, b.Count),
			report.CompareCells(a.Bytes, b.Bytes),
			strings.Compare(a.Where, b.Where),
			strings.Compare(a.Detail, b.Detail),
		)
	})
}

// submitsGPUWork reports whether a CUDA driver function submits work to the GPU or allocates
// memory. A program that only cleans up after an error calls none of these.
func submitsGPUWork(name string) bool {
	for _, prefix := range []string{"cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset", "cuMemAlloc", "cuMemCreate"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// CountHitsBySeverity returns the number of hits of each severity.
func CountHitsBySeverity(hits []Hit) (n [NumSeverities]int64) {
	for i := range hits {
		n[hits[i].Severity]++
	}
	return n
}
