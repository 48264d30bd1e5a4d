package analyzetest

import (
	"testing"

	"github.com/gpurec/gpurec/format"
)

// Names of the call sites of BackwardRecording: the line of the autograd thread, and the two lines for which it works.
const (
	GradientSite = "accumulate_grad (train.cc:10)"
	ModelVia     = "train_model (train.cc:10)"
	CriticVia    = "train_critic (train.cc:10)"
)

// BackwardRecording returns a recording of a training with two backward passes, whose gradients an autograd thread
// allocates. Those of the model are freed in each step, those of the critic are kept. The thread launches a kernel for
// the model twice and one for the critic three times. The stack of the critic's line became known later, by a row of kind stack_alias. The
// thread also frees and launches for no known line.
func BackwardRecording(t testing.TB) *TestRecording {
	recording := NewTestRecording(t)
	const gradients, model, critic, rationed = 1, 2, 3, 4
	recording.AddStack(gradients, "accumulate_grad")
	recording.AddStack(model, "train_model")
	recording.AddStack(critic, "train_critic")
	recording.AddRow(format.Row{
		Kind: format.KindStackAlias, Pid: 42, Device: -1, StackID: rationed, Value: critic, Site: CriticVia,
	})
	work := func(r *format.Row, via int32) {
		SetStackAndSite(r, gradients, GradientSite)
		r.Tid, r.ViaStackID = 43, via
	}
	for step := range int64(100) {
		at, ptr := step*500*Ms, (step+1)*64*Mib
		work(recording.AddAlloc(at, 20*Us, ptr, 2*Mib), model)
		work(recording.AddAlloc(at+Ms, 20*Us, ptr+32*Mib, Mib), rationed)
		for i, via := range []int32{model, model, critic, rationed, rationed, 0} {
			launch := recording.AddCall(format.KindLaunch, "cuLaunchKernel", at+int64(2+i)*Ms, 5*Us)
			launch.Kernel, launch.GridX, launch.GridY, launch.GridZ = "add", 1, 1, 1
			launch.BlockX, launch.BlockY, launch.BlockZ = 32, 1, 1
			work(launch, via)
		}
		recording.AddFree(at+10*Ms, 20*Us, ptr)
	}
	return recording
}
