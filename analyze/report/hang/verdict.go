package hang

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// HangState is the state of a thread or process at the end of the window. Smaller values are worse.
type HangState int

// States; stateDescription defines them.
const (
	StateHanging HangState = iota
	StatePolling
	StateWaiting
	StateIdle
	StateAlive
	StateEnded
	stateCount
)

// String returns the name of the state, a value of the column verdict.
func (s HangState) String() string {
	return [...]string{"hanging", "polling", "waiting", "idle", "alive", "ended"}[s]
}

// stateNames returns the names of the states, worst first.
func stateNames() (list []string) {
	for s := range stateCount {
		list = append(list, s.String())
	}
	return list
}

// Limits for the classification of threads.
const (
	// minSlowdownFactor is the factor by which an open call or a pause must exceed the longest
	// earlier one. It separates hangs from slow work.
	minSlowdownFactor = 3
	// maxWaitNextToOthersNs is the longest wait, ns, of a thread while others make calls. Helper threads continue when
	// the main thread hangs.
	maxWaitNextToOthersNs = 20_000_000_000
	// minPollsPerSecond is the rate of queries from which a program without other calls counts as
	// polling. Watchdogs query ten times per second.
	minPollsPerSecond = 100
	// minBusyCalls and minBusyCallsPerSecond are the least calls, in all and per second, of a thread that was
	// busy before it went silent.
	minBusyCalls, minBusyCallsPerSecond = 10, 1.0
	// minGPUBusyPct is the utilization, %, from which a GPU is busy. maxGPUIdlePct is the one below which it is
	// idle.
	minGPUBusyPct, maxGPUIdlePct = 90, 5
)

// threadVerdict is the state of a thread with its evidence and confidence.
type threadVerdict struct {
	State        HangState
	history      *threadHistory
	Call         *callRef // the outermost open call, or the last call
	silentNs     int64    // time without progress until the end of the window
	perSec       float64  // calls per second before the silent time
	pauseNs      int64    // longest pause before the silent time
	unrecordedNs int64    // part of silentNs in which launches were not recorded
	evidence     []string
	level        string
	reasons      []string
}

// addEvidence adds a sentence to the evidence of the verdict.
func (v *threadVerdict) addEvidence(format string, args ...any) {
	v.evidence = append(v.evidence, fmt.Sprintf(format, args...))
}

// lowerConfidence lowers the confidence to a level and adds the reason.
func (v *threadVerdict) lowerConfidence(to, format string, args ...any) {
	if v.level == report.ConfidenceHigh || to == report.ConfidenceLow {
		v.level = to
	}
	v.reasons = append(v.reasons, fmt.Sprintf(format, args...))
}

// classifyThread returns the state of a thread. The first condition that holds applies:
//
//	ended    its process has ended
//	hanging  it has been in a call for at least LongNs, and three times as long as any
//	         earlier call of the same function
//	waiting  it has been in a call for at least LongNs, but earlier calls took as long, or other
//	         threads of the process make progress and it is less than maxWaitNextToOthersNs
//	alive    it has been in a call for less than LongNs, or its last call ended less than
//	         LongNs ago, or an earlier pause was as long
//	polling  it makes no recorded call, but it may have made the counted queries
//	idle     it was busy before, and makes no calls now
func (s *Scan) classifyThread(l *threadHistory, polls *pollCounts) threadVerdict {
	j := threadVerdict{
		history: l, level: report.ConfidenceHigh, Call: l.outermostOpenCall(),
		silentNs: s.EndNs - l.LastNs, pauseNs: l.active.longestPause(s.Window),
	}
	if j.Call == nil {
		j.Call = &l.last
	}
	if busy := l.LastNs - l.FirstNs; busy > 0 {
		j.perSec = float64(l.calls) / (float64(busy) / 1e9)
	}
	if l.launched {
		j.unrecordedNs = s.T.UnrecordedLaunchNs(l.LastNs, s.EndNs)
	}
	exitNs := s.T.Facts.Processes[l.Pid].ExitNs
	switch {
	case exitNs > 0 && exitNs <= s.EndNs:
		j.State = StateEnded
		j.addEvidence("its process ended %s earlier", units.FormatDuration(s.EndNs-exitNs))
		return j
	case j.Call.isOpen():
		s.classifyOpenCall(&j)
	case j.silentNs < s.longNs:
		j.State = StateAlive
		j.addEvidence("its last call ended %s earlier", units.FormatDuration(j.silentNs))
	case j.silentNs-j.unrecordedNs < s.longNs:
		j.State = StateAlive
		j.addEvidence("no call for %s, but launches were not recorded for %s of that time "+
			"(--max-overhead)", units.FormatDuration(j.silentNs), units.FormatDuration(j.unrecordedNs))
		j.lowerConfidence(report.ConfidenceLow, "launches were not recorded for most of the silent time")
	default:
		s.classifySilentThread(&j, polls)
	}
	if j.State != StateAlive {
		s.lowerConfidenceForLosses(&j)
	}
	return j
}

