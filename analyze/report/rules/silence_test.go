package rules_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// silentCase is a recording in which no process makes a call.
type silentCase struct {
	name string
	tape func(t *testing.T) *analyzetest.TestRecording
	// severity and what are those of the hit of rule hang, "" without one. where is a part of its place.
	severity, what, where string
	hanging               float64 // processes
}

// job returns a tape of three ranks. The last of them waits in its own way.
func job(waits string, late format.WaitFact, frames ...string) func(t *testing.T) *analyzetest.TestRecording {
	return func(t *testing.T) *analyzetest.TestRecording {
		return analyzetest.HungJob(t, 3, waits, late, frames...)
	}
}

// process returns a tape of one process without a rank.
func process(threads ...func(recording *analyzetest.TestRecording)) func(t *testing.T) *analyzetest.TestRecording {
	return func(t *testing.T) *analyzetest.TestRecording {
		recording := analyzetest.NewTestRecording(t)
		recording.AddRow(format.Row{
			Kind: format.KindProcess, Name: "python3", Pid: 42, StartNs: analyzetest.Epoch, Device: -1,
		})
		for _, add := range threads {
			add(recording)
		}
		return recording
	}
}

// thread returns a thread that has been off the processor for 50 s, with one stack frame.
func thread(tid int32, fact format.WaitFact, frame string) func(recording *analyzetest.TestRecording) {
	return func(recording *analyzetest.TestRecording) {
		recording.AddStackRow(tid, format.StackComplete, "", "", analyzetest.ParseFrames(frame))
		fact.When = format.WhenEnd
		recording.AddThreadState(
			42, tid, 59*analyzetest.Second, 50*analyzetest.Second, format.StateSleeping, fact, tid)
	}
}

// backwardJob returns a recording of two ranks. Rank 0 waits in a backward pass, and rank 1 in a function of its own.
func backwardJob(t *testing.T) *analyzetest.TestRecording {
	t.Helper()
	recording := analyzetest.NewTestRecording(t)
	condition := format.WaitFact{Reason: format.ReasonCondition, SystemCall: "futex"}
	for id, frames := range map[int32][]string{
		1: {"libtorch_cpu.so torch::autograd::ReadyQueue::pop", "/app/train.py:13 train_step"},
		2: {"libtorch_cpu.so c10d::Reducer::finalize_backward", "libtorch_cpu.so torch::autograd::Engine::thread_main"},
		3: {"libc.so.6 clock_nanosleep", "/app/train.py:39 wait_for_file"},
	} {
		recording.AddStackRow(id, format.StackComplete, "", "", analyzetest.ParseFrames(frames...))
	}
	for rank, pid := range []int32{42, 50} {
		recording.AddRow(format.Row{
			Kind: format.KindProcess, Name: "python3", Pid: pid, StartNs: analyzetest.Epoch, Device: -1,
		})
		recording.AddIdentity(pid, analyzetest.RankIdentity(rank, 2, "job"), nil)
	}
	add := func(pid, tid int32, fact format.WaitFact, stack int32) {
		fact.When = format.WhenEnd
		recording.AddThreadState(
			pid,
			tid,
			59*analyzetest.Second,
			50*analyzetest.Second,
			format.StateSleeping,
			fact,
			stack,
		)
	}
	add(42, 42, condition, 1)
	add(42, 43, condition, 2)
	add(50, 50, sleeps, 3)
	return recording
}

// busyBackwardJob is backwardJob, but both ranks launch kernels in the first second.
func busyBackwardJob(t *testing.T) *analyzetest.TestRecording {
	t.Helper()
	recording := backwardJob(t)
	for _, pid := range []int32{42, 50} {
		for i := range int64(100) {
			row := recording.AddLaunch(i*10*analyzetest.Ms, analyzetest.Us, "gemm", 7, 0)
			row.Pid, row.Tid = pid, pid
		}
	}
	return recording
}

var (
	sleeps = format.WaitFact{Reason: format.ReasonSleep, SystemCall: "clock_nanosleep"}
	polls  = format.WaitFact{Reason: format.ReasonPoll, SystemCall: "epoll_wait"}
	syncs  = format.WaitFact{Reason: format.ReasonCUDA, SystemCall: "poll", CUDACall: "cuStreamSynchronize"}
	locks  = format.WaitFact{Reason: format.ReasonLock, SystemCall: "futex", OwnerPid: 42, OwnerTid: 43, Owner: "b"}
)

