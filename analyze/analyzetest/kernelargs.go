package analyzetest

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// AddKernelArgs adds the arguments of a launch with parameters of 8 bytes. layout is one of the format.Arguments
// constants.
func (recording *TestRecording) AddKernelArgs(launch *format.Row, layout string, words ...uint64) *format.Row {
	args := format.KernelArgs{Layout: layout}
	for i, word := range words {
		v := format.KernelArgument{Hex: hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, word))}
		if layout != format.ArgumentsUnknown {
			offset := int64(8 * i)
			v.Offset = &offset
		}
		args.Values = append(args.Values, v)
	}
	message, err := json.Marshal(args)
	if err != nil {
		recording.t.Fatal(err)
	}
	if recording.Meta.KernelArgs == nil {
		recording.Meta.KernelArgs = &format.KernelArgsCount{PerStream: 16}
	}
	recording.Meta.KernelArgs.Read++
	recording.Meta.KernelArgs.Recorded++
	return recording.AddRow(format.Row{
		Kind: format.KindKernelArgs, Name: launch.Name, StartNs: launch.StartNs, Pid: launch.Pid, Tid: launch.Tid,
		Device: -1, Context: launch.Context, Stream: launch.Stream, Function: launch.Function, Kernel: launch.Kernel,
		Value: float64(len(words)), Bytes: int64(8 * len(words)), Message: string(message),
	})
}

// UseAfterFreeRecording returns a recording of a program whose GPU work fails, because a kernel gets a pointer into
// memory that was freed before.
func UseAfterFreeRecording(t testing.TB) *TestRecording {
	recording := NewTestRecording(t)
	recording.AddStack(1, "load_batch", "main")
	recording.AddStack(2, "drop_batch", "main")
	recording.AddStack(3, "train_step", "main")
	recording.AddCall(format.KindAPI, "cuInit", 0, Us)
	const weights, batch = int64(0x7f5e40000000), int64(0x7f5e42000000)
	SetStackAndSite(recording.AddAlloc(Second, 40*Us, weights, 16*Mib), 1, "load_batch (train.cc:10)")
	SetStackAndSite(recording.AddAlloc(1200*Ms, 40*Us, batch, 4*Mib), 1, "load_batch (train.cc:10)")
	for i := range int64(3) {
		at := 1500*Ms + i*Ms
		if i == 2 {
			SetStackAndSite(recording.AddFree(at-300*Us, 90*Us, batch), 2, "drop_batch (train.cc:20)")
		}
		launch := SetStackAndSite(
			recording.AddLaunch(at, 5*Us, "scale_rows(float*, float const*, int)", 7, 0),
			3,
			"train_step (train.cc:30)",
		)
		recording.AddKernelArgs(launch, format.ArgumentsFromModule, uint64(weights), uint64(batch+4096*i), 1024)
	}
	wait := SetStackAndSite(recording.AddSync("cuStreamSynchronize", 1503*Ms, Ms, 7, 0), 3, "train_step (train.cc:30)")
	wait.Result = 700
	recording.AddXid(1503*Ms, 0, 42, 31, format.XidFact{
		PCI: "0000:5e:00.0", Text: "pid=42, name=train, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 " +
			"GPCCLIENT_T1_0 faulted @ 0x7f5e_42002000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
	})
	return recording
}
