package analyzetest

import (
	"slices"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// Processes of HungJob: a launcher, and ranks from HungRankPid on.
const (
	LauncherPid = 40
	HungRankPid = 42
)

// Broadcast makes the ranks of HungJob wait in a broadcast, as a server without requests does.
const Broadcast = "broadcast"

// HungJob returns a recording of a job that hung before it. torchrun waits for its ranks. The last rank waits as late
// says, with the stack lateFrames, innermost first. The others are in all_reduce, and there in waits, a CUDA call or "".
// If waits is Broadcast, they are in a broadcast.
func HungJob(t testing.TB, ranks int, waits string, late format.WaitFact, lateFrames ...string) *TestRecording {
	recording := NewTestRecording(t)
	const collective, lateStack, launcher = 11, 12, 13
	function := "all_reduce"
	if waits == Broadcast {
		function, waits = Broadcast, ""
	}
	for id, frames := range map[int32][]string{
		collective: {
			"libc.so.6 poll", "/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py:2501 " + function,
			"/app/train.py:31 step", "/app/train.py:40 main",
		},
		lateStack: lateFrames,
		launcher: {
			"libc.so.6 clock_nanosleep",
			"/venv/lib/python3.12/site-packages/torch/distributed/elastic/agent/server/api.py:711 _invoke_run",
			"/venv/lib/python3.12/site-packages/torch/distributed/run.py:892 main",
		},
	} {
		frames := slices.Concat(KernelFrames("schedule"), ParseFrames(frames...))
		recording.AddStackRow(id, format.StackComplete, "", "", frames)
	}
	recording.AddRow(
		format.Row{Kind: format.KindProcess, Name: "torchrun", Pid: LauncherPid, StartNs: Epoch, Device: -1},
	)
	recording.addHungThread(
		LauncherPid,
		format.WaitFact{Reason: format.ReasonSleep, SystemCall: "clock_nanosleep"},
		launcher,
	)
	for rank := range ranks {
		pid := int32(HungRankPid + rank)
		recording.AddRow(format.Row{
			Kind: format.KindProcess, Name: "python3", Pid: pid, StartNs: Epoch, Device: -1,
			Message: `{"parent_pid":40}`,
		})
		recording.AddIdentity(pid, RankIdentity(rank, ranks, "job"), nil)
		if rank == ranks-1 {
			recording.addHungThread(pid, late, lateStack)
			continue
		}
		fact := format.WaitFact{Reason: format.ReasonNetwork, SystemCall: "recvfrom"}
		if waits != "" {
			fact = format.WaitFact{Reason: format.ReasonCUDA, SystemCall: "poll", CUDACall: waits}
		}
		recording.addHungThread(pid, fact, collective)
	}
	return recording
}

// addHungThread adds two snapshots of the main thread of a process, 57 s apart, in which it does the same.
func (recording *TestRecording) addHungThread(pid int32, fact format.WaitFact, stack int32) {
	fact.Thread, fact.Python = "python3", "3.12"
	for at, when := range map[int64]string{2 * Second: format.WhenSilence, 59 * Second: format.WhenEnd} {
		fact.When = when
		recording.AddThreadState(pid, pid, at, Second, format.StateSleeping, fact, stack)
	}
}
