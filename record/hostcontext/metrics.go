//go:build linux

package hostcontext

import (
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/hostcontext/switches"
)

// threadMetrics are the names of the metrics of a thread, in the order of metricSampler.last.
var threadMetrics = [...]string{
	format.HostRunning, format.HostRunnable, format.HostSleeping, format.HostUninterruptible,
	format.HostSwitches, format.HostMajorFaults,
}

// metricSampler makes rows of a thread's metrics. A counter that does not change has no rows except the first,
// and the one before the next change.
type metricSampler struct {
	began       bool
	atNs        int64 // of the last sample, Unix
	last        [len(threadMetrics)]int64
	isSkipped   [len(threadMetrics)]bool // the last sample has no row
	firstFaults int64
}

// sample returns the rows of a sample. atNs is its time, Unix ns. isLast writes all metrics.
func (s *metricSampler) sample(t *thread, atNs int64, a *switches.Thread, isLast bool) []format.Row {
	var rows []format.Row
	add := func(i int, atNs, value int64) {
		rows = append(rows, format.Row{
			Kind: format.KindHost, Name: threadMetrics[i], StartNs: atNs, Pid: int32(t.pid), Tid: int32(t.tid),
			Value: float64(value),
		})
	}
	faults := int64(0)
	if a.Switches > 0 {
		if s.firstFaults == 0 {
			s.firstFaults = a.MajorFaults + 1
		}
		faults = max(0, a.MajorFaults-s.firstFaults+1)
	}
	now := [...]int64{a.RunningNs, a.RunnableNs, a.SleepingNs, a.UninterruptibleNs, a.Switches, faults}
	for i, value := range now {
		// Time of a present wait may later turn out to be in a run queue. A counter never falls.
		value = max(value, s.last[i])
		if s.began && value == s.last[i] && !isLast && !a.HasEnded {
			s.isSkipped[i] = true
			continue
		}
		if s.isSkipped[i] {
			add(i, s.atNs, s.last[i])
		}
		add(i, atNs, value)
		s.last[i], s.isSkipped[i] = value, false
	}
	s.began, s.atNs = true, atNs
	return rows
}
