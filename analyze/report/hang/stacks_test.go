package hang_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// Stacks of the recordings below.
const (
	reduceStack = 11 + iota
	loadStack
	readStack
	lockStack
	ownerStack
)

// addHangStacks adds the stacks.
func addHangStacks(recording *analyzetest.TestRecording) {
	add := func(id int32, kernel []string, user ...string) {
		frames := slices.Concat(analyzetest.KernelFrames(kernel...), analyzetest.ParseFrames(user...))
		recording.AddStackRow(id, format.StackComplete, "", "", frames)
	}
	add(reduceStack, []string{"do_sys_poll", "__x64_sys_poll"}, "libc.so.6 poll", "libcuda.so.1 cuStreamSynchronize",
		"/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py:2501 all_reduce",
		"/app/train.py:31 step", "/app/train.py:40 main")
	add(loadStack, []string{"hrtimer_nanosleep"}, "libc.so.6 clock_nanosleep", "/app/data.py:12 load",
		"/app/train.py:30 step", "/app/train.py:40 main")
	add(readStack, []string{"pipe_read"}, "libc.so.6 read", "/app/data.py:90 worker")
	add(lockStack, []string{"futex_wait"}, "libc.so.6 __lll_lock_wait", "libc.so.6 pthread_mutex_lock",
		"/app/train push", "/app/train main")
	add(ownerStack, []string{"tcp_recvmsg"}, "libc.so.6 recv", "/app/train send_metrics", "/app/train worker")
}

// factText returns a fact of a report.
func factText(r *report.Report, key string) string {
	for _, f := range r.Facts {
		if f.Key == key && f.Value != nil {
			return fmt.Sprint(f.Value)
		}
	}
	return ""
}

// hungRanks returns a recording of four ranks that hung before it: one sleeps where it loads data. A loader
// of that rank has its rank, too.
func hungRanks(t testing.TB) *analyzetest.TestRecording {
	recording := analyzetest.NewTestRecording(t)
	addHangStacks(recording)
	add := func(pid int32, rank int) {
		recording.AddRow(
			format.Row{Kind: format.KindProcess, Name: "python3", Pid: pid, StartNs: analyzetest.Epoch, Device: -1},
		)
		recording.AddIdentity(pid, analyzetest.RankIdentity(rank, 4, "job"), nil)
	}
	for rank := range 4 {
		pid := int32(42 + rank)
		add(pid, rank)
		fact, state, stack := format.WaitFact{
			Reason: format.ReasonCUDA, SystemCall: "poll", CUDACall: "cuStreamSynchronize",
		}, format.StateSleeping, int32(reduceStack)
		if rank == 2 {
			fact, stack = format.WaitFact{Reason: format.ReasonSleep, SystemCall: "clock_nanosleep"}, loadStack
		}
		fact.Thread, fact.Python = "python3", "3.12"
		for at, when := range map[int64]string{2 * analyzetest.Second: format.WhenSilence, 59 * analyzetest.Second: format.WhenEnd} {
			fact.When = when
			recording.AddThreadState(pid, pid, at, 5*analyzetest.Second, state, fact, stack)
			idle := format.WaitFact{
				Reason:     format.ReasonPipe,
				SystemCall: "read",
				Target:     "pipe",
				When:       when,
				Thread:     "pin",
			}
			recording.AddThreadState(pid, pid+100, at, analyzetest.Second, state, idle, readStack)
		}
	}
	add(50, 2)
	idle := format.WaitFact{
		Reason:     format.ReasonPipe,
		SystemCall: "read",
		Target:     "pipe",
		When:       format.WhenEnd,
		Thread:     "loader",
	}
	recording.AddThreadState(50, 50, 59*analyzetest.Second, analyzetest.Second, format.StateSleeping, idle, readStack)
	return recording
}

func TestRanksThatHungBeforeTheRecording(t *testing.T) {
	testclass.Unit(t)
	r := newHangReport(t, hungRanks(t), hang.Options{Options: query.Options{Top: 20, MaxFrames: 12}})
	analyzetest.CompareGoldenReports(t, r, "hangstacks", 110)
	for key, want := range map[string]string{
		"result": "hanging: 4 processes, such as 42 python3 rank 0, made no CUDA call in the recorded 1m0s: thread 42 " +
			"python3 is in the collective all_reduce, waits for the GPU in cuStreamSynchronize, at step (train.py:31), " +
			"for at least 1m3s",
		"look_at": "44 python3 rank 2: sleeps, at load (data.py:12); 42 python3 rank 0, 43 python3 rank 1, 45 python3 " +
			"rank 3: is in the collective all_reduce, waits for the GPU in cuStreamSynchronize, at step (train.py:31)",
		"advice": "",
	} {
		if got := factText(r, key); got != want {
			t.Errorf("%s: %s", key, got)
		}
	}
	if got := fmt.Sprint(analyzetest.ColumnTexts(t, r, "stacks", "processes")); got != "[3 1]" {
		t.Errorf("groups of %s processes", got)
	}
}

