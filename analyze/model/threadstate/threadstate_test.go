package threadstate

import (
	"fmt"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// python returns a Python frame.
func python(function, file string, line int32) format.Frame {
	return format.Frame{Type: "python", Func: function, File: file, Line: line}
}

// native returns a native frame at an address.
func native(function, module string, addr int64) format.Frame {
	return format.Frame{Type: "native", Func: function, Module: module, Addr: addr}
}

func TestEqualKeysIgnoreAddresses(t *testing.T) {
	testclass.Unit(t)
	kernel := format.Frame{Type: format.FrameKernel, Func: "futex_wait"}
	a := Thread{Frames: []format.Frame{kernel, native("recv", "/a/libc.so.6", 1), python("load", "data.py", 12)}}
	b := Thread{Frames: []format.Frame{native("recv", "/b/libc.so.6", 2), python("load", "data.py", 12)}}
	c := Thread{Frames: []format.Frame{native("recv", "/a/libc.so.6", 1), python("load", "data.py", 13)}}
	if a.Key() != b.Key() {
		t.Error("the same lines are different")
	}
	if a.Key() == c.Key() {
		t.Error("different lines are equal")
	}
	missed := Thread{State: "running"}
	if missed.Key() == (&Thread{State: "sleeping"}).Key() || missed.Site() != "" {
		t.Error("threads without frames are equal")
	}
}

func TestCollectives(t *testing.T) {
	testclass.Unit(t)
	const c10d = "/venv/torch/distributed/distributed_c10d.py"
	for name, c := range map[string]struct {
		frames []format.Frame
		want   string
	}{
		"torch":      {[]format.Frame{python("all_reduce", c10d, 1), python("wrapper", c10d, 2), python("step", "t.py", 3)}, "all_reduce"},
		"barrier":    {[]format.Frame{python("_wait", c10d, 1), python("barrier", c10d, 1), python("step", "t.py", 3)}, "barrier"},
		"launcher":   {[]format.Frame{python("_poll", "/venv/torch/distributed/elastic/agent.py", 1)}, ""},
		"nccl":       {[]format.Frame{native("ncclAllReduce", "libnccl.so.2", 1), native("main", "app", 2)}, "ncclAllReduce"},
		"nccl's own": {[]format.Frame{native("ncclProxyService(void*)", "libnccl.so.2", 1)}, ""},
		"none":       {[]format.Frame{python("step", "t.py", 3)}, ""},
	} {
		if got := (&Thread{Frames: c.frames}).Collective(); got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

func TestMainThread(t *testing.T) {
	testclass.Unit(t)
	py := []format.Frame{python("step", "t.py", 3)}
	snapshot := Snapshot{Pid: 1, Threads: []Thread{
		{Pid: 1, Tid: 2},
		{Pid: 1, Tid: 1, Frames: py},
		{Pid: 1, Tid: 3, Wait: format.WaitFact{CUDACall: "cuEventQuery"}},
	}}
	if got := snapshot.Main(0).Tid; got != 3 {
		t.Errorf("the main thread is %d: it is not in the CUDA call", got)
	}
	if got := snapshot.Main(2).Tid; got != 2 {
		t.Errorf("the preferred thread is not the main one: %d", got)
	}
	snapshot.Threads = snapshot.Threads[:2]
	if got := snapshot.Main(0).Tid; got != 1 {
		t.Errorf("the first thread is not the main one: %d", got)
	}
	if (&Snapshot{}).Main(0) != nil {
		t.Error("a snapshot without threads has a main one")
	}
}

func TestGroups(t *testing.T) {
	testclass.Unit(t)
	add := func(pid int32, rank int64, line int32, cuda string) Member {
		th := Thread{
			Pid:    pid,
			Tid:    pid,
			Frames: []format.Frame{python("f", "t.py", line)},
			Wait:   format.WaitFact{CUDACall: cuda},
		}
		return Member{Snapshot: &Snapshot{Pid: pid, Threads: []Thread{th}}, Thread: &th, Rank: rank}
	}
	for name, c := range map[string]struct {
		members []Member
		want    string
	}{
		"one differs": {
			[]Member{add(12, 2, 7, ""), add(10, 0, 5, "cuCtxSynchronize"), add(11, 1, 5, "cuCtxSynchronize")}, "[10 11] [12]",
		},
		"two, and one waits": {[]Member{add(10, 0, 7, ""), add(11, 1, 5, "cuCtxSynchronize")}, "[11] [10]"},
		"helpers":            {[]Member{add(10, 0, 5, "cuCtxSynchronize"), add(20, 0, 9, ""), add(11, 1, 7, ""), add(21, 1, 9, "")}, "[10] [11]"},
		"unknown ranks":      {[]Member{add(10, UnknownRank, 5, ""), add(11, UnknownRank, 6, "")}, "[10] [11]"},
		"none":               {nil, ""},
	} {
		got := ""
		for _, g := range GroupMembers(DropHelpers(c.members)) {
			var pids []int32
			for _, m := range g.Members {
				pids = append(pids, m.Snapshot.Pid)
			}
			if got != "" {
				got += " "
			}
			got += fmt.Sprint(pids)
		}
		if got != c.want {
			t.Errorf("%s: %s, not %s", name, got, c.want)
		}
	}
}

func TestSince(t *testing.T) {
	testclass.Unit(t)
	thread := func(line int32, off int64) []Thread {
		return []Thread{{Tid: 1, OffNs: off, Frames: []format.Frame{python("f", "t.py", line)}}}
	}
	snapshots := []Snapshot{
		{AtNs: 100, Threads: thread(5, 50)}, {AtNs: 200, Threads: thread(6, 20)}, {AtNs: 300, Threads: thread(6, 1)},
	}
	if got := SinceNs(snapshots, &snapshots[2].Threads[0], 310); got != 130 {
		t.Errorf("since %d ns, not 130: two snapshots have the line", got)
	}
	if got := SinceNs(nil, &snapshots[0].Threads[0], 310); got != 0 {
		t.Errorf("since %d ns without snapshots", got)
	}
}