// classifyOpenCall sets the state of a thread that is in a call.
func (s *Scan) classifyOpenCall(j *threadVerdict) {
	age := s.EndNs - j.Call.startNs
	d, p := s.Details(j.Call), j.history.process
	longest := p.longest[d.name]
	j.silentNs = age
	switch {
	case age < s.longNs:
		j.State = StateAlive
		j.addEvidence("in %s for %s", d.name, units.FormatDuration(age))
		return
	case age < minSlowdownFactor*longest:
		j.State = StateWaiting
		j.addEvidence(
			"in %s for %s; earlier calls of the function took up to %s",
			d.name,
			units.FormatDuration(age),
			units.FormatDuration(longest),
		)
	case p.lastNs > j.Call.startNs && s.EndNs-p.lastNs < s.longNs:
		j.State = StateWaiting
		j.addEvidence(
			"in %s for %s, while other threads of the process make progress",
			d.name,
			units.FormatDuration(age),
		)
		if age >= maxWaitNextToOthersNs {
			j.State = StateHanging
			j.lowerConfidence(report.ConfidenceMedium, "other threads of the process make progress")
		}
	case longest > 0:
		j.addEvidence(
			"in %s for %s, %.0f times as long as any earlier call of the function (%s)",
			d.name,
			units.FormatDuration(age),
			float64(age)/float64(longest),
			units.FormatDuration(longest),
		)
	default:
		j.addEvidence("in %s for %s; earlier calls of the function took less than a millisecond", d.name,
			units.FormatDuration(age))
	}
	if inner := len(j.history.open) - 1; inner > 0 {
		j.addEvidence("with %s nested in it", units.CountWithNoun(int64(inner), "more call"))
	}
}

// classifySilentThread sets the state of a thread that is in no call and made none for at least
// LongNs.
func (s *Scan) classifySilentThread(j *threadVerdict, polls *pollCounts) {
	unseen := j.Call.flags&format.FlagNoReturn != 0
	wasBusy := j.history.calls >= minBusyCalls && j.perSec >= minBusyCallsPerSecond
	switch {
	case polls.processes[j.history.Pid] && j.history == polls.suspects[j.history.Pid]:
		j.State = StatePolling
		j.addEvidence(
			"%s queries of events and streams per second, and no other call",
			units.FormatCount(units.RoundInt(polls.perSec)),
		)
		if len(polls.processes) > 1 {
			j.lowerConfidence(
				report.ConfidenceLow,
				"queries are counted for all processes together, and %d of them may have polled",
				len(polls.processes),
			)
		} else if len(s.Processes) > 1 {
			j.lowerConfidence(report.ConfidenceMedium, "queries are counted for all processes together")
		}
	case j.silentNs-j.unrecordedNs < minSlowdownFactor*j.pauseNs && !unseen:
		j.State = StateAlive
		silent, pause := units.FormatDuration(j.silentNs), units.FormatDuration(j.pauseNs)
		j.addEvidence("no call for %s, but an earlier pause was %s long", silent, pause)
	default:
		j.State = StateIdle
		j.addEvidence("no call for %s", units.FormatDuration(j.silentNs))
		if !wasBusy {
			j.lowerConfidence(
				report.ConfidenceMedium,
				"it made only %s before",
				units.CountWithNoun(j.history.calls, "call"),
			)
		}
	}
	if wasBusy && j.State != StateAlive {
		j.addEvidence(
			"%s calls per second before that, with pauses of at most %s",
			units.FormatRate(j.perSec),
			units.FormatDuration(j.pauseNs+int64(float64(s.Window.DurNs())/windowPartCount)),
		)
	}
	if j.unrecordedNs > 0 {
		j.addEvidence(
			"launches were not recorded for %s of that time (--max-overhead)",
			units.FormatDuration(j.unrecordedNs),
		)
		j.lowerConfidence(report.ConfidenceMedium, "launches were not recorded for a part of the silent time")
	}
	if unseen {
		name := s.Details(j.Call).name
		j.addEvidence("it may still be in its last call, %s, whose return gpurec does not record", name)
		j.lowerConfidence(report.ConfidenceMedium, "the last call is a launch without a recorded return")
	}
}

// lowerConfidenceForLosses lowers the confidence because of lost calls and damaged or missing parts
// of the recording.
func (s *Scan) lowerConfidenceForLosses(j *threadVerdict) {
	from := s.EndNs - j.silentNs
	var lostThen, lostAll int64
	for _, l := range s.T.Facts.Lost {
		lostAll += l.Calls
		if units.EndOfRange(l.StartNs, l.DurNs) >= from && l.StartNs <= s.EndNs {
			lostThen += l.Calls
		}
	}
	switch lost := max(s.T.Rec.Meta.Totals().Lost, lostAll); {
	case lostThen > 0:
		j.lowerConfidence(report.ConfidenceLow, "%s lost during the silent time", units.CountWithNoun(lostThen, "call"))
	case lost > 0 && lostAll == 0:
		j.lowerConfidence(report.ConfidenceMedium, "%s lost at unknown times", units.CountWithNoun(lost, "call"))
	}
	if n := len(s.T.Rec.Damaged); n > 0 {
		j.lowerConfidence(report.ConfidenceLow, "%s damaged", units.CountWithNoun(int64(n), "segment"))
	}
	if !s.T.Rec.Meta.HasEnd() && s.EndNs >= s.T.Scan.LastNs {
		j.lowerConfidence(
			report.ConfidenceLow,
			"the end of the recording is missing, with its open calls and all later calls",
		)
	}
}
