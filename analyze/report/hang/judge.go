package hang

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// State is what a thread or process was doing at the end of the window.
type State int

// States, the worst first. The column verdict explains them.
const (
	Hanging State = iota
	Polling
	Waiting
	Idle
	Alive
	Ended
	numStates
)

// String returns the name of the state, as in the column verdict.
func (s State) String() string {
	return [...]string{"hanging", "polling", "waiting", "idle", "alive", "ended"}[s]
}

// stateNames returns the names of the states, the worst first.
func stateNames() (list []string) {
	for s := range numStates {
		list = append(list, s.String())
	}
	return list
}

const (
	// patience is the factor by which a call or pause must exceed the longest one before it. It
	// separates hangs from slow work.
	patience = 3
	// pollsPerSecond is the least number of queries a second that makes a program without other
	// calls polling. Watchdogs query ten times a second.
	pollsPerSecond = 100
	// A thread that made at least busyCalls, and busyPerSecond calls a second, was busy before it
	// went silent.
	busyCalls, busyPerSecond = 10, 1.0
	// gpuBusyPct and gpuIdlePct bound the utilization of a GPU that works all the time, and of one
	// that does not work at all.
	gpuBusyPct, gpuIdlePct = 90, 5
)

// threadVerdict is the state of a thread with its evidence.
type threadVerdict struct {
	State    State
	life     *threadLife
	Call     *callRef // the outermost open call, or the last one
	silentNs int64    // time without progress until the moment
	perSec   float64  // calls a second before that
	pauseNs  int64    // longest pause before that
	blindNs  int64    // of silentNs, time in which launches were not recorded
	evidence []string
	level    string
	reasons  []string
}

// say adds a sentence to the evidence.
func (j *threadVerdict) say(format string, args ...any) {
	j.evidence = append(j.evidence, fmt.Sprintf(format, args...))
}

// lower lowers the confidence to a level, for a reason.
func (j *threadVerdict) lower(to, format string, args ...any) {
	if j.level == report.ConfidenceHigh || to == report.ConfidenceLow {
		j.level = to
	}
	j.reasons = append(j.reasons, fmt.Sprintf(format, args...))
}

// judgeThread decides what a thread was doing, in this order:
//
//	ended    its process had ended
//	hanging  it is in a call for at least LongNs, and three times as long as any call of that
//	         function before
//	waiting  it is in a call for that long, but such calls have taken long before, or its process
//	         goes on in other threads
//	alive    it is in a call for less than that, or its last call ended less than LongNs ago, or it
//	         has paused that long before
//	polling  it makes no call that is recorded, but queries are counted that can be its own
//	idle     it was busy, and makes no calls any more
func (s *Scan) judgeThread(l *threadLife, polls *pollCounts) threadVerdict {
	j := threadVerdict{
		life: l, level: report.ConfidenceHigh, Call: l.outermost(),
		silentNs: s.EndNs - l.LastNs, pauseNs: l.active.longestPause(s.Window),
	}
	if j.Call == nil {
		j.Call = &l.last
	}
	if busy := l.LastNs - l.FirstNs; busy > 0 {
		j.perSec = float64(l.calls) / (float64(busy) / 1e9)
	}
	if l.launched {
		j.blindNs = s.T.GapNs(l.LastNs, s.EndNs)
	}
	exitNs := s.T.Facts.Processes[l.Pid].ExitNs
	switch {
	case exitNs > 0 && exitNs <= s.EndNs:
		j.State = Ended
		j.say("its process ended %s before", units.Duration(s.EndNs-exitNs))
		return j
	case j.Call.isOpen():
		s.judgeOpen(&j)
	case j.silentNs < s.longNs:
		j.State = Alive
		j.say("its last call ended %s before", units.Duration(j.silentNs))
	case j.silentNs-j.blindNs < s.longNs:
		j.State = Alive
		j.say("no call for %s, but for %s of that its launches were not recorded "+
			"(--max-overhead)", units.Duration(j.silentNs), units.Duration(j.blindNs))
		j.lower(report.ConfidenceLow, "launches were not recorded for most of the silent time")
	default:
		s.judgeSilent(&j, polls)
	}
	if j.State != Alive {
		s.doubt(&j)
	}
	return j
}

