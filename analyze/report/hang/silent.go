package hang

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/units"
)

// A process that was already hung when recording started makes no calls: the call that it is in
// began before the recording. It is reported as silent, with advice where else to look.

// withoutCalls returns the recorded processes that made no call and had not ended.
func (s *Scan) withoutCalls() (list []int32) {
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

// pidLabels returns the labels of processes, with commas between.
func (s *Scan) pidLabels(pids []int32) string {
	var labels []string
	for _, pid := range pids {
		labels = append(labels, s.T.PidLabel(pid))
	}
	return strings.Join(labels, ", ")
}

// silence returns the verdict for a recording in which no process made a call, and the advice.
func (s *Scan) silence(silent []int32, polls *pollCounts) (result, advice string) {
	if len(silent) == 0 {
		return "no call was recorded, and no process is known that runs on", ""
	}
	who, pid := "process "+s.T.PidLabel(silent[0]), silent[0]
	if n := len(silent); n > 1 {
		who = fmt.Sprintf("%d processes, such as %s,", n, s.T.PidLabel(pid))
	}
	advice = fmt.Sprintf("py-spy dump -p %d shows where it is in Python, cat /proc/%d/stack what it waits for in "+
		"the kernel; next time record before it hangs: gpurec record -p PID --ring 10m", pid, pid)
	switch lost := s.T.Rec.Meta.Totals().Lost; {
	case lost > 0:
		result = fmt.Sprintf("not known: no call was recorded, with %s lost", units.Plural(lost, "call"))
	case polls.perSec >= pollsPerSecond:
		result = fmt.Sprintf("polling: %s made no CUDA call but %s queries of events and streams a second: what is "+
			"waited for began before the recording", who, units.Count(units.RoundInt(polls.perSec)))
	default:
		result = fmt.Sprintf("silent: %s made no CUDA call in the %s that were recorded: what hangs since before "+
			"the recording is in a call that was not seen to begin", who, units.Duration(s.Window.DurNs()))
	}
	return result, advice
}
