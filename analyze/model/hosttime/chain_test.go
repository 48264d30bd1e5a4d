package hosttime_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// Threads of process 42 in chains: A is explained. The others end waits.
const (
	threadA = 43 + iota
	threadB
	threadC
	threadD
)

// waitOf returns a wait of a thread that another one ended; 0: a timer did.
func waitOf(tid, waker int32, at, dur int64, stack int32, reason string) format.Row {
	f := format.WaitFact{Reason: reason, EndedBy: format.EndedByThread, Waker: fmt.Sprint("thread-", waker)}
	if waker == 0 {
		f = format.WaitFact{Reason: reason, EndedBy: format.EndedByInterrupt}
	}
	r := wait(at, dur, stack, f)
	r.Tid, r.RanNs = tid, 1
	if waker != 0 {
		r.WakerPid, r.WakerTid = thread.Pid, waker
	}
	return r
}

// ranOf returns a wait of a thread in a run queue that says how long the thread ran before.
func ranOf(tid int32, at, dur, ranNs int64) format.Row {
	r := queued(at, dur)
	r.Tid, r.RanNs = tid, ranNs
	return r
}

// TestChains checks how a span of 100 ms of thread A, which begins at 1 s, is divided along wakers.
func TestChains(t *testing.T) {
	testclass.Unit(t)
	const from, length = 1000 * ms, 100 * ms
	early := func(tid int32) format.Row { return waitOf(tid, 0, 0, 900*ms, 1, format.ReasonSleep) }
	continues := waitOf(threadA, threadB, from+40*ms, 60*ms, 1, format.ReasonCondition)
	continues.Flags = format.FlagContinues
	signaled := waitOf(threadA, threadD, from, length, 1, format.ReasonCondition)
	signaled.Message = `{"reason":"condition","ended_by":"signal","waker":"killer"}`
	owned := waitOf(threadA, 0, from, length, 1, format.ReasonLock)
	owned.Message = `{"reason":"lock","ended_by":"unknown","owner_pid":42,"owner_tid":44,"owner":"keeper"}`
	gil := waitOf(threadB, threadD, from, length, 1, format.ReasonGIL)
	gil.Message = `{"reason":"gil","ended_by":"thread","waker":"late","owner_pid":42,"owner_tid":45,"owner":"hog"}`
	for _, test := range []struct {
		name string
		rows []format.Row
		want map[string]int64 // ms by thread at the end, links and cause
	}{
		{
			"a thread that sleeps",
			[]format.Row{
				early(threadB), waitOf(threadA, threadB, from, length, 1, format.ReasonCondition),
				ranOf(threadB, from+5*ms, 5*ms, 105*ms),
				waitOf(threadB, 0, from+10*ms, 90*ms, 1, format.ReasonSleep),
			},
			map[string]int64{"44/1 ran on the CPU": 5, "44/1 waited for a CPU": 5, "44/1 slept": 90},
		},
		{
			"four links",
			[]format.Row{
				early(threadB), early(threadC), waitOf(threadA, threadB, from, length, 1, format.ReasonCondition),
				waitOf(threadB, threadC, from, length, 1, format.ReasonPipe),
				waitOf(threadC, 0, from, length, 1, format.ReasonSleep),
			},
			map[string]int64{"45/2 slept": 100},
		},
		{
			"two causes",
			[]format.Row{
				early(threadB), early(threadC), waitOf(threadA, threadB, from, length, 1, format.ReasonCondition),
				ranOf(threadB, from+20*ms, 10*ms, 120*ms),
				waitOf(threadB, threadC, from+30*ms, 70*ms, 1, format.ReasonPipe),
				waitOf(threadC, 0, from-50*ms, 150*ms, 1, format.ReasonSleep),
			},
			map[string]int64{"44/1 ran on the CPU": 20, "44/1 waited for a CPU": 10, "45/2 slept": 70},
		},
		{
			"a thread that is not watched",
			[]format.Row{waitOf(threadA, threadB, from, length, 1, format.ReasonCondition)},
			map[string]int64{"43/0 waited for a lock": 100},
		},
		{
			"a thread that is watched too late",
			[]format.Row{
				waitOf(threadA, threadB, from, length, 1, format.ReasonCondition),
				waitOf(threadB, 0, from+60*ms, 40*ms, 1, format.ReasonSleep),
			},
			map[string]int64{"43/0 waited for a lock": 60, "44/1 slept": 40},
		},
		{
			"threads that wait for each other",
			[]format.Row{
				early(threadB), waitOf(threadA, threadB, from, length, 1, format.ReasonCondition),
				waitOf(threadB, threadA, from, length, 1, format.ReasonPipe),
			},
			map[string]int64{"44/1 waited for a pipe": 100},
		},
		{
			"a wait that a timer has cut",
			[]format.Row{
				early(threadB), waitOf(threadA, 0, from, 40*ms, 1, format.ReasonCondition), continues,
				waitOf(threadB, 0, from, length, 1, format.ReasonSleep),
			},
			map[string]int64{"44/1 slept": 100},
		},
		{
			"a signal is no cause",
			[]format.Row{early(threadD), signaled},
			map[string]int64{"43/0 waited for a lock": 100},
		},
		{
			"the owner of a lock whose end was not seen",
			[]format.Row{early(threadB), owned, waitOf(threadB, 0, from, length, 1, format.ReasonSleep)},
			map[string]int64{"44/1 slept": 100},
		},
		{
			"the GIL in a chain: its holder, not the waker",
			[]format.Row{
				early(threadB), early(threadC), early(threadD), waitOf(threadA, threadB, from, length, 1, format.ReasonCondition),
				gil, ranOf(threadC, from+length, ms, 200*ms), waitOf(threadD, 0, from, length, 1, format.ReasonSleep),
			},
			map[string]int64{"45/2 ran on the CPU": 100},
		},
		{
			"a sleep of its own",
			[]format.Row{early(threadB), waitOf(threadA, threadB, from, length, 1, format.ReasonSleep)},
			map[string]int64{"43/0 slept": 100},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := historyOf(t, test.rows)
			got := make(map[string]int64)
			for _, p := range h.Explain(thread.Pid, thread.Tid, analyzetest.Epoch+from, analyzetest.Epoch+from+length) {
				end := thread
				if p.Chain.IsOther() {
					end = p.Chain.End
				}
				got[fmt.Sprintf("%d/%d %v", end.Tid, p.Chain.Links, p.Cause)] += p.Ns / ms
			}
			if !maps.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// TestChainThroughLoader checks that a wait for a worker of a data loader is one for the loader, and that a queue of
// another process is none.
func TestChainThroughLoader(t *testing.T) {
	testclass.Unit(t)
	const from, length = 1000 * ms, 100 * ms
	for stack, inLoader := range map[int32]bool{1: false, 2: true, 4: false} {
		h := historyOf(t, []format.Row{
			waitOf(
				threadB,
				0,
				0,
				900*ms,
				1,
				format.ReasonSleep,
			),
			waitOf(threadA, threadB, from, length, stack, format.ReasonPipe),
			waitOf(threadB, 0, from, length, 1, format.ReasonSleep),
		})
		parts := h.Explain(thread.Pid, thread.Tid, analyzetest.Epoch+from, analyzetest.Epoch+from+length)
		want := hosttime.Chain{Links: 1, Stack: stack, InLoader: inLoader}
		got := parts[0].Chain
		got.End, got.EndName, got.Cause = want.End, want.EndName, want.Cause
		if len(parts) != 1 || parts[0].Cause != hosttime.CauseSleep || got != want {
			t.Errorf("stack %d: %+v", stack, parts)
		}
	}
}

// TestBreakdownOfWorkers checks that threads with the same line are one entry, and that its chain leads to the one with
// the most time.
func TestBreakdownOfWorkers(t *testing.T) {
	testclass.Unit(t)
	const from = 1000 * ms
	rows := []format.Row{
		waitOf(threadB, 0, 0, 900*ms, 1, format.ReasonSleep),
		waitOf(threadC, 0, 0, 900*ms, 1, format.ReasonSleep),
		waitOf(threadA, threadB, from, 30*ms, 2, format.ReasonPipe),
		waitOf(threadA, threadC, from+50*ms, 50*ms, 2, format.ReasonPipe),
		waitOf(
			threadB,
			0,
			from,
			100*ms,
			1,
			format.ReasonSleep,
		),
		waitOf(threadC, 0, from, 100*ms, 1, format.ReasonSleep),
	}
	b := hosttime.NewBreakdown(historyOf(t, rows), func(stack int32) string { return string('a' + rune(stack)) })
	b.Add("a launch", thread, analyzetest.Epoch+from, analyzetest.Epoch+from+100*ms, 1)
	e := b.Finish()[0]
	if e.Cause != hosttime.CauseSleep || e.Ns != float64(80*ms) || e.Ends != 2 || e.Chain.End.Tid != threadC {
		t.Errorf("%+v", e)
	}
}