// judgeOpen judges a thread that is in a call.
func (s *Scan) judgeOpen(j *threadVerdict) {
	age := s.EndNs - j.Call.startNs
	d, p := s.Details(j.Call), j.life.process
	longest := p.longest[d.name]
	j.silentNs = age
	switch {
	case age < s.longNs:
		j.State = Alive
		j.say("in %s for %s", d.name, units.Duration(age))
		return
	case age < patience*longest:
		j.State = Waiting
		j.say(
			"in %s for %s; calls of it have taken up to %s before",
			d.name,
			units.Duration(age),
			units.Duration(longest),
		)
	case p.lastNs > j.Call.startNs && s.EndNs-p.lastNs < s.longNs:
		j.State = Waiting
		j.say("in %s for %s, while other threads of the process go on", d.name, units.Duration(age))
	case longest > 0:
		j.say(
			"in %s for %s, %.0f times as long as any before (%s)",
			d.name,
			units.Duration(age),
			float64(age)/float64(longest),
			units.Duration(longest),
		)
	default:
		j.say("in %s for %s; none of the process's calls of it that returned took a "+
			"millisecond", d.name, units.Duration(age))
	}
	if inner := len(j.life.open) - 1; inner > 0 {
		j.say("with %s inside of it", units.Plural(int64(inner), "more call"))
	}
}

// judgeSilent judges a thread that is in no call and made none for LongNs or longer.
func (s *Scan) judgeSilent(j *threadVerdict, polls *pollCounts) {
	unseen := j.Call.flags&format.FlagNoReturn != 0
	wasBusy := j.life.calls >= busyCalls && j.perSec >= busyPerSecond
	switch {
	case polls.by[j.life.Pid] && j.life == polls.suspects[j.life.Pid]:
		j.State = Polling
		j.say(
			"%s queries of events and streams a second are counted, and no other call",
			units.Count(units.RoundInt(polls.perSec)),
		)
		if len(polls.by) > 1 {
			j.lower(
				report.ConfidenceLow,
				"queries are counted for all processes together, and %d can be the one",
				len(polls.by),
			)
		} else if len(s.Processes) > 1 {
			j.lower(report.ConfidenceMedium, "queries are counted for all processes together")
		}
	case j.silentNs-j.blindNs < patience*j.pauseNs && !unseen:
		j.State = Alive
		j.say("no call for %s, but it has paused for %s before", units.Duration(j.silentNs), units.Duration(j.pauseNs))
	default:
		j.State = Idle
		j.say("no call for %s", units.Duration(j.silentNs))
		if !wasBusy {
			j.lower(report.ConfidenceMedium, "it made no more than %s before", units.Plural(j.life.calls, "call"))
		}
	}
	if wasBusy && j.State != Alive {
		j.say(
			"%s calls a second before that, without a pause of more than %s",
			units.RateText(j.perSec),
			units.Duration(j.pauseNs+int64(float64(s.Window.DurNs())/activityParts)),
		)
	}
	if j.blindNs > 0 {
		j.say("for %s of it launches were not recorded (--max-overhead)", units.Duration(j.blindNs))
		j.lower(report.ConfidenceMedium, "launches were not recorded for a part of the silent time")
	}
	if unseen {
		j.say("it may be inside of its last call, %s, of which the return was not to be "+
			"recorded", s.Details(j.Call).name)
		j.lower(report.ConfidenceMedium, "the last call is a launch that was written at its entry")
	}
}

// doubt lowers the confidence for lost calls and damaged or missing parts of the recording.
func (s *Scan) doubt(j *threadVerdict) {
	from := s.EndNs - j.silentNs
	var lostThen, lostAll int64
	for _, l := range s.T.Facts.Lost {
		lostAll += l.Calls
		if units.EndOf(l.StartNs, l.DurNs) >= from && l.StartNs <= s.EndNs {
			lostThen += l.Calls
		}
	}
	switch lost := max(s.T.Rec.Meta.Totals().Lost, lostAll); {
	case lostThen > 0:
		j.lower(report.ConfidenceLow, "%s lost in the silent time", units.Plural(lostThen, "call"))
	case lost > 0 && lostAll == 0:
		j.lower(report.ConfidenceMedium, "%s lost at unknown times", units.Plural(lost, "call"))
	}
	if n := len(s.T.Rec.Damaged); n > 0 {
		j.lower(report.ConfidenceLow, "%s damaged", units.Plural(int64(n), "segment"))
	}
	if s.T.Rec.Meta.Complete != format.CompleteYes && s.EndNs >= s.T.Scan.LastNs {
		j.lower(report.ConfidenceLow, "the recording is cut off: calls that were open at its end, and what came "+
			"after, are not in it")
	}
}
