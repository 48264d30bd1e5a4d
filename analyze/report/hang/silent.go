package hang

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/threadstate"
	"github.com/gpurec/gpurec/analyze/units"
)

// A process that was already hung when recording started makes no recorded call, because its open
// call began before. If the recording has the stacks of its threads, the report names the CUDA call,
// the line and the reason. Else it calls the process silent and gives advice on other tools.

// processesWithoutCalls returns the recorded processes that made no call and had not ended.
func (s *Scan) processesWithoutCalls() (list []int32) {
	if len(s.Filter.Tids)+len(s.Filter.Devices)+len(s.Filter.Streams) > 0 {
		return nil
	}
	for _, pid := range slices.Sorted(maps.Keys(s.T.Facts.Processes)) {
		if len(s.Filter.Pids) > 0 && !slices.Contains(s.Filter.Pids, pid) {
			continue
		}
		if exitNs := s.T.Facts.Processes[pid].ExitNs; s.Processes[pid] == nil && (exitNs == 0 || exitNs > s.EndNs) {
			list = append(list, pid)
		}
	}
	return list
}

// pidLabels returns the labels of processes, separated by commas.
func (s *Scan) pidLabels(pids []int32) string {
	var labels []string
	for _, pid := range pids {
		labels = append(labels, s.T.PidLabel(pid))
	}
	return strings.Join(labels, ", ")
}

// silentResult returns the result and the advice for a recording in which no process made a call, or in which
// processes without calls hang.
func (s *Scan) silentResult(
	silent []int32, verdicts []SilentVerdict, polls *pollCounts, groups []threadstate.Group,
) (result, advice string) {
	if len(silent) == 0 {
		return "no call was recorded, and all recorded processes ended", ""
	}
	pid, n := silent[0], len(silent)
	if len(groups) > 0 {
		pid = groups[0].Members[0].Snapshot.Pid
	}
	hanging := OfState(verdicts, StateHanging)
	if len(hanging) > 0 {
		waiting := slices.IndexFunc(hanging, func(v SilentVerdict) bool { return !v.IsAwaited })
		pid, n = hanging[max(0, waiting)].Snapshot.Pid, len(hanging)
	}
	who := "process " + s.T.PidLabel(pid)
	if n > 1 {
		who = fmt.Sprintf("%d processes, such as %s,", n, s.T.PidLabel(pid))
	}
	why := s.describeSilent(pid)
	if why == "" {
		advice = fmt.Sprintf("run sudo gpurec stacks -p %d for the stacks of all its threads; "+
			"next time record before the hang: gpurec record -p PID --ring 10m", pid)
	}
	without := fmt.Sprintf("%s made no CUDA call in the recorded %s: ", who, units.FormatDuration(s.Window.DurNs()))
	switch lost := s.T.Rec.Meta.Totals().Lost; {
	case len(hanging) > 0:
		result = "hanging: " + without + why
	case lost > 0:
		result = fmt.Sprintf("unknown: no call was recorded, and %s lost", units.CountWithNoun(lost, "call"))
	case polls.perSec >= minPollsPerSecond:
		result = fmt.Sprintf("polling: %s made no CUDA call except %s queries of events and streams per second: the "+
			"awaited work began before the recording", who, units.FormatCount(units.RoundInt(polls.perSec)))
	case why != "":
		result = "silent: " + without + why
	default:
		result = "silent: " + without + "a call that began before the recording may hang"
	}
	return result, advice
}

// describeSilent returns what a process without calls does, "" if the recording does not say.
func (s *Scan) describeSilent(pid int32) string {
	snapshot, t := s.mainThread(pid, 0)
	if t == nil {
		return ""
	}
	text := snapshot.Describe(t, s.sinceNs(t))
	if wakers := s.describeWakers(t); wakers != "" {
		text += "; " + wakers
	}
	return text
}
