package change

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// Launches are the launches of a process on a device.
type Launches struct {
	Pid, Device     int32 // Device is the process's CUDA ordinal, or -1
	FirstNs, LastNs int64 // Unix ns
}

// span is the time in which a job works on a subject. Its warm-up is no change of the job.
type span struct {
	query.Window
	warmUpEndNs int64
}

const (
	// maxWarmUpNs and warmUpShare bound the warm-up of a job after its first launch.
	maxWarmUpNs = 30_000_000_000
	warmUpShare = 5 // a fifth of the time
)

// spans have the time of each process and device.
type spans struct {
	all      span
	byPid    map[int32]span
	byDevice map[int32]span // by NVML index; empty if the recording does not map devices
}

// newSpans returns the spans of launches in a window. Without launches, a span is the whole window.
func newSpans(t *timeline.Timeline, w query.Window, launches []Launches) *spans {
	pids, devices := make(map[int32][]Launches), make(map[int32][]Launches)
	for _, l := range launches {
		pids[l.Pid] = append(pids[l.Pid], l)
		if index, ok := t.Facts.NVMLIndexOf(l.Pid, l.Device); ok && l.Device >= 0 {
			devices[index] = append(devices[index], l)
		}
	}
	s := &spans{all: newSpan(t, w, launches), byPid: make(map[int32]span), byDevice: make(map[int32]span)}
	for _, pid := range slices.Sorted(maps.Keys(pids)) {
		s.byPid[pid] = newSpan(t, w, pids[pid])
	}
	for _, index := range slices.Sorted(maps.Keys(devices)) {
		s.byDevice[index] = newSpan(t, w, devices[index])
	}
	return s
}

// of returns the span of a subject. It returns false for a GPU that no recorded process uses.
func (s *spans) of(subject Subject) (span, bool) {
	switch {
	case subject.Pid != 0:
		return cmp.Or(s.byPid[subject.Pid], s.all), true
	case subject.Device >= 0 && len(s.byDevice) > 0:
		found, ok := s.byDevice[subject.Device]
		return found, ok
	}
	return s.all, true
}

// maxTailNs is how long a job may launch nothing at its end: it stores its results, and did not change.
const maxTailNs = 5_000_000_000

// newSpan returns the span of some launches. It begins with the first launch. It ends with the last one if
// all processes have ended, or if the window ends soon after it, and with the window otherwise.
func newSpan(t *timeline.Timeline, w query.Window, launches []Launches) span {
	s := span{Window: w}
	if len(launches) == 0 {
		s.warmUpEndNs = s.FromNs
		return s
	}
	first, last, hasEnded, isLate := launches[0].FirstNs, launches[0].LastNs, true, true
	for _, l := range launches {
		first, last = min(first, l.FirstNs), max(last, l.LastNs)
		hasEnded = hasEnded && t.Facts.Processes[l.Pid].ExitNs > 0
		isLate = isLate && isRecordedLate(t, l.Pid)
	}
	s.FromNs = max(s.FromNs, first)
	if hasEnded || s.ToNs-last < maxTailNs {
		s.ToNs = min(s.ToNs, last)
	}
	s.ToNs = max(s.FromNs, s.ToNs)
	s.warmUpEndNs = s.FromNs
	if !isLate {
		s.warmUpEndNs += min(maxWarmUpNs, s.DurNs()/warmUpShare)
	}
	return s
}

// isRecordedLate reports whether the first calls of a process are missing: it may have warmed up before.
func isRecordedLate(t *timeline.Timeline, pid int32) bool {
	for i := range t.Facts.Beginnings {
		if t.Facts.Beginnings[i].Pid == pid {
			return true
		}
	}
	return false
}
