package quality

import (
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// OfRecording returns the quality of a recording. counts are the counters of a replay of its driver
// memory.
func OfRecording(t *timeline.Timeline, counts *livemem.ReplayCounts) report.Quality {
	total := t.Rec.Meta.Totals()
	inferred := t.Facts.SumStackInferences()
	q := report.Quality{
		Events:     t.Scan.Events,
		LostEvents: max(total.Lost, t.Facts.CountLostCalls("")),
		LostMemoryEvents: max(
			t.Rec.Meta.Calls[report.LostMemoryClass].Lost,
			t.Facts.CountLostCalls(report.LostMemoryClass),
		),
		DroppedEvents:         total.Dropped,
		UnmatchedFrees:        counts.UnmatchedFrees,
		LostFrees:             counts.LostFrees,
		StacksWithoutTable:    total.NoTable,
		OpenCalls:             t.Scan.Open,
		AbandonedCalls:        t.Scan.Abandoned,
		UnknownAllocs:         counts.UnknownAllocs,
		TruncatedTail:         !t.Rec.Meta.HasEnd(),
		DamagedSegments:       int64(len(t.Rec.Damaged)),
		UnsymbolizedFramesPct: t.Stacks.UnsymbolizedPct(),
		StacksChecked:         inferred.Checked,
		StacksWrong:           inferred.Wrong,
		Inferred:              inferred,
		AllocatorEvents:       t.Scan.AllocatorEvents,
		LostAllocatorEvents: max(
			t.Rec.Meta.Calls[report.LostAllocatorClass].Lost,
			t.Facts.CountLostCalls(report.LostAllocatorClass),
		),
		AllocatorsByReports: t.Facts.CountReportedAllocators(),
		Classes:             t.Rec.Meta.Classes,
		Launches:            t.SamplingCoverage(),
		Allocator:           t.AllocatorCoverage(),
		GPUTiming:           "none",
	}
	if len(t.Progress) > 0 {
		q.GPUTiming = "channel"
	}
	if late := t.Rec.Meta.Late; late != nil {
		q.LateProcesses, q.MissedEvents = late.Processes, late.TotalMissed()
		q.CompleteAfterNs = max(0, late.CompleteNs-t.Rec.Meta.StartNs)
	}
	own := q.Events - t.Scan.Stacks[format.StackParent]
	for status, n := range t.Scan.Stacks {
		if status != format.StackParent {
			q.StackShares = append(q.StackShares, report.StackStatusShare{Status: status, Pct: units.Percent(n, own)})
		}
	}
	slices.SortFunc(
		q.StackShares,
		func(a, b report.StackStatusShare) int { return strings.Compare(a.Status, b.Status) },
	)
	return q
}

// AddAllocators adds the calls of allocators after a replay, if their events were recorded for part of the time only.
func AddAllocators(q *report.Quality, set *caching.AllocatorSet) {
	if q.Allocator.Sampled {
		set.EachAllocator(func(a *caching.Allocator) { addCalls(&q.Allocator, &a.Counts) })
	}
}

// addCalls adds the calls of an allocator.
func addCalls(c *sampling.AllocatorCoverage, counts *caching.EventCounts) {
	allocs, frees := counts.RecordedCalls()
	c.Allocs.Recorded, c.Frees.Recorded = c.Allocs.Recorded+allocs, c.Frees.Recorded+frees
	c.Allocs.Unrecorded += counts.UnrecordedAllocs
	c.Frees.Unrecorded += counts.UnrecordedFrees
	c.SiteNotSeen += counts.UnseenBlocks
}

// OfProgramReplay returns the quality of a recording after a replay of the driver memory and the
// caching allocators.
func OfProgramReplay(t *timeline.Timeline, p *timeline.ProgramMemory) report.Quality {
	q := OfRecording(t, p.DriverCounts())
	p.Allocators.EachAllocator(func(a *caching.Allocator) {
		q.AllocatorUnmatchedFrees += a.Counts.UnmatchedFrees
		q.AllocatorLostFrees += a.Counts.LostFrees
		q.AllocatorCompared += a.Check.Compared
		q.AllocatorDisagreed += a.Check.Disagreed
		q.AllocatorWorstBytes = max(q.AllocatorWorstBytes, a.Check.WorstBytes)
	})
	AddAllocators(&q, p.Allocators)
	return q
}
