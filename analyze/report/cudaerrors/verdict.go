package cudaerrors

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// ErrorClasses are the classes of errors, worst first. They are values of the column "class".
var ErrorClasses = []string{"asynchronous", "memory", "call", "question"}

// ClassOfError returns the class of a failed call. name is the driver function, result its
// CUresult.
func ClassOfError(name string, result int32) string {
	switch {
	case catalog.IsAsynchronousError(result):
		return ErrorClasses[0]
	case result == calls.ResultOutOfMemory:
		return ErrorClasses[1]
	case catalog.IsExpectedQueryFailure(name, result):
		return ErrorClasses[3]
	}
	return ErrorClasses[2]
}

// InvalidFree is a group of failed frees with the same verdict, call sites and result. FailedFree
// and FailedFreeReason are those of the first call.
type InvalidFree struct {
	fault.FailedFree
	fault.FailedFreeReason
	Calls                int64
	LastNs               int64    // start of the last call, Unix ns
	AllocatedAt, FreedAt string   // call sites; "" if unknown
	Level                string   // confidence level
	Reasons              []string // reasons that lower the confidence
	fromStart            bool     // the recording has the first CUDA call of the process
}

// FindInvalidFrees returns the failed frees of a scan that are errors of the program, in groups. It
// sorts by verdict, worst first, and then by number of calls.
func FindInvalidFrees(t *timeline.Timeline, s *Scan, q *report.Quality) ([]InvalidFree, error) {
	found, err := fault.ClassifyFrees(t, s.frees.List)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	type key struct {
		verdict                     fault.FreeVerdict
		allocatedAt, freedAt, right string
		name, site, result          int32
	}
	groups := make(map[key]int)
	var list []InvalidFree
	for i := range found {
		f := InvalidFree{FailedFree: s.frees.List[i], FailedFreeReason: found[i], Calls: 1}
		if f.Verdict == fault.VerdictRefused {
			continue
		}
		f.LastNs = f.StartNs
		if f.Allocated {
			f.AllocatedAt = t.SiteOfOrigin(f.Block.Origin)
		}
		if f.By != origin.NoOrigin {
			f.FreedAt = t.SiteOfOrigin(f.By)
		}
		k := key{f.Verdict, f.AllocatedAt, f.FreedAt, f.Right, f.Name, f.Site, f.Result}
		at, ok := groups[k]
		if !ok {
			groups[k] = len(list)
			list = append(list, f)
			continue
		}
		list[at].Calls++
		list[at].LastNs = max(list[at].LastNs, f.StartNs)
	}
	started, err := ProcessesRecordedFromStart(t)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].fromStart = started[list[i].Pid]
		list[i].setConfidence(q)
	}
	slices.SortStableFunc(list, func(a, b InvalidFree) int {
		return cmp.Or(cmp.Compare(a.Verdict, b.Verdict), cmp.Compare(b.Calls, a.Calls))
	})
	return list, nil
}

// setConfidence sets the confidence and the reasons that lower it.
func (f *InvalidFree) setConfidence(q *report.Quality) {
	f.Level = report.ConfidenceHigh
	lower := func(to, format string, args ...any) {
		if f.Level == report.ConfidenceHigh || to == report.ConfidenceLow {
			f.Level = to
		}
		f.Reasons = append(f.Reasons, fmt.Sprintf(format, args...))
	}
	if n := q.LostMemoryEvents; n > 0 {
		to := report.ConfidenceMedium
		if n*1000 > q.Events {
			to = report.ConfidenceLow
		}
		lower(to, "%s", units.CountWithNoun(n, "lost memory call"))
	}
	if n := q.DamagedSegments; n > 0 {
		lower(report.ConfidenceLow, "%s damaged", units.CountWithNoun(n, "segment"))
	}
	if f.Verdict != fault.VerdictUnknownPointer {
		return
	}
	if !f.fromStart || q.DroppedEvents > 0 {
		lower(report.ConfidenceLow, "the recording began after the process: the memory may be from before")
	}
	if n := q.UnknownAllocs; n > 0 {
		lower(report.ConfidenceMedium, "%s returned an unknown address", units.CountWithNoun(n, "allocation"))
	}
}

// CountInvalidFrees returns the number of invalid frees by the key of Scan.Groups.
func CountInvalidFrees(list []InvalidFree) map[ErrorKey]int64 {
	calls := make(map[ErrorKey]int64)
	for i := range list {
		calls[ErrorKey{list[i].Name, list[i].Site, list[i].Result}] += list[i].Calls
	}
	return calls
}

// CountFreesWithVerdict returns the number of calls with a verdict. fault.VerdictRefused counts all
// calls.
func CountFreesWithVerdict(list []InvalidFree, verdict fault.FreeVerdict) (n int64) {
	for i := range list {
		if verdict == fault.VerdictRefused || list[i].Verdict == verdict {
			n += list[i].Calls
		}
	}
	return n
}

// evidenceText returns a sentence on the block and its earlier calls. name and site are those of
// the free.
func (f *InvalidFree) evidenceText(t *timeline.Timeline, name, site string) string {
	at := func(ns int64) string { return units.FormatDuration(ns - t.RecordingWindow().FromNs) }
	made := "the recording has no allocation of the block"
	switch {
	case f.Allocated && f.Block.IsEarlier():
		made = units.FormatBytes(f.Block.Bytes) + " of PyTorch were allocated before the recording"
	case f.Allocated:
		made = fmt.Sprintf("%s allocated %s at %s with %s (thread %d)", f.AllocatedAt,
			units.FormatBytes(f.Block.Bytes), at(f.Block.SinceNs), t.Origins.FunctionOf(f.Block.Origin),
			t.Origins.List[f.Block.Origin].Tid)
	}
	call := fmt.Sprintf("%s called %s at %s (thread %d)", site, name, at(f.StartNs), f.Tid)
	var text string
	switch f.Verdict {
	case fault.VerdictDoubleFree:
		text = fmt.Sprintf("%s; %s freed it at %s with %s (thread %d); %s, %s later", made, f.FreedAt,
			at(f.AtNs), t.Origins.FunctionOf(f.By), t.Origins.List[f.By].Tid, call,
			units.FormatDuration(max(0, f.StartNs-f.AtNs)))
	case fault.VerdictInsideBlock:
		text = fmt.Sprintf("%s; %s with an address %s after the start of the block; the block stays allocated",
			made, call, units.FormatBytes(f.Offset))
	case fault.VerdictWrongFunction:
		text = fmt.Sprintf("%s; %s; the memory stays allocated until it is freed with %s",
			made, call, f.Right)
	case fault.VerdictContextEnded:
		text = fmt.Sprintf("%s; the end of its context at %s freed it; %s", made, at(f.AtNs), call)
	case fault.VerdictUnknownPointer:
		text = fmt.Sprintf("%s; no recorded call of the process returned this address: %s",
			call, f.possibleOrigins())
	}
	if f.Calls > 1 {
		text += fmt.Sprintf("; the first of %s", units.CountWithNoun(f.Calls, "call"))
	}
	return text + "; " + report.ConfidenceText(f.Level, f.Reasons)
}

// possibleOrigins returns possible explanations of an unknown pointer.
func (f *InvalidFree) possibleOrigins() string {
	if f.Level == report.ConfidenceHigh {
		return "the memory belongs to another process, or CUDA did not allocate it"
	}
	return "the memory was allocated before the recording, or never"
}
