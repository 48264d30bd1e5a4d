package hosttime

import (
	"math"

	"github.com/gpurec/gpurec/format"
)

// unreadable is the fact of messages that are no WaitFact.
var unreadable format.WaitFact

// isBad reports whether row i has impossible values: a negative duration, an unknown state or reason, a
// metric that no counter can have, or an unreadable message.
func (r *groupReader) isBad(i int) bool {
	if r.dur[i] < 0 {
		return true
	}
	switch r.kind.At(i) {
	case format.KindWait, format.KindThreadState:
		f := r.fact(i)
		return !knownStates[r.name.At(i)] || !knownReasons[f.Reason] || f == &unreadable
	case format.KindHost:
		return isBadMetric(r.value[i])
	}
	return false
}

// isBadMetric reports whether a metric cannot have a value.
func isBadMetric(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) || v < 0 }

// knownStates are the states of threads.
var knownStates = map[string]bool{
	format.StateRunning: true, format.StateRunnable: true, format.StateSleeping: true,
	format.StateUninterruptible: true, format.StateStopped: true, format.StateTraced: true,
}

// knownReasons are the reasons of waits. The empty reason is an unknown one.
var knownReasons = map[string]bool{
	"": true, format.ReasonSleep: true, format.ReasonGIL: true, format.ReasonLock: true,
	format.ReasonCondition: true, format.ReasonImportLock: true, format.ReasonPipe: true,
	format.ReasonNetwork: true, format.ReasonFile: true, format.ReasonPageFault: true, format.ReasonPoll: true,
	format.ReasonChild: true, format.ReasonCUDA: true, format.ReasonStopped: true, format.ReasonRunQueue: true,
	format.ReasonThrottled: true,
}