var silentCases = []silentCase{
	{
		"a rank sleeps", job("cuStreamSynchronize", sleeps, "libc.so.6 clock_nanosleep", "/app/data.py:12 load"),
		"problem", "the job hangs: rank 2 sleeps, at load (data.py:12), for at least 59.00s; 2 ranks wait for it: " +
			"rank 0 is in the collective all_reduce, waits for the GPU in cuStreamSynchronize, at step (train.py:31), " +
			"for at least 1m0s", "load (data.py:12) in process 44 python3 rank 2", 3,
	},
	{
		"a rank waits for a loader", job(
			"cuStreamSynchronize",
			format.WaitFact{Reason: format.ReasonPipe, SystemCall: "read", Target: "pipe"},
			"/app/data.py:90 next",
		),
		"problem", "the job hangs: rank 2 waits for a pipe, at next (data.py:90)", "next (data.py:90)", 3,
	},
	{
		"all ranks wait",
		job("cuStreamSynchronize", syncs, "/app/train.py:33 step"),
		"problem",
		"the job hangs: no rank is known to be late; rank 0 is in the collective all_reduce, waits for the " +
			"GPU in cuStreamSynchronize, at step (train.py:31), for at least 1m0s, and 1 more rank like it; rank 2 " +
			"differs: it waits for the GPU in cuStreamSynchronize, at step (train.py:33)",
		"step (train.py:31)",
		3,
	},
	{
		"a rank sleeps while the others wait on the host", job("", sleeps, "/app/data.py:12 load"),
		"problem", "the job hangs: rank 2 sleeps, at load (data.py:12)", "load (data.py:12)", 3,
	},
	{
		"the same, after both ranks were busy", busyBackwardJob, "problem",
		"the job hangs: rank 1 sleeps, at wait_for_file (train.py:39)", "wait_for_file (train.py:39) in process 50", 2,
	},
	{
		"a rank sleeps while the others wait in a broadcast",
		job(analyzetest.Broadcast, sleeps, "/app/data.py:12 load"),
		"notice",
		"the job may hang: rank 2 sleeps, at load (data.py:12)",
		"load (data.py:12)",
		0,
	},
	{
		"a rank waits for a queue",
		job("", format.WaitFact{Reason: format.ReasonCondition}, "/app/data.py:34 next_rows"),
		"problem",
		"the job hangs: rank 2 waits for a condition, or a lock without an owner, at next_rows (data.py:34)",
		"next_rows (data.py:34)",
		3,
	},
	{
		"a rank sleeps while the other is in a backward pass",
		backwardJob,
		"problem",
		"the job hangs: rank 1 sleeps, at wait_for_file (train.py:39), for at least 51.00s; 1 rank waits for it: rank 0 " +
			"is in the collective all_reduce of DistributedDataParallel, waits for a condition",
		"wait_for_file (train.py:39) in process 50",
		2,
	},
	{"a server with ranks, without requests", job(analyzetest.Broadcast, polls, "/app/serve.py:7 loop"), "", "", "", 0},
	{"an idle kernel of Jupyter", process(thread(42, polls, "/venv/selectors.py:468 select")), "", "", "", 0},
	{
		"an idle server whose watchdog asks", process(
			thread(42, polls, "/venv/uvloop.py:1 run"),
			thread(43, format.WaitFact{CUDACall: "cuEventQuery"}, "/app/serve watchdog"),
		), "", "", "", 0,
	},
	{
		"idle workers: one has the lock and waits for requests", process(
			thread(42, locks, "/app/serve accept_next"),
			thread(43, format.WaitFact{Reason: format.ReasonNetwork, SystemCall: "accept4"}, "/app/serve accept_next"),
		), "", "", "", 0,
	},
	{
		"a deadlock", process(
			thread(42, locks, "/app/train push"),
			thread(43, format.WaitFact{Reason: format.ReasonCondition, SystemCall: "futex"}, "/app/train pop"),
		),
		"problem", `process 42 python3 hangs: waits for a lock, held by thread 43 "b" at pop, at push, for at least`,
		"push in process 42", 1,
	},
	{
		"one process waits for the GPU", process(thread(42, syncs, "/app/train.py:31 step")), "problem",
		"process 42 python3 hangs: waits for the GPU in cuStreamSynchronize, at step (train.py:31), for at least 1m0s",
		"step (train.py:31) in process 42 python3", 1,
	},
	{"no snapshot", process(), "", "", "", 0},
}

// TestProcessesThatHungBeforeTheRecording checks that hang, rules and summary have one verdict.
func TestProcessesThatHungBeforeTheRecording(t *testing.T) {
	testclass.Unit(t)
	for _, c := range silentCases {
		t.Run(c.name, func(t *testing.T) {
			r := checked(t, c.tape(t), rules.Options{})
			whats := analyzetest.ColumnTexts(t, r, "hits", "what")
			if c.severity == "" {
				if len(whats) > 0 {
					t.Errorf("got %v, want no hit", whats)
				}
			} else {
				c.checkHit(t, whats, analyzetest.ColumnTexts(t, r, "hits", "severity"),
					analyzetest.ColumnTexts(t, r, "hits", "where"))
			}
			s, err := summary.Run(c.tape(t).Timeline(), query.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if got := analyzetest.ColumnTexts(t, s, "hits", "what"); fmt.Sprint(got) != fmt.Sprint(whats) {
				t.Errorf("summary says %v, rules %v", got, whats)
			}
			h, err := hang.Run(c.tape(t).Timeline(), query.Options{})
			if err != nil {
				t.Fatal(err)
			}
			analyzetest.CheckNumbers(t, h, map[string]float64{"hanging": c.hanging})
			for i := range h.Facts {
				if text, _ := h.Facts[i].Value.(string); h.Facts[i].Key == "look_at" &&
					strings.Contains(text, "torchrun") {
					t.Errorf("the launcher differs: %s", text)
				}
			}
		})
	}
}

// checkHit checks the first hit.
func (c *silentCase) checkHit(t *testing.T, whats, severities, wheres []string) {
	t.Helper()
	if len(whats) == 0 {
		t.Fatal("no hit")
	}
	if !strings.HasPrefix(whats[0], c.what) || severities[0] != c.severity || !strings.Contains(wheres[0], c.where) {
		t.Errorf("%s: %s\n\tat %s", severities[0], whats[0], wheres[0])
	}
}
