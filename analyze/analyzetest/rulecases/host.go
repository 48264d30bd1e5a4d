package rulecases

import (
	"encoding/json"
	"slices"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/format"
)

// hostStack is the number of the stack of rows of class host.
const hostStack = 77

// addHost adds rows of class host: between two launches of each step, the thread does what row says for a
// time, and runs otherwise. Without samples of the GPU, gaps between launches count.
func addHost(recording *analyzetest.TestRecording, lengthNs int64, row format.Row, library ...string) {
	recording.RemoveRows(func(r *format.Row) bool { return r.Kind == format.KindNVML })
	recording.AddRow(format.Row{
		Kind: format.KindNote, Name: format.NoteHost, StartNs: analyzetest.Epoch, Device: -1,
		Message: `{"mode":"auto","sample_hz":50,"min_wait_ns":1000000}`,
	})
	frames := append([]string{"/app/train.py:7 main"}, library...)
	slices.Reverse(frames)
	recording.AddRow(format.Row{
		Kind: format.KindStack, Pid: 42, StackID: hostStack, StackStatus: format.StackComplete, Device: -1,
		Frames: analyzetest.ParseFrames(frames...),
	})
	row.Pid, row.Tid, row.Device, row.StackStatus = 42, 42, -1, format.StackNone
	if row.Kind == format.KindWait {
		row.StackID, row.StackStatus = hostStack, format.StackComplete
	}
	for step := range int64(590) {
		row.StartNs = analyzetest.Epoch + analyzetest.Second + step*100*analyzetest.Ms + 2*analyzetest.Ms
		for left := lengthNs; left > 0; left -= 7 * analyzetest.Ms {
			row.DurNs = min(left, 7*analyzetest.Ms)
			if row.Name == format.StateRunnable {
				row.Value = float64(row.DurNs)
			}
			recording.AddRow(row)
			row.StartNs += 9 * analyzetest.Ms
		}
	}
}

// hostCase is the case of a rule about waits. The launching thread waits for 14% of the time, or for 4%.
func hostCase(f format.WaitFact, library ...string) Case {
	message, _ := json.Marshal(f)
	row := format.Row{Kind: format.KindWait, Name: format.StateSleeping, Message: string(message)}
	if f.Reason == format.ReasonRunQueue {
		row.Name = format.StateRunnable
	}
	return Case{
		Fires:    func(recording *analyzetest.TestRecording) { addHost(recording, 14*analyzetest.Ms, row, library...) },
		Misses:   func(recording *analyzetest.TestRecording) { addHost(recording, 4*analyzetest.Ms, row, library...) },
		Where:    "main (train.py:7)",
		Severity: "notice",
	}
}

// gcCase is the case of gc-pause.
func gcCase() Case {
	row := format.Row{Kind: format.KindGC, Result: 2}
	return Case{
		Fires:    func(recording *analyzetest.TestRecording) { addHost(recording, 14*analyzetest.Ms, row) },
		Misses:   func(recording *analyzetest.TestRecording) { addHost(recording, 4*analyzetest.Ms, row) },
		Where:    "42 train",
		Severity: "notice",
	}
}

// throttledCase is the case of cpu-throttled: the counter of the cgroup grows by the time in run queues, or
// does not grow.
func throttledCase() Case {
	queued := format.Row{Kind: format.KindWait, Name: format.StateRunnable, Message: `{"reason":"run_queue"}`}
	add := func(recording *analyzetest.TestRecording, perSecond int64) {
		addHost(recording, 14*analyzetest.Ms, queued)
		for s := range int64(61) {
			recording.AddRow(format.Row{
				Kind: format.KindHost, Name: format.HostThrottledNs, StartNs: analyzetest.Epoch + s*analyzetest.Second,
				Pid: 42, Device: -1, Value: float64(s * perSecond), Message: "/kubepods/pod1",
			})
		}
	}
	return Case{
		Fires:    func(recording *analyzetest.TestRecording) { add(recording, 200*analyzetest.Ms) },
		Misses:   func(recording *analyzetest.TestRecording) { add(recording, 0) },
		Where:    "main (train.py:7)",
		Severity: "notice",
	}
}
