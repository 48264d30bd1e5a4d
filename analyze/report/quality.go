package report

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// LostMemory is the class of calls whose loss makes the live memory wrong, as in Meta.Calls and in rows
// of lost calls.
const LostMemory = "memory"

// LostAllocator is the class of events of caching allocators, as in Meta.Calls.
const LostAllocator = "allocator"

// Quality is what a recording does not have, and how far that can make a report wrong.
type Quality struct {
	Events           int64 // calls recorded
	LostEvents       int64 // calls lost
	LostMemoryEvents int64 // of those, calls that allocate or free
	DroppedEvents    int64 // calls older than what a ring keeps
	UnmatchedFrees   int64
	LostFrees        int64
	OpenCalls        int64
	AbandonedCalls   int64
	UnknownAllocs    int64 // allocations whose pointer is not known
	TruncatedTail    bool
	DamagedSegments  int64
	// UnsymbolizedFramesPct is the share of stored frames without a function name.
	UnsymbolizedFramesPct float64
	// StackShares is the share of calls by state of their stack, in percent of those
	// that can have one of their own: nested calls have that of the outer call.
	StackShares []StackShare
	// StacksChecked calls were unwound although their stack could be inferred; of
	// these, StacksWrong had another one.
	StacksChecked int64
	StacksWrong   int64
	// Inferred is what the recorder measured of all inferred stacks.
	Inferred format.StackInference
	// AllocatorEvents are the recorded events of caching allocators, LostAllocatorEvents those that
	// were lost. Events has neither.
	AllocatorEvents     int64
	LostAllocatorEvents int64
	// At AllocatorCompared events the model's bytes were compared with the allocator's own totals.
	// At AllocatorDisagreed of them they differed, by up to AllocatorWorstBytes.
	AllocatorCompared, AllocatorDisagreed, AllocatorWorstBytes int64
	AllocatorUnmatchedFrees, AllocatorLostFrees                int64
	// AllocatorsByReports is the number of processes with an allocator of which only the reports
	// are recorded.
	AllocatorsByReports int64
	// Classes are the classes of calls that were recorded; none: all.
	Classes  []string
	Launches sampling.Coverage
	// GPUTiming is the source of GPU times: "none" so far.
	GPUTiming string
}

// Facts returns the quality block as facts. Those of rings, of allocators known by reports, of
// --record and of sampled launches are only there where they apply.
func (q *Quality) Facts() []Fact {
	facts := Facts(QualityColumns, Values{
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
		"stacks_complete_pct":       q.stacksPct(format.StackComplete),
		"stacks_inferred_pct":       q.stacksPct(format.StackInferred),
		"stacks_truncated_pct":      q.stacksPct(format.StackTruncated),
		"stacks_frame_pointer_pct":  q.stacksPct(format.StackFramePointer),
		"stacks_none_pct":           q.stacksPct(format.StackNone),
		"stacks_checked":            q.StacksChecked,
		"stacks_wrong":              q.StacksWrong,
		"stacks_wrong_pct":          sampling.ErrorPct(&q.Inferred),
	})
	if q.DroppedEvents > 0 {
		facts = append(facts, Fact{droppedColumn, q.DroppedEvents})
	}
	if q.AllocatorsByReports > 0 {
		facts = append(facts, Fact{reportsColumn, q.AllocatorsByReports})
	}
	if len(q.Classes) > 0 {
		facts = append(facts, Fact{classesColumn, strings.Join(q.Classes, " ")})
	}
	return append(facts, launchSamplingFacts(&q.Launches)...)
}

