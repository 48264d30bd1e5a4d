package rules_test

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/rankjob"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestStragglersWithoutCollectives has jobs whose library of collectives was not recorded.
func TestStragglersWithoutCollectives(t *testing.T) {
	testclass.Unit(t)
	late := rankjob.Fault{Kind: rankjob.SlowHost, Rank: 1, FromStep: 40, Ns: 20 * analyzetest.Ms}
	for _, c := range []struct {
		name   string
		ranks  int
		faults []rankjob.Fault
		change func(recording *analyzetest.TestRecording)
		what   string // parts of the hit, separated by "|"
	}{
		{"late host of two", 2, []rankjob.Fault{late}, nil, "rank 1 is late by |; rank 0 waits for it"},
		{"late host of four", 4, []rankjob.Fault{late}, nil, "rank 1 is late by |; the others wait for it"},
		{"equal ranks", 4, nil, nil, ""},
		{"other kernels", 2, []rankjob.Fault{late}, func(recording *analyzetest.TestRecording) {
			renameKernels(recording, rankPid(recording, 1))
		}, ""},
		{"no ranks", 2, []rankjob.Fault{late}, func(recording *analyzetest.TestRecording) {
			for _, row := range recording.Rows {
				if row.Kind == format.KindProcess {
					row.Message = ""
				}
			}
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := rankjob.Spec{Seed: 5, Ranks: c.ranks, Steps: 120, NoGPUTimes: true, Faults: c.faults}
			recording := spec.Recording(t)
			recording.RemoveRows(func(r *format.Row) bool {
				return r.Kind == format.KindCollective || r.Kind == format.KindCommunicator
			})
			for _, row := range recording.Rows {
				row.ParentStartNs = 0
			}
			if c.change != nil {
				c.change(recording)
			}
			r := checked(t, recording, rules.Options{Rules: []string{"straggler"}})
			whats := analyzetest.ColumnTexts(t, r, "hits", "what")
			if (c.what == "") != (len(whats) == 0) {
				t.Fatalf("got %q, want %q", whats, c.what)
			}
			for _, part := range strings.Split(c.what, "|") {
				if c.what != "" && !strings.Contains(whats[0], part) {
					t.Errorf("%s: no %q", whats[0], part)
				}
			}
			if details := analyzetest.ColumnTexts(t, r, "evidence", "detail"); len(whats) > 0 &&
				!strings.Contains(details[0], "train.py") {
				t.Errorf("the reason has no line: %v", details)
			}
		})
	}
}

// rankPid returns the process of a rank of a job without other processes.
func rankPid(recording *analyzetest.TestRecording, rank int) int32 {
	for _, row := range recording.Rows {
		if row.Kind == format.KindProcess {
			if rank == 0 {
				return row.Pid
			}
			rank--
		}
	}
	return 0
}

// renameKernels gives the kernels of a process other names.
func renameKernels(recording *analyzetest.TestRecording, pid int32) {
	for _, row := range recording.Rows {
		if row.Kind == format.KindLaunch && row.Pid == pid {
			row.Kernel = "stage_" + row.Kernel
		}
	}
}

// TestHiddenHostWorkIsNotLate has two ranks with equal steps of 20 ms. Rank 1 computes 10 ms more on its host: while its
// GPU works, or after it.
func TestHiddenHostWorkIsNotLate(t *testing.T) {
	testclass.Unit(t)
	for hidden, want := range map[bool]int{true: 0, false: 1} {
		recording := analyzetest.NewTestRecording(t)
		recording.AddStack(1, "train_step", "main")
		for rank := range 2 {
			pid := int32(42 + rank)
			recording.AddRow(
				format.Row{Kind: format.KindProcess, Name: "train", Pid: pid, StartNs: analyzetest.Epoch, Device: -1},
			)
			recording.AddIdentity(pid, analyzetest.RankIdentity(rank, 2, "job"), nil)
			syncAt, syncNs := 100*analyzetest.Us, 15*analyzetest.Ms
			switch {
			case rank == 1 && hidden:
				syncAt, syncNs = 10*analyzetest.Ms, 5*analyzetest.Ms
			case rank == 1:
				syncNs = 5 * analyzetest.Ms
			}
			for step := range int64(200) {
				at := analyzetest.Second + 20*analyzetest.Ms*step
				for i, kernel := range []string{"embed", "gemm", "loss"} {
					row := recording.AddCall(
						format.KindLaunch,
						"cuLaunchKernel",
						at+int64(i)*10*analyzetest.Us,
						analyzetest.Us,
					)
					row.Pid, row.Tid, row.Kernel, row.Stream = pid, pid, kernel, 7
				}
				row := recording.AddSync("cuStreamSynchronize", at+syncAt, syncNs, 7, 0)
				analyzetest.SetStackAndSite(row, 1, "train_step (train.cc:10)")
				row.Pid, row.Tid = pid, pid
			}
		}
		r := checked(t, recording, rules.Options{Rules: []string{"straggler"}})
		if whats := analyzetest.ColumnTexts(t, r, "hits", "what"); len(whats) != want {
			t.Errorf("hidden %v: got %q", hidden, whats)
		}
	}
}

