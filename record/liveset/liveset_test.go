package liveset

import (
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func call(kind string, atNs, ptr, bytes int64) format.Row {
	return format.Row{
		Kind:       kind,
		Name:       kind,
		StartNs:    atNs,
		DurNs:      5,
		Pid:        7,
		Ptr:        ptr,
		Bytes:      bytes,
		MemoryKind: format.MemoryDevice,
		Context:    3,
		StackID:    11,
		Site:       "load (train.py:3)",
	}
}

// live returns the live bytes of process 7, -1 if they are unknown.
func live(s *Set) (bytes int64) {
	bytes = -1
	s.EachProcess(func(int32, int64) {})
	s.EachProcess(func(_ int32, low int64) { bytes = low })
	return bytes
}

func TestLiveBytes(t *testing.T) {
	testclass.Unit(t)
	failed := call(format.KindAlloc, 10, 1, 100)
	failed.Result = 2
	open := call(format.KindAlloc, 10, 1, 100)
	open.Flags = format.FlagOpen
	array := call(format.KindAlloc, 10, 1, 100)
	array.MemoryKind = format.MemoryArray
	graph := call(format.KindAlloc, 10, 1, 100)
	graph.MemoryKind = format.MemoryGraph
	other := call(format.KindFree, 20, 1, 0)
	other.Pid = 8
	a := call(format.KindAlloc, 10, 1, 100)
	for name, c := range map[string]struct {
		rows []format.Row
		want int64
	}{
		"allocated":                   {[]format.Row{a}, 100},
		"freed":                       {[]format.Row{a, call(format.KindFree, 20, 1, 0)}, 0},
		"freed by another process":    {[]format.Row{a, other}, 100},
		"an array of the same number": {[]format.Row{a, array, call(format.KindFree, 20, 1, 0)}, 100},
		"twice at one address":        {[]format.Row{a, call(format.KindAlloc, 10, 1, 100)}, 100},
		"the free was lost":           {[]format.Row{a, call(format.KindAlloc, 30, 1, 50)}, 50},
		"the free returned later":     {[]format.Row{call(format.KindAlloc, 30, 1, 50), call(format.KindFree, 20, 1, 0)}, 50},
		"failed":                      {[]format.Row{failed}, -1},
		"open":                        {[]format.Row{open}, -1},
		"of a graph":                  {[]format.Row{graph}, -1},
		"impossible size":             {[]format.Row{call(format.KindAlloc, 1, 1, 1<<62), call(format.KindAlloc, 1, 2, 1<<62)}, -1},
	} {
		s := New(100)
		s.AddMemory(c.rows, 1)
		if got := live(s); got != c.want {
			t.Errorf("%s: %d bytes are live, want %d", name, got, c.want)
		}
	}
}

func TestLowestBytes(t *testing.T) {
	testclass.Unit(t)
	s := New(100)
	s.AddMemory([]format.Row{call(format.KindAlloc, 1, 1, 100), call(format.KindAlloc, 1, 2, 10)}, 1)
	s.EachProcess(func(int32, int64) {})
	s.AddMemory([]format.Row{call(format.KindFree, 20, 1, 0), call(format.KindAlloc, 30, 1, 500)}, 1)
	s.EachProcess(func(_ int32, low int64) {
		if low != 10 {
			t.Errorf("low %d", low)
		}
	})
}

func TestEnds(t *testing.T) {
	testclass.Unit(t)
	for name, row := range map[string]format.Row{
		"context":         {Kind: format.KindAPI, Name: "cuCtxDestroy_v2", Pid: 7, Ptr: 3},
		"primary context": {Kind: format.KindAPI, Name: "cuDevicePrimaryCtxReset_v2", Pid: 7},
	} {
		s := New(100)
		s.AddMemory([]format.Row{call(format.KindAlloc, 1, 1, 100)}, 1)
		s.AddCalls([]format.Row{{Kind: format.KindAPI, Name: "cuCtxDestroy_v2", Pid: 7, Ptr: 4}})
		if live(s) != 100 {
			t.Errorf("%s: another context ended", name)
		}
		if s.AddCalls([]format.Row{row}); live(s) != 0 {
			t.Errorf("%s: %d bytes are live", name, live(s))
		}
	}
}

func TestRowsUntil(t *testing.T) {
	testclass.Unit(t)
	s := New(3)
	first := call(format.KindAlloc, 20, 1, 100)
	s.AddMemory([]format.Row{first, call(format.KindAlloc, 10, 2, 100)}, 4)
	s.AddMemory([]format.Row{call(format.KindAlloc, 30, 3, 100), call(format.KindAlloc, 40, 4, 100)}, 5)
	n := s.Snapshot()
	s.ForgetProcess(7)
	if n.Missing() != 1 || live(s) != -1 || len(s.Snapshot().RowsUntil(9, 0)) > 0 || s.Snapshot().Missing() != 0 {
		t.Errorf("%d allocations are missing, %d bytes of a process that has ended", n.Missing(), live(s))
	}
	rows := n.RowsUntil(4, 1000)
	if len(rows) != 2 || rows[0].Ptr != 2 || rows[0].StartNs != 1000 || rows[0].Message != `{"allocated_ns":15}` ||
		rows[1].Ptr != 1 || rows[1].StackID != first.StackID || rows[1].Site != first.Site || rows[1].Bytes != 100 ||
		rows[1].Pid != 7 {
		t.Errorf("%+v", rows)
	}
}

func TestAllocationsOfTooManyProcessesAreCounted(t *testing.T) {
	testclass.Unit(t)
	s := New(2 * maxProcesses)
	for pid := range int32(maxProcesses + 3) {
		s.AddMemory([]format.Row{{
			Kind: format.KindAlloc, Pid: pid, Ptr: 16, Bytes: 1, MemoryKind: format.MemoryDevice,
		}}, 0)
	}
	if n := s.Snapshot().Missing(); n != 3 {
		t.Errorf("%d allocations are missing, want 3", n)
	}
}
