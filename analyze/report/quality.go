package report

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// LostMemoryClass is the class of calls that allocate or free driver memory, in Meta.Calls and in
// rows of lost calls. A lost call of this class makes the model of live memory wrong.
const LostMemoryClass = "memory"

// LostAllocatorClass is the class of events of caching allocators, as in Meta.Calls.
const LostAllocatorClass = "allocator"

// Quality counts the data that a recording lacks, as a measure of how far reports may be wrong.
type Quality struct {
	Events           int64 // number of recorded calls
	LostEvents       int64 // number of lost calls
	LostMemoryEvents int64 // lost calls that allocate or free memory
	// LateProcesses is the number of processes whose first calls are missing, in unknown number.
	// MissedEvents is the number of missing first calls that is known. CompleteAfterNs is the time
	// from the start of the recording after which all calls are recorded.
	LateProcesses, MissedEvents, CompleteAfterNs int64
	// StacksWithoutTable is the number of calls and events whose stack is cut or missing, because the
	// unwind tables of the process were not loaded yet.
	StacksWithoutTable int64

	DroppedEvents   int64 // calls that the ring recorder discarded because they were too old
	UnmatchedFrees  int64 // frees of memory whose allocation is not in the recording
	LostFrees       int64 // allocations that reused a live address, so that a free was lost
	OpenCalls       int64 // calls that had not returned when the recording ended
	AbandonedCalls  int64 // calls without a recorded return, although their thread made later calls
	UnknownAllocs   int64 // allocations whose returned address is unknown
	TruncatedTail   bool  // the recorder did not finish the recording
	DamagedSegments int64 // unreadable segments of the recording
	// UnsymbolizedFramesPct is the share of stored stack frames without a function name, 0 to 100.
	UnsymbolizedFramesPct float64
	// StackShares has the share of calls by the state of their stack. Nested calls do not count:
	// they have the stack of the outer call.
	StackShares []StackStatusShare
	// StacksChecked is the number of calls that were unwound although their stack could be
	// inferred. StacksWrong of these had another stack than the inferred one.
	StacksChecked int64
	StacksWrong   int64
	// Inferred has the recorder's counters of all inferred stacks.
	Inferred format.StackInference
	// AllocatorEvents is the number of recorded events of caching allocators, LostAllocatorEvents
	// the number of lost ones. Events counts neither.
	AllocatorEvents     int64
	LostAllocatorEvents int64
	// AllocatorCompared is the number of events at which the model's bytes were compared with the
	// allocator's own statistics. At AllocatorDisagreed of these events the two differed, by at
	// most AllocatorWorstBytes.
	AllocatorCompared, AllocatorDisagreed, AllocatorWorstBytes int64
	// AllocatorUnmatchedFrees is the number of frees of blocks whose allocation is not in the
	// recording, AllocatorLostFrees the number of blocks and segments whose free is not.
	AllocatorUnmatchedFrees, AllocatorLostFrees int64
	// AllocatorsByReports is the number of processes whose PyTorch allocator is known only from
	// PyTorch's memory reports to profilers.
	AllocatorsByReports int64
	// Classes are the recorded classes of calls. nil means all classes.
	Classes  []string
	Launches sampling.SamplingCoverage
	// Allocator says which events of caching allocators were recorded.
	Allocator sampling.AllocatorCoverage
	// GPUTiming is the source of GPU times: "channel" if progress of channels was recorded, else "none".
	GPUTiming string
}