// TestLateRanksOfGloo has two ranks that reduce gradients on the host, in a thread of autograd. Rank 1 sleeps first. A
// rank is late only if the other one waits for it.
func TestLateRanksOfGloo(t *testing.T) {
	testclass.Unit(t)
	for awaited, want := range map[bool]string{
		true:  "GPU idle 100%: waits for other ranks|rank 1 is late by 20.0ms a step|slept at load_batch (train.py:7)",
		false: "",
	} {
		recording := analyzetest.NewTestRecording(t)
		for id, frames := range map[int32][]string{
			1: {"libcuda.so.1 cuLaunchKernel", "/app/train.py:12 train_step"},
			2: {"libtorch_cpu.so c10d::Reducer::finalize_backward", "libtorch_cpu.so torch::autograd::Engine::thread_main"},
			3: {"libc.so.6 clock_nanosleep", "/app/train.py:7 load_batch", "/app/train.py:20 main"},
			4: {"libtorch_cpu.so torch::autograd::ReadyQueue::pop", "/app/train.py:13 train_step"},
		} {
			recording.AddStackRow(id, format.StackComplete, "", "", analyzetest.ParseFrames(frames...))
		}
		for rank := range 2 {
			addGlooRank(recording, rank, awaited)
		}
		r := checked(t, recording, rules.Options{})
		text := strings.Join(analyzetest.ColumnTexts(t, r, "hits", "what"), "\n")
		if want == "" && strings.Contains(text, "is late") {
			t.Errorf("no rank waits for the other: %s", text)
		}
		for _, part := range strings.Split(want, "|") {
			if first, _, _ := strings.Cut(text, "\n"); !strings.Contains(first, part) {
				t.Errorf("awaited %v: no %q in %s", awaited, part, text)
			}
		}
	}
}

// addGlooRank adds 100 steps of 90 ms of a rank: launches, and a wait for the other rank of 70 ms. Rank 1 sleeps for 20 ms
// before the launches. If it is awaited, it waits for 50 ms.
func addGlooRank(recording *analyzetest.TestRecording, rank int, awaited bool) {
	pid := int32(42 + rank)
	recording.AddRow(
		format.Row{Kind: format.KindProcess, Name: "train", Pid: pid, StartNs: analyzetest.Epoch, Device: -1},
	)
	recording.AddIdentity(pid, analyzetest.RankIdentity(rank, 2, "job"), nil)
	sleepNs, waitNs := int64(0), 70*analyzetest.Ms
	if rank == 1 {
		sleepNs = 20 * analyzetest.Ms
		if awaited {
			waitNs -= sleepNs
		}
	}
	add := func(tid int32, at, dur int64, stack int32, reason string) {
		recording.AddWait(tid, at, dur, 0, format.StateSleeping, stack, format.WaitFact{Reason: reason}).Pid = pid
	}
	for step := range int64(100) {
		at := analyzetest.Second + 90*analyzetest.Ms*step
		if sleepNs > 0 {
			add(pid, at, sleepNs, 3, format.ReasonSleep)
		}
		at += sleepNs
		for i, kernel := range []string{"embed", "gemm", "loss"} {
			row := recording.AddCall(format.KindLaunch, "cuLaunchKernel", at+int64(i)*10*analyzetest.Us, analyzetest.Us)
			analyzetest.SetStackAndSite(row, 1, "train_step (train.py:12)")
			row.Pid, row.Tid, row.Kernel, row.Stream = pid, pid, kernel, 7
		}
		at += analyzetest.Ms
		add(pid, at, waitNs, 4, format.ReasonLock)
		add(pid+100, at, waitNs, 2, format.ReasonLock)
	}
}