// TestReasonOfAnIdleThread checks that the owner of a lock and its line explain a process that made calls
// before.
func TestReasonOfAnIdleThread(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		lookAt int64
		want   string
	}{
		"after the last call": {
			59 * analyzetest.Second, `; thread 42 main waits for a lock, held by thread 43 "sender" at send_metrics, at ` +
				`push, for at least 21.00s`,
		},
		"before the last call": {10 * analyzetest.Second, ""},
	} {
		recording := analyzetest.NewTestRecording(t)
		addHangStacks(recording)
		recording.AddRow(
			format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: analyzetest.Epoch, Device: -1},
		)
		recording.AddWorkingThread(42, 42, 0, 30*analyzetest.Second, format.KindLaunch, "cuLaunchKernel")
		recording.AddThreadState(42, 42, c.lookAt, 20*analyzetest.Second, format.StateSleeping, format.WaitFact{
			Reason: format.ReasonLock, SystemCall: "futex", OwnerPid: 42, OwnerTid: 43, Owner: "sender",
			When: format.WhenEnd, Thread: "main",
		}, lockStack)
		recording.AddThreadState(42, 43, c.lookAt, analyzetest.Second, format.StateSleeping, format.WaitFact{
			Reason: format.ReasonNetwork, SystemCall: "recvfrom", Target: "10.0.0.1:443", When: format.WhenEnd,
		}, ownerStack)
		r := newHangReport(t, recording, hang.Options{})
		result := factText(r, "result")
		if !strings.HasPrefix(result, "idle: process 42 train, ") || !strings.HasSuffix(result, c.want) ||
			strings.Contains(result, "waits for a lock") != (c.want != "") {
			t.Errorf("%s: %s", name, result)
		}
	}
}

// TestHostileThreadStates checks rows that no recorder writes.
func TestHostileThreadStates(t *testing.T) {
	testclass.Unit(t)
	recording := silentTape(t)
	for i, message := range []string{"", "no JSON", `{"reason":7}`, `{"owner_tid":43,"reason":"lock","thread":"\u001b[31m"}`} {
		r := recording.AddThreadState(42, int32(42+i), int64(i)-1<<62, -1, "no state", format.WaitFact{}, int32(900+i))
		r.Message, r.DurNs = message, int64(i-2)<<62
	}
	r := recording.AddThreadState(42, 42, 59*analyzetest.Second, 1<<62, "\x1b[31m", format.WaitFact{
		Reason: format.ReasonFile, Target: "/tmp/\x1b[31m\nname", CUDACall: "cu\x1b", Thread: "a\nb",
	}, 0)
	r.StackID = -1
	report := newHangReport(t, recording, hang.Options{})
	analyzetest.CheckSafeToPrint(t, report)
	if result := factText(report, "result"); !strings.Contains(result, "waits") {
		t.Error(result)
	}
}

// TestLaunchersAreNoOutliers has two ranks that do the same, and a process that waits for its children.
func TestLaunchersAreNoOutliers(t *testing.T) {
	testclass.Unit(t)
	for name, fact := range map[string]format.WaitFact{
		"waits":  {Reason: format.ReasonChild, SystemCall: "wait4"},
		"sleeps": {Reason: format.ReasonSleep, SystemCall: "clock_nanosleep"},
	} {
		recording := analyzetest.NewTestRecording(t)
		addHangStacks(recording)
		for pid, message := range map[int32]string{40: "", 42: `{"parent_pid":40}`, 43: `{"parent_pid":40}`} {
			recording.AddRow(format.Row{
				Kind: format.KindProcess, Name: "python3", Pid: pid, StartNs: analyzetest.Epoch, Device: -1,
				Message: message,
			})
			wait, stack := fact, int32(loadStack)
			if pid != 40 {
				recording.AddIdentity(pid, analyzetest.RankIdentity(int(pid-42), 2, "job"), nil)
				wait = format.WaitFact{Reason: format.ReasonCUDA, SystemCall: "poll", CUDACall: "cuStreamSynchronize"}
				stack = reduceStack
			}
			recording.AddThreadState(
				pid,
				pid,
				59*analyzetest.Second,
				50*analyzetest.Second,
				format.StateSleeping,
				wait,
				stack,
			)
		}
		r := newHangReport(t, recording, hang.Options{})
		analyzetest.CheckNumbers(t, r, map[string]float64{"hanging": 2, "silent": 3})
		if odd := factText(r, "look_at"); odd != "" {
			t.Errorf("%s: %s", name, odd)
		}
	}
}
