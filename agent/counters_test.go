package agent

import (
	"fmt"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// addProcess adds a process that fills its rank and job.
func addProcess(c *counters, pid int32, exitNs int64) {
	c.add(format.ClassFact, []format.Row{{
		Kind: format.KindProcess, Pid: pid, Name: "train",
		Message: fmt.Sprintf(`{"exit_ns":%d,"identity":{"rank":%d,"job":"j","sources":{"rank":"env"}}}`, exitNs, pid%8),
	}})
}

func TestCountersFollowMemory(t *testing.T) {
	testclass.Unit(t)
	c := newCounters()
	c.add(format.ClassMemory, []format.Row{
		{Kind: format.KindAlloc, Pid: 1, Ptr: 16, Bytes: 100, StartNs: 10, DurNs: 5, MemoryKind: "device"},
		{Kind: format.KindAlloc, Pid: 1, Ptr: 32, Bytes: 7, StartNs: 16, DurNs: 1, MemoryKind: "managed"},
		// The address is used again before the row of the free comes.
		{Kind: format.KindAlloc, Pid: 1, Ptr: 16, Bytes: 50, StartNs: 21, DurNs: 5, MemoryKind: "device"},
		{Kind: format.KindFree, Pid: 1, Ptr: 16, StartNs: 20, DurNs: 9, MemoryKind: "device"},
		{Kind: format.KindFree, Pid: 1, Ptr: 32, StartNs: 30, DurNs: 1, MemoryKind: "device"},
		{Kind: format.KindFree, Pid: 1, Ptr: 99, StartNs: 31, DurNs: 1, MemoryKind: "device"}, // from before
		{Kind: format.KindAlloc, Pid: 1, Bytes: 1 << 40, StartNs: 32, Result: 2, MemoryKind: "device"},
	})
	got := c.take(map[int]string{1: "train"}, 40).Processes[0]
	if want := (MemoryTotals{150, 100}); got.Memory["device"] != want {
		t.Errorf("device: %+v, want %+v", got.Memory["device"], want)
	}
	if want := (MemoryTotals{7, 7}); got.Memory["managed"] != want {
		t.Errorf("managed: %+v, want %+v", got.Memory["managed"], want)
	}
	if got.Errors[2] != 1 || got.Calls != 7 {
		t.Errorf("%d errors, %d calls", got.Errors[2], got.Calls)
	}
}

func TestCountersStayBounded(t *testing.T) {
	testclass.Unit(t)
	c := newCounters()
	const processes = 3000
	for pid := int32(1); pid <= processes; pid++ {
		addProcess(c, pid, 0)
		c.add(format.ClassCall, []format.Row{
			{Kind: format.KindLaunch, Pid: pid, Function: 1, Kernel: fmt.Sprint("k", pid), Result: pid},
			{Kind: format.KindLaunch, Pid: pid, Function: 1, Kernel: fmt.Sprint("k", pid)},
		})
		if pid%2 == 0 {
			addProcess(c, pid, int64(pid))
		}
	}
	m := c.take(nil, 0)
	var calls, failed int64
	for i := range m.Processes {
		calls += m.Processes[i].Calls
		for _, n := range m.Processes[i].Errors {
			failed += n
		}
	}
	if calls != 2*processes || failed != processes {
		t.Errorf("%d calls, %d failed; want %d, %d", calls, failed, 2*processes, processes)
	}
	if n := len(m.Processes); n > maxProcesses+maxIdentities+2 {
		t.Errorf("%d processes", n)
	}
	c.take(nil, 1<<62)
	if n := len(c.take(nil, 1<<62+endedFor.Nanoseconds()).Processes); n != 2 { // ended ones, and those above the bound
		t.Errorf("%d processes after all have ended", n)
	}
}

func TestLateRowsBelongToTheEndedProcess(t *testing.T) {
	testclass.Unit(t)
	c := newCounters()
	launch := func(startNs int64) {
		c.add(format.ClassCall, []format.Row{{Kind: format.KindLaunch, Pid: 1, Function: 1, StartNs: startNs}})
	}
	addProcess(c, 1, 0)
	launch(10)
	addProcess(c, 1, 20)
	launch(15) // its row comes after that of the end
	if got := c.take(nil, 20+lateRowsNs+1).Processes; len(got) != 1 || got[0].Pid != 0 || got[0].Launches != 2 {
		t.Errorf("%+v", got)
	}
	addProcess(c, 1, 30)
	launch(40) // of another process with this pid; the one before used no GPU
	if got := c.take(nil, 40).Processes; len(got) != 3 || got[0].Pid != 1 || got[0].Launches != 1 {
		t.Errorf("%+v", got)
	}
}