// Facts returns the quality block as facts. It omits the facts about the ring recorder, allocator
// reports, --record and sampled launches if they do not apply.
func (q *Quality) Facts() []Fact {
	facts := NewFacts(QualityColumns, Values{
		"events":                    q.Events,
		"lost_events":               q.LostEvents,
		"lost_memory_events":        q.LostMemoryEvents,
		"unmatched_frees":           q.UnmatchedFrees,
		"lost_frees":                q.LostFrees,
		"open_calls":                q.OpenCalls,
		"abandoned_calls":           q.AbandonedCalls,
		"unknown_allocs":            q.UnknownAllocs,
		"truncated_tail":            q.TruncatedTail,
		"damaged_segments":          q.DamagedSegments,
		"unsymbolized_frames_pct":   q.UnsymbolizedFramesPct,
		"allocator_events":          q.AllocatorEvents,
		"lost_allocator_events":     q.LostAllocatorEvents,
		"allocator_unmatched_frees": q.AllocatorUnmatchedFrees,
		"allocator_lost_frees":      q.AllocatorLostFrees,
		"allocator_compared":        q.AllocatorCompared,
		"allocator_disagreed":       q.AllocatorDisagreed,
		"allocator_worst_bytes":     q.AllocatorWorstBytes,
		"stacks_complete_pct":       q.stackStatusPct(format.StackComplete),
		"stacks_inferred_pct":       q.stackStatusPct(format.StackInferred),
		"stacks_truncated_pct":      q.stackStatusPct(format.StackTruncated),
		"stacks_frame_pointer_pct":  q.stackStatusPct(format.StackFramePointer),
		"stacks_none_pct":           q.stackStatusPct(format.StackNone),
		"stacks_checked":            q.StacksChecked,
		"stacks_wrong":              q.StacksWrong,
		"stacks_wrong_pct":          sampling.InferenceErrorPct(&q.Inferred),
	})
	if q.DroppedEvents > 0 {
		facts = append(facts, Fact{droppedEventsColumn, q.DroppedEvents})
	}
	if pct := q.stackStatusPct(format.StackRationed); pct != nil && pct != 0.0 {
		facts = append(facts, Fact{rationedStacksColumn, pct})
	}
	if q.AllocatorsByReports > 0 {
		facts = append(facts, Fact{allocatorReportsColumn, q.AllocatorsByReports})
	}
	if q.isLate() {
		facts = append(facts, Fact{missedColumn, q.MissedEvents}, Fact{lateColumn, q.LateProcesses},
			Fact{completeAfterColumn, q.CompleteAfterNs})
	}
	if q.StacksWithoutTable > 0 {
		facts = append(facts, Fact{withoutTableColumn, q.StacksWithoutTable})
	}
	if len(q.Classes) > 0 {
		facts = append(facts, Fact{recordedClassesColumn, strings.Join(q.Classes, " ")})
	}
	facts = append(facts, launchSamplingFacts(&q.Launches)...)
	return append(facts, q.allocatorSamplingFacts()...)
}

// stackStatusPct returns the share of calls whose stack has this status, 0 to 100. It returns nil
// if no call can have a stack.
func (q *Quality) stackStatusPct(status string) any {
	if len(q.StackShares) == 0 {
		return nil
	}
	for _, s := range q.StackShares {
		if s.Status == status {
			return s.Pct
		}
	}
	return 0.0
}

// String returns the quality block as one line: the number of events, the number of lost events,
// and every other number that is not 0.
func (q *Quality) String() string {
	parts := []string{units.CountWithNoun(q.Events, "event"), units.FormatCount(q.LostEvents) + " lost"}
	for _, f := range q.Facts() {
		if f.Title == "" || f.Key == "events" || f.Key == "lost_events" || f.Key == completeAfterColumn.Key {
			continue
		}
		switch v := f.Value.(type) {
		case int64:
			if v > 0 {
				parts = append(parts, units.CountWithTitle(v, f.Title))
			}
		case float64:
			if v > 0 {
				parts = append(parts, fmt.Sprintf("%.1f%% %s", v, f.Title))
			}
		case bool:
			if v {
				parts = append(parts, f.Title)
			}
		}
	}
	if q.isLate() {
		parts = append(parts, "complete from +"+units.FormatDuration(q.CompleteAfterNs))
	}
	if len(q.Classes) > 0 {
		parts = append(parts, "only "+units.JoinWithAnd(q.Classes)+" calls recorded")
	}
	var stacks []string
	for _, s := range q.StackShares {
		stacks = append(stacks, fmt.Sprintf("%.0f%% %s", s.Pct, units.SanitizeText(s.Status)))
	}
	if len(stacks) > 0 {
		parts = append(parts, "stacks "+strings.Join(stacks, " "))
	}
	if pct := sampling.InferenceErrorPct(&q.Inferred); pct != nil {
		text := fmt.Sprintf(
			"inferred stacks %.2f%% wrong (%s of %s checked)",
			pct,
			units.FormatCount(q.StacksWrong),
			units.FormatCount(q.StacksChecked),
		)
		if unchecked := sampling.FormatUnchecked(&q.Inferred); unchecked != "" {
			text += ", " + unchecked
		}
		parts = append(parts, text)
	} else if pct := q.stackStatusPct(format.StackInferred); pct != nil && pct != 0.0 {
		parts = append(parts, "inferred stacks not checked")
	}
	for _, text := range []string{q.Launches.FormatCoverage(), q.Allocator.FormatCoverage()} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	return strings.Join(append(parts, "GPU timing "+q.GPUTiming), ", ")
}

// StackStatusShare is the share of calls whose stack has one status. Pct is 0 to 100.
type StackStatusShare struct {
	Status string
	Pct    float64
}