// stacksPct returns the share of calls whose stack is in a state, nil if no call can have one.
func (q *Quality) stacksPct(status string) any {
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

// String returns the quality block as one line: the events and lost events, and other numbers that
// are not as they should be.
func (q *Quality) String() string {
	parts := []string{fmt.Sprintf("%s events, %s lost", units.Count(q.Events), units.Count(q.LostEvents))}
	for _, f := range q.Facts() {
		if f.Title == "" || f.Key == "events" || f.Key == "lost_events" {
			continue
		}
		switch v := f.Value.(type) {
		case int64:
			if v > 0 {
				parts = append(parts, units.Count(v)+" "+f.Title)
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
	if len(q.Classes) > 0 {
		parts = append(parts, "only "+units.Enumerated(q.Classes)+" calls recorded")
	}
	var stacks []string
	for _, s := range q.StackShares {
		stacks = append(stacks, fmt.Sprintf("%.0f%% %s", s.Pct, units.OneLine(s.Status)))
	}
	if len(stacks) > 0 {
		parts = append(parts, "stacks "+strings.Join(stacks, " "))
	}
	if pct := sampling.ErrorPct(&q.Inferred); pct != nil {
		parts = append(
			parts,
			fmt.Sprintf(
				"inferred stacks %.2f%% wrong (%s of %s checked)",
				pct,
				units.Count(q.StacksWrong),
				units.Count(q.StacksChecked),
			),
		)
	} else if pct := q.stacksPct(format.StackInferred); pct != nil && pct != 0.0 {
		parts = append(parts, "inferred stacks not checked")
	}
	if text := q.Launches.Text(); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(append(parts, "GPU timing "+q.GPUTiming), ", ")
}

// StackShare is the share of calls whose stack is in one state, in percent.
type StackShare struct {
	Status string
	Pct    float64
}

// Notes returns sentences on what the recording lacks, for reports on caching allocators.
func (q *Quality) Notes() (list []string) {
	if q.AllocatorsByReports > 0 {
		list = append(list, "PyTorch's allocator is known by its reports only: "+limitsText)
	}
	if q.AllocatorDisagreed == 0 {
		return list
	}
	return append(list, fmt.Sprintf(
		"what PyTorch's allocator counts itself differs from what its events come to at "+
			"%s of %s, by up to %s: events were lost, or its version works in another way",
		units.Count(
			q.AllocatorDisagreed,
		),
		units.Plural(q.AllocatorCompared, "event"),
		units.Bytes(q.AllocatorWorstBytes),
	))
}

// An allocator that is known by its reports only (format.SourceReports) has blocks and totals, but
// no segments, pools and streams. All its blocks are strays, like blocks in segments from before
// the recording. A block has its size, not the requested one. A free ends it at once. Reports come
// after the totals have changed.

// limitsText is the limits of such an allocator, for a reader.
const limitsText = "bytes are sizes of blocks, what was asked for rounded up; segments and what is unused in them, " +
	"streams, pools and requests that failed are not known"

// Confidence levels of a verdict.
const (
	ConfidenceHigh   = "high"
	ConfidenceMedium = "medium"
	ConfidenceLow    = "low"
)

// Confidence returns how far verdicts about memory can be trusted, and what lowers that. frees is
// the number of frees in the recording.
func (q *Quality) Confidence(frees int64) (level string, reasons []string) {
	level = ConfidenceHigh
	lower := func(to, format string, args ...any) {
		if level == ConfidenceHigh || to == ConfidenceLow {
			level = to
		}
		reasons = append(reasons, fmt.Sprintf(format, args...))
	}
	if n := q.LostMemoryEvents; n > 0 {
		// One lost call in a thousand can still hide what a small site does.
		if n*1000 > q.Events {
			lower(ConfidenceLow, "%s calls that allocate or free were lost", units.Count(n))
		} else {
			lower(ConfidenceMedium, "%s calls that allocate or free were lost", units.Count(n))
		}
	}
	if n := q.LostAllocatorEvents; n > 0 {
		to := ConfidenceMedium
		if n*1000 > q.AllocatorEvents {
			to = ConfidenceLow
		}
		lower(to, "%s of the allocator were lost", units.Plural(n, "event"))
	}
	if n := q.AllocatorDisagreed; n > 0 {
		to := ConfidenceMedium
		if n*1000 > q.AllocatorCompared {
			to = ConfidenceLow
		}
		lower(to, "the allocator counts other bytes than its events come to, %s", units.Plural(n, "time"))
	}
	if n := q.AllocatorLostFrees; n > 0 {
		lower(ConfidenceMedium, "%s of the allocator were not recorded", units.Plural(n, "free"))
	}
	if q.LostFrees > 0 {
		lower(ConfidenceMedium, "%s frees were not recorded", units.Count(q.LostFrees))
	}
	if q.DamagedSegments > 0 {
		lower(ConfidenceLow, "%s segments are damaged", units.Count(q.DamagedSegments))
	}
	if q.TruncatedTail {
		lower(ConfidenceMedium, "the recording was cut off")
	}
	// Some are normal when a running program is recorded. Many mean that memory is allocated in
	// ways that the recorder does not see.
	if n := q.UnmatchedFrees; n*20 > frees+n {
		lower(ConfidenceMedium, "%s frees of memory that was not seen allocated", units.Count(n))
	}
	if q.UnknownAllocs > 0 {
		lower(ConfidenceMedium, "%s allocations with unknown pointer", units.Count(q.UnknownAllocs))
	}
	return level, reasons
}

// ConfidenceText returns a confidence level with its reasons as part of a sentence.
func ConfidenceText(level string, reasons []string) string {
	if len(reasons) == 0 {
		return "confidence " + level
	}
	return "confidence " + level + ": " + strings.Join(reasons, ", ")
}

// QualityColumns are the facts of the quality block that every report has.
var QualityColumns = []Column{
	{"events", "events", UnitCount, "calls in the recording"},
	{"lost_events", "lost", UnitCount, "calls that happened but could not be recorded"},
	{"lost_memory_events", "lost memory calls", UnitCount, "lost calls that allocate or free: what is live may be " +
		"wrong by them"},
	{"unmatched_frees", "unmatched frees", UnitCount, "frees of memory whose allocation is not in the recording: " +
		"allocated before it began, or lost"},
	{"lost_frees", "lost frees", UnitCount, "allocations that returned a pointer still counted as live: its free " +
		"was not recorded"},
	{"open_calls", "open", UnitCount, "calls that had not returned when the recording ended"},
	{"abandoned_calls", "abandoned", UnitCount, "calls whose return was never seen although the thread went on"},
	{"unknown_allocs", "unknown allocs", UnitCount, "allocations whose pointer is not known (open, abandoned or " +
		"unreadable): not in any number of live bytes"},
	{"truncated_tail", "cut off", UnitRatio, "true if the recorder did not finish the recording: its end may be " +
		"missing"},
	{"damaged_segments", "damaged segments", UnitCount, "segments that could not be read and were left out"},
	{"unsymbolized_frames_pct", "frames without name", UnitPercent, "share of stored stack frames without a " +
		"function name"},
	{"allocator_events", "allocator events", UnitCount, "events of caching allocators (PyTorch's) in the recording; " +
		"they are in no other number here"},
	{"lost_allocator_events", "lost allocator events", UnitCount, "events of caching allocators that could not be " +
		"recorded: what is live may be wrong by them"},
	{"allocator_unmatched_frees", "", UnitCount, "frees of blocks that were allocated before the recording began, " +
		"or whose allocation was lost"},
	{"allocator_lost_frees", "lost allocator frees", UnitCount, "blocks and segments that must have ended, but " +
		"their free was not recorded"},
	{"allocator_compared", "", UnitCount, "events at which the model of the allocator was compared with what the " +
		"allocator counts itself"},
	{"allocator_disagreed", "allocator disagreements", UnitCount, "of those, events where the two had different " +
		"bytes allocated or reserved; the model went on with the allocator's"},
	{"allocator_worst_bytes", "", UnitBytes, "the largest such difference"},
	{"stacks_complete_pct", "", UnitPercent, "share of calls whose stack was unwound to the thread's start, of " +
		"those that can have one of their own (nested calls have that of the outer call); absent without such calls"},
	{"stacks_inferred_pct", "", UnitPercent, "share of calls that were given the stack of an equal-looking call"},
	{"stacks_truncated_pct", "", UnitPercent, "share of calls whose stack ends too early; gpurec analyze stacks " +
		"says why"},
	{"stacks_frame_pointer_pct", "", UnitPercent, "share of calls whose stack was walked by frame pointers: frames " +
		"may be missing"},
	{"stacks_none_pct", "", UnitPercent, "share of calls without a stack"},
	{"stacks_checked", "", UnitCount, "calls that were unwound although their stack could be inferred"},
	{"stacks_wrong", "", UnitCount, "of those, calls that came from another stack than assumed"},
	{"stacks_wrong_pct", "", UnitPercent, "share of inferred stacks that are another call's, estimated from the " +
		"checked ones; absent if none was checked"},
}

// droppedColumn is only there for rings.
var droppedColumn = Column{"dropped_events", "older dropped by the ring", UnitCount, "calls of before the " +
	"recording's start that it dropped to keep only the last part: memory held from then is not known"}

// reportsColumn is only there if an allocator is known by its reports.
var reportsColumn = Column{
	"allocators_by_reports",
	"processes with allocators known by reports only",
	UnitCount,
	"processes of which the recording has what PyTorch's allocator reports to profilers, " +
		"not all that it does: " + limitsText,
}

// classesColumn is only there if not all classes were recorded.
var classesColumn = Column{"recorded_classes", "classes recorded", UnitText, "classes of calls that were recorded " +
	"(--record), with spaces between; absent: all"}
