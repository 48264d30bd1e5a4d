package analyzetest

import (
	"encoding/json"

	"github.com/gpurec/gpurec/format"
)

// AddThreadState adds a row of kind thread_state: a thread that came to a processor off ns before the
// moment at, both from Epoch.
func (recording *TestRecording) AddThreadState(
	pid, tid int32, at, off int64, state string, fact format.WaitFact, stack int32,
) *format.Row {
	recording.t.Helper()
	message, err := json.Marshal(fact)
	if err != nil {
		recording.t.Fatal(err)
	}
	return recording.AddRow(format.Row{
		Kind: format.KindThreadState, Name: state, Pid: pid, Tid: tid, StartNs: Epoch + at, DurNs: off, Device: -1,
		StackID: stack, StackStatus: format.StackComplete, Message: string(message),
	})
}

// KernelFrames returns frames of the kernel, innermost first.
func KernelFrames(functions ...string) (frames []format.Frame) {
	for _, f := range functions {
		frames = append(frames, format.Frame{Func: f, SystemName: f, Module: "kernel", Type: format.FrameKernel})
	}
	return frames
}