// Notes returns sentences about data that the recording lacks, for reports on caching allocators.
func (q *Quality) Notes() (list []string) {
	if q.AllocatorsByReports > 0 {
		list = append(
			list,
			"PyTorch's allocator is known only from its memory reports to profilers: "+reportedAllocatorLimits,
		)
	}
	if note := q.Allocator.FormatNote(); note != "" {
		list = append(list, strings.ToUpper(note[:1])+note[1:])
	}
	if q.AllocatorDisagreed == 0 {
		return list
	}
	return append(list, fmt.Sprintf(
		"PyTorch's own allocator statistics differ from the recorded allocator events at "+
			"%s of %s, by up to %s. Events were lost, or this PyTorch version works differently",
		units.FormatCount(
			q.AllocatorDisagreed,
		),
		units.CountWithNoun(q.AllocatorCompared, "event"),
		units.FormatBytes(q.AllocatorWorstBytes),
	))
}

// An allocator with format.SourceReports is recorded only through PyTorch's memory reports to
// profilers. The model has its blocks and totals, but no segments, pools or streams. A block has
// its rounded size, not the requested size. A free releases it at once. Each report follows the
// change of the totals.

// reportedAllocatorLimits names the limits of an allocator with format.SourceReports.
const reportedAllocatorLimits = "sizes are block sizes, which are requested sizes rounded up; segments, unused " +
	"memory, streams, pools and failed requests are unknown"

// Confidence levels of a verdict. The values appear in reports.
const (
	ConfidenceHigh   = "high"
	ConfidenceMedium = "medium"
	ConfidenceLow    = "low"
)

// Confidence returns the confidence in verdicts about memory, and the reasons that lower it. frees
// is the number of frees in the recording.
func (q *Quality) Confidence(frees int64) (level string, reasons []string) {
	level = ConfidenceHigh
	lower := func(to, format string, args ...any) {
		if level == ConfidenceHigh || to == ConfidenceLow {
			level = to
		}
		reasons = append(reasons, fmt.Sprintf(format, args...))
	}
	if n := q.LostMemoryEvents; n > 0 {
		// One lost call in 1000 can hide the leak of a small call site.
		if n*1000 > q.Events {
			lower(ConfidenceLow, "%s", units.CountWithNoun(n, "lost memory call"))
		} else {
			lower(ConfidenceMedium, "%s", units.CountWithNoun(n, "lost memory call"))
		}
	}
	if n := q.LostAllocatorEvents; n > 0 {
		to := ConfidenceMedium
		if n*1000 > q.AllocatorEvents {
			to = ConfidenceLow
		}
		lower(to, "%s of the allocator lost", units.CountWithNoun(n, "event"))
	}
	if n := q.MissedEvents; n > 0 {
		lower(ConfidenceMedium, "%s at the beginning not recorded", units.CountWithNoun(n, "event"))
	}
	if n := q.LateProcesses; n > 0 {
		lower(ConfidenceMedium, "%s recorded late, from +%s on at the latest",
			units.CountWithNoun(n, "process"), units.FormatDuration(q.CompleteAfterNs))
	}
	if n := q.AllocatorDisagreed; n > 0 {
		to := ConfidenceMedium
		if n*1000 > q.AllocatorCompared {
			to = ConfidenceLow
		}
		lower(to, "the allocator's own statistics differ from its recorded events %s", units.CountWithNoun(n, "time"))
	}
	if n := q.AllocatorLostFrees; n > 0 {
		lower(ConfidenceMedium, "%s of the allocator not recorded", units.CountWithNoun(n, "free"))
	}
	if q.LostFrees > 0 {
		lower(ConfidenceMedium, "%s not recorded", units.CountWithNoun(q.LostFrees, "free"))
	}
	if q.DamagedSegments > 0 {
		lower(ConfidenceLow, "%s damaged", units.CountWithNoun(q.DamagedSegments, "segment"))
	}
	if q.TruncatedTail {
		lower(ConfidenceMedium, "the recording was cut off")
	}
	// A few unmatched frees are normal when recording starts in a running program. More than 5
	// % mean that the program allocates memory in ways that the recorder does not see.
	if n := q.UnmatchedFrees; n*20 > frees+n {
		lower(ConfidenceMedium, "%s of memory whose allocation was not recorded", units.CountWithNoun(n, "free"))
	}
	if q.UnknownAllocs > 0 {
		lower(ConfidenceMedium, "%s with an unknown address", units.CountWithNoun(q.UnknownAllocs, "allocation"))
	}
	return level, reasons
}

// ConfidenceText returns a confidence level and its reasons as part of a sentence.
func ConfidenceText(level string, reasons []string) string {
	if len(reasons) == 0 {
		return "confidence " + level
	}
	return "confidence " + level + ": " + strings.Join(reasons, ", ")
}

// isLate reports whether first calls of a process are missing.
func (q *Quality) isLate() bool { return q.LateProcesses > 0 || q.MissedEvents > 0 }
