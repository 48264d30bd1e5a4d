package analyze

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	oompkg "github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/format"
)

// torchScript writes the events of an allocator as they are told, with its books.
type torchScript struct {
	tp                  *tape
	now                 int64
	pool, stream        int64
	allocated, reserved int64
}

// row writes an event with the books as they are now, a millisecond after the last.
func (s *torchScript) row(name string, ptr, bytes int64) *format.Row {
	s.now += ms
	return s.tp.add(format.Row{Kind: format.KindAllocator, Name: name, StartNs: epoch + s.now, Pid: 42, Tid: 42, MemoryKind: format.MemoryTorch, Ptr: ptr, Bytes: bytes,
		Stream: s.stream, SrcPtr: s.pool, StackStatus: format.StackNone, AllocatedBytes: s.allocated, ReservedBytes: s.reserved})
}

// segment gets memory from the driver, and tells so.
func (s *torchScript) segment(ptr, bytes int64) {
	s.now += ms
	s.tp.alloc(s.now, us, ptr, bytes)
	s.reserved += bytes
	at(s.row(format.AllocatorSegmentAlloc, ptr, bytes), 2, "forward (model.py:12)")
}

func (s *torchScript) giveBack(ptr, bytes int64) {
	s.row(format.AllocatorSegmentFree, ptr, bytes)
	s.reserved -= bytes
	s.now += ms
	s.tp.free(s.now, us, ptr)
}

func (s *torchScript) block(ptr, bytes int64, site string) {
	at(s.row(format.AllocatorAlloc, ptr, bytes), 1, site)
	s.allocated += bytes
}

func (s *torchScript) free(ptr, bytes int64) {
	s.allocated -= bytes
	s.row(format.AllocatorFreeRequested, ptr, bytes)
	s.row(format.AllocatorFreeCompleted, ptr, bytes)
}

// refused is a call of the driver that fails.
func (s *torchScript) refused(bytes int64) *format.Row {
	s.now += ms
	r := at(s.tp.alloc(s.now, us, 0, bytes), 2, "forward (model.py:12)")
	r.Result = calls.ResultOutOfMemory
	return r
}

func (s *torchScript) oom(bytes, free int64) {
	at(s.row(format.AllocatorOOM, 0, bytes), 2, "forward (model.py:12)").Value = float64(free)
}

// sparse makes n segments of a size with a block at the beginning of each and nothing
// behind.
func (s *torchScript) sparse(n, size, block int64) {
	for i := range n {
		ptr := 0x7f0000000000 + i*0x10000000
		s.segment(ptr, size)
		s.block(ptr, block, "keep (train.py:3)")
	}
}

// sparse2 does the same at other addresses.
func (s *torchScript) sparse2(n, size, block int64) {
	for i := range n {
		ptr := 0x7d0000000000 + i*0x10000000
		s.segment(ptr, size)
		s.block(ptr, block, "other (train.py:5)")
	}
}

func newTorchScript(t testing.TB) *torchScript {
	tp := newTape(t)
	tp.add(format.Row{Kind: format.KindDevice, Name: "NVIDIA H200", Bytes: 1000 * mib, StartNs: epoch})
	tp.add(format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: epoch, Device: -1})
	tp.libraryStack(1, "/opt/torch/lib/libc10_cuda.so", "malloc")
	tp.libraryStack(2, "/opt/torch/lib/libtorch_cuda.so", "empty_cuda")
	tp.libraryStack(3, "/opt/nvidia/libnccl.so.2", "ncclCommInitRank")
	return &torchScript{tp: tp, now: second}
}

func (s *torchScript) used(pid int32, name string, bytes int64) {
	r := s.tp.nvml(0, s.now, catalog.MetricOfProcess, float64(bytes))
	r.Pid, r.Message = pid, name
}

func (s *torchScript) asked(free int64) {
	r := s.tp.api("cuMemGetInfo_v2", s.now, 0, 0)
	r.Bytes, r.Value = free, float64(1000*mib)
}

func (s *torchScript) launch() {
	s.now += ms
	s.tp.call(format.KindLaunch, "cuLaunchKernel", s.now, us).Kernel = "gemm"
}

// oomCase is a program that fails once, and what is to be said of it.
type oomCase struct {
	script  func(*torchScript)
	class   oompkg.OomClass
	outcome oompkg.Aftermath
	fits    string
	calls   int64
	says    string // part of the evidence
}

var oomCases = map[string]oomCase{
	"more than there is": {func(s *torchScript) {
		s.sparse(9, 100*mib, 100*mib)
		s.refused(300 * mib)
		s.refused(300 * mib)
		s.oom(300*mib, 100*mib)
	}, oompkg.OomCapacity, oompkg.NothingSince, "no", 2, "100.0 MiB free, 0 B of the allocator's memory unused; the driver refused 2 times"},
	"gaps of 14 MiB": {func(s *torchScript) {
		s.sparse(40, 20*mib, 6*mib)
		s.refused(300 * mib)
		s.refused(300 * mib)
		s.oom(300*mib, 200*mib)
		s.launch()
	}, oompkg.OomFragmentation, oompkg.WentOn, "perhaps", 2, "560.0 MiB unused in segments, but the largest piece has 14.0 MiB"},
	"gaps of 90 MiB": {func(s *torchScript) {
		s.sparse(9, 100*mib, 10*mib)
		s.refused(300 * mib)
		s.oom(300*mib, 100*mib)
		s.tp.exit(42, 30*second)
	}, oompkg.OomFragmentation, oompkg.EndedThere, "yes", 1, "with expandable segments it would have fitted"},
	"gaps of another stream": {func(s *torchScript) {
		s.stream = 0x77
		s.sparse(4, 200*mib, 10*mib)
		s.stream = 0
		s.refused(150 * mib)
		s.oom(150*mib, 100*mib)
		s.segment(0x7e0000000000, 150*mib)
		s.block(0x7e0000000000, 150*mib, "forward (model.py:12)")
	}, oompkg.OomFragmentation, oompkg.Recovered, "yes", 1, "largest piece has 190.0 MiB and is of no use here"},
	"memory fraction": {func(s *torchScript) {
		s.sparse(2, 100*mib, 100*mib)
		s.oom(100*mib, 800*mib)
		s.launch()
	}, oompkg.OomLimit, oompkg.WentOn, "no", 0, "gave up without asking the driver"},
	"memory fraction, and gaps that are enough": {func(s *torchScript) {
		s.sparse(40, 20*mib, 6*mib)
		s.oom(300*mib, 700*mib)
		s.launch()
	}, oompkg.OomLimit, oompkg.WentOn, "perhaps", 0, "the request of 300.0 MiB would have fit into 560.0 MiB of unused memory in one piece, or without the limit of 800.0 MiB to 1.1 GiB; expandable segments would have helped if"},
	"memory fraction, and large gaps": {func(s *torchScript) {
		s.sparse(5, 110*mib, 10*mib)
		s.oom(300*mib, 450*mib)
	}, oompkg.OomLimit, oompkg.NothingSince, "yes", 0, "into 500.0 MiB of unused memory in one piece, or without the limit of 550.0 MiB to 850.0 MiB; with expandable segments it would have fitted"},
	"memory fraction, and gaps that are just enough": {func(s *torchScript) {
		s.sparse(10, 20*mib, 6*mib)
		s.oom(140*mib, 700*mib)
	}, oompkg.OomLimit, oompkg.NothingSince, "perhaps", 0, "would have fit into 140.0 MiB of unused memory"},
	"memory fraction, and gaps that are not enough": {func(s *torchScript) {
		s.sparse(10, 20*mib, 6*mib)
		s.oom(140*mib+512, 700*mib)
	}, oompkg.OomLimit, oompkg.NothingSince, "no", 0, "a limit on it, such as set_per_process_memory_fraction or one of a pool; "},
	"memory fraction, and one large gap of another stream": {func(s *torchScript) {
		s.stream = 0x77
		s.sparse(1, 400*mib, 10*mib)
		s.stream = 0
		s.sparse2(10, 20*mib, 6*mib)
		s.oom(300*mib, 400*mib)
	}, oompkg.OomLimit, oompkg.NothingSince, "yes", 0, "an unused piece of 390.0 MiB is of no use here: it is of another stream, pool or size"},
	"memory fraction, and gaps of several streams": {func(s *torchScript) {
		s.stream = 0x77
		s.sparse(10, 20*mib, 6*mib)
		s.stream = 0
		s.sparse2(10, 20*mib, 6*mib)
		s.oom(200*mib, 400*mib)
	}, oompkg.OomLimit, oompkg.NothingSince, "perhaps", 0, "would have fit into 280.0 MiB of unused memory in one piece"},
	"a fraction that was lowered": {func(s *torchScript) {
		s.sparse2(1, 900*mib, mib)
		s.free(0x7d0000000000, mib)
		s.giveBack(0x7d0000000000, 900*mib)
		s.sparse(10, 20*mib, 6*mib)
		s.oom(100*mib, 700*mib)
	}, oompkg.OomLimit, oompkg.NothingSince, "perhaps", 0, "or without the limit of less than 300.0 MiB"},
	"the driver's limit, and gaps that are enough": {func(s *torchScript) {
		s.sparse(10, 20*mib, 6*mib)
		s.refused(100 * mib)
		s.oom(100*mib, 700*mib)
	}, oompkg.OomLimit, oompkg.NothingSince, "yes", 1, "would have fit into 140.0 MiB of unused memory in one piece, or without the limit; with"},
	"gaps that are enough, and NCCL below a quota": {func(s *torchScript) {
		s.sparse(10, 20*mib, 6*mib)
		s.asked(700 * mib)
		at(s.refused(100*mib), 3, "init (train.py:1)")
	}, oompkg.OomLimit, oompkg.NothingSince, "", 1, "the driver refused: a limit such as"},
	"another process": {func(s *torchScript) {
		s.sparse(2, 100*mib, 100*mib)
		s.used(42, "train", 200*mib)
		s.used(99, "notebook", 700*mib)
		s.refused(300 * mib)
		s.oom(300*mib, 100*mib)
	}, oompkg.OomOtherProcess, oompkg.NothingSince, "no", 1, "other processes used 700.0 MiB (99 notebook 700.0 MiB)"},
	"cached by PyTorch, wanted by NCCL": {func(s *torchScript) {
		s.sparse(9, 100*mib, 10*mib)
		for i := range int64(9) {
			s.free(0x7f0000000000+i*0x10000000, 10*mib)
		}
		s.asked(100 * mib)
		at(s.refused(200*mib), 3, "init (train.py:1)")
		s.launch()
	}, oompkg.OomCached, oompkg.WentOn, "", 1, "900.0 MiB more in whole segments of PyTorch's cache"},
	"tried again by PyTorch": {func(s *torchScript) {
		s.sparse(9, 100*mib, 10*mib)
		for i := range int64(9) {
			s.free(0x7f0000000000+i*0x10000000, 10*mib)
		}
		s.asked(100 * mib)
		s.refused(300 * mib)
		for i := range int64(3) {
			s.giveBack(0x7f0000000000+i*0x10000000, 100*mib)
		}
		s.segment(0x7e0000000000, 300*mib)
		s.block(0x7e0000000000, 299*mib, "forward (model.py:12)")
	}, oompkg.OomCached, oompkg.Retried, "yes", 1, "the driver refused 1 time, 300.0 MiB were given back in between; it succeeded"},
	"a plain program": {func(s *torchScript) {
		s.tp.alloc(second, us, 0x7f0000000000, 900*mib)
		s.now += second
		s.asked(100 * mib)
		s.refused(200 * mib)
		s.tp.free(s.now+500*ms, us, 0x7f0000000000)
		s.tp.alloc(s.now+12*second, us, 0x7f0000000000, 400*mib)
	}, oompkg.OomCapacity, oompkg.Recovered, "", 1, "900.0 MiB were freed within the next second"},
	"a sample from before the memory was filled": {func(s *torchScript) {
		s.tp.nvml(0, s.now, catalog.MetricMemoryFree, float64(990*mib))
		s.tp.alloc(s.now+ms, us, 0x7f0000000000, 900*mib)
		s.now += 2 * ms
		s.refused(200 * mib)
	}, oompkg.OomCapacity, oompkg.NothingSince, "", 1, "at most 100.0 MiB free"},
	"a pool with a maximum": {func(s *torchScript) {
		s.asked(800 * mib)
		r := s.refused(200 * mib)
		r.Name, r.MemoryKind = "cuMemAllocAsync", format.MemoryAsync
	}, oompkg.OomLimit, oompkg.NothingSince, "", 1, "the pool may have a maximum"},
	"memory of the host": {func(s *torchScript) {
		r := s.refused(200 * mib)
		r.Name, r.MemoryKind = "cuMemHostAlloc", format.MemoryHost
	}, oompkg.OomLimit, oompkg.NothingSince, "", 1, "is the host's"},
	"nobody asked": {func(s *torchScript) {
		s.refused(200 * mib)
	}, oompkg.OomUnknown, oompkg.NothingSince, "", 1, "nobody asked how much was free"},
}

func TestOOMClasses(t *testing.T) {
	for name, c := range oomCases {
		s := newTorchScript(t)
		c.script(s)
		r, err := oompkg.Run(s.tp.timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for column, want := range map[string]string{
			"class": c.class.String(), "outcome": c.outcome.String(), "driver_calls": fmt.Sprint(c.calls), "expandable_fits": map[bool]string{true: "<nil>", false: c.fits}[c.fits == ""],
		} {
			if got := cells(t, r, "failures", column); len(got) != 1 || got[0] != want {
				t.Errorf("%s: %s %v, want %s", name, column, got, want)
			}
		}
		if got := r.Tables[0].Rows[0].Evidence; !strings.Contains(got, c.says) {
			t.Errorf("%s: %s", name, got)
		}
		if n, _, _ := r.Number(strings.ReplaceAll(c.class.String(), " ", "_")); n != 1 {
			t.Errorf("%s: %v of class %s", name, n, c.class)
		}
		also, said := "<nil>", 0.0
		if c.class == oompkg.OomLimit && strings.Contains(c.says, "would have fit") || name == "a fraction that was lowered" {
			also, said = "fragmentation", 1
		}
		if got := cells(t, r, "failures", "also"); got[0] != also {
			t.Errorf("%s: also %v, want %s", name, got, also)
		}
		if n, _, _ := r.Number("fragmentation_under_limit"); n != said {
			t.Errorf("%s: %v failures are fragmentation under a limit", name, n)
		}
	}
}

func TestOOMConfidenceGoesDown(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*torchScript)
		want   string
		reason string
	}{
		"complete": {func(*torchScript) {}, report.ConfidenceHigh, ""},
		"lost events": {func(s *torchScript) {
			s.tp.meta.Calls = map[string]format.CallCount{report.LostAllocator: {Lost: 3}}
		}, report.ConfidenceLow, "3 events of the allocator were lost"},
		"other totals": {func(s *torchScript) {
			for _, r := range s.tp.rows[len(s.tp.rows)-40:] {
				if r.Kind == format.KindAllocator {
					r.AllocatedBytes += 1000 // no block is so much larger
				}
			}
		}, report.ConfidenceLow, "the allocator counts other bytes"},
		"attached later": {func(s *torchScript) {
			s.tp.rows = slices.DeleteFunc(s.tp.rows, func(r *format.Row) bool { return r.Kind == format.KindAllocator && r.StartNs < epoch+second+30*ms })
		}, report.ConfidenceMedium, "of the allocator's segments are older than the recording"},
	} {
		s := newTorchScript(t)
		oomCases["gaps of 14 MiB"].script(s)
		c.change(s)
		r, err := oompkg.Run(s.tp.timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := cells(t, r, "failures", "confidence"); got[0] != c.want {
			t.Errorf("%s: confidence %v, want %s: %s", name, got, c.want, r.Tables[0].Rows[0].Evidence)
		}
		if got := r.Tables[0].Rows[0].Evidence; !strings.Contains(got, c.reason) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestOOMTellsWhyCachedMemoryWasOfNoUse(t *testing.T) {
	s := newTorchScript(t)
	s.segment(0x7e0000000000, 2*mib)
	s.block(0x7e0000000000, mib/2, "bias (model.py:1)")
	s.stream = 0x77
	s.segment(0x7d0000000000, 80*mib)
	s.block(0x7d0000000000, 10*mib, "side (model.py:2)")
	s.stream, s.pool = 0, -3
	s.segment(0x7c0000000000, 60*mib)
	s.block(0x7c0000000000, 10*mib, "graph (model.py:3)")
	s.pool = 0
	s.sparse(3, 20*mib, 6*mib)
	s.row(format.AllocatorFreeRequested, 0x7f0000000000, 6*mib).AllocatedBytes -= 6 * mib
	s.allocated -= 6 * mib
	s.refused(100 * mib)
	s.oom(100*mib, 40*mib)
	r, err := oompkg.Run(s.tp.timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	reasons, bytes, by := cells(t, r, "cached", "reason"), cells(t, r, "cached", "bytes"), cells(t, r, "cached", "held_by")
	for i := range reasons {
		got[reasons[i]] = bytes[i] + " " + by[i]
	}
	for reason, want := range map[oompkg.CachedReason]string{
		oompkg.OtherClass: fmt.Sprint(3*mib/2, " bias (model.py:1)"), oompkg.OtherStream: fmt.Sprint(70*mib, " side (model.py:2)"), oompkg.OtherPool: fmt.Sprint(50*mib, " graph (model.py:3)"),
		oompkg.TooSmall: fmt.Sprint(42*mib, " keep (train.py:3)"), oompkg.Awaited: fmt.Sprint(6*mib, " keep (train.py:3)"),
	} {
		if got[reason.String()] != want {
			t.Errorf("%s: %s, want %s", reason, got[reason.String()], want)
		}
	}
}

// oomTape has failures of all sorts.
func oomTape(t testing.TB) *tape {
	s := newTorchScript(t)
	s.used(42, "train", 300*mib)
	s.sparse(40, 20*mib, 6*mib)
	s.refused(300 * mib)
	s.refused(300 * mib)
	s.oom(300*mib, 200*mib)
	for i := range int64(40) {
		s.free(0x7f0000000000+i*0x10000000, 6*mib)
	}
	s.now += second
	s.asked(200 * mib)
	s.refused(300 * mib)
	for i := range int64(40) {
		s.giveBack(0x7f0000000000+i*0x10000000, 20*mib)
	}
	s.segment(0x7e0000000000, 300*mib)
	s.block(0x7e0000000000, 300*mib, "forward (model.py:12)")
	s.now += second
	host := s.refused(64 * mib)
	host.Name, host.MemoryKind = "cuMemHostAlloc", format.MemoryHost
	s.launch()
	return s.tp
}

func TestOOMReport(t *testing.T) {
	r, err := oompkg.Run(oomTape(t).timeline(), query.Options{Top: 20, MaxFrames: 12})
	if err != nil {
		t.Fatal(err)
	}
	goldens(t, r, "oom", 110)
	for name, want := range map[string]float64{"failures": 3, "fatal": 0, "retried": 1, "fragmentation": 1, "cached": 1, "limit": 1} {
		if got, ok, _ := r.Number(name); !ok || got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
}

// limitedTape fails twice under a limit: the first request would fit into the unused memory in one
// piece, the second would not.
func limitedTape(t testing.TB) *tape {
	s := newTorchScript(t)
	s.sparse(35, 200*mib, 98*mib)
	s.oom(2150*mib, 130<<30)
	s.oom(4000*mib, 130<<30)
	s.launch()
	return s.tp
}

func TestOOMUnderALimit(t *testing.T) {
	tl := limitedTape(t).timeline()
	r, err := oompkg.Run(tl, query.Options{Top: 20, MaxFrames: 12})
	if err != nil {
		t.Fatal(err)
	}
	goldens(t, r, "oomlimit", 130)
	for name, want := range map[string]float64{"failures": 2, "limit": 2, "fragmentation": 0, "fragmentation_under_limit": 1} {
		if got, ok, _ := r.Number(name); !ok || got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
}

// TestRulesNameBothSidesOfALimit: what is fragmentation too has two remedies, what is not has one.
func TestRulesNameBothSidesOfALimit(t *testing.T) {
	for name, c := range map[string]struct {
		script           func(*torchScript)
		what, fragmented string // of out-of-memory, and of oom-fragmentation
		advice           string
	}{
		"gaps that are enough": {func(s *torchScript) { s.sparse(40, 20*mib, 6*mib); s.oom(300*mib, 700*mib) },
			"(limit and fragmentation 1)", "300.0 MiB could not be had with 700.0 MiB free and 560.0 MiB unused in segments (largest piece 14.0 MiB), under a limit",
			"Enough was unused, but in pieces: try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or raise the limit (torch.cuda.set_per_process_memory_fraction)."},
		"gaps without whole pages": {func(s *torchScript) { s.sparse(40, 2*mib, mib); s.oom(30*mib, 700*mib) },
			"(limit and fragmentation 1)", "30.0 MiB could not be had",
			"Enough was unused, but in pieces: free the blocks between the pieces (gpurec analyze frag), or raise the limit (torch.cuda.set_per_process_memory_fraction)."},
		"the driver's limit": {func(s *torchScript) { s.sparse(40, 20*mib, 6*mib); s.refused(300 * mib); s.oom(300*mib, 700*mib) },
			"(limit and fragmentation 1)", "300.0 MiB could not be had", "or raise the limit (a MIG slice, a cgroup or a quota)."},
		"gaps that are not enough": {func(s *torchScript) { s.sparse(10, 20*mib, 6*mib); s.oom(300*mib, 700*mib) },
			"(limit 1)", "", "A limit said no, not the device"},
	} {
		s := newTorchScript(t)
		c.script(s)
		r := checked(t, s.tp, rules.Options{Rules: []string{"out-of-memory", "oom-fragmentation"}})
		what, advice := cells(t, r, "hits", "what"), cells(t, r, "hits", "advice")
		if len(what) == 0 || !strings.Contains(what[0], c.what) || !strings.Contains(advice[0], c.advice) {
			t.Errorf("%s: %q %q", name, what, advice)
			continue
		}
		if got := strings.Join(what[1:], "; "); got == "" != (c.fragmented == "") || !strings.HasPrefix(got, c.fragmented) {
			t.Errorf("%s: %q", name, got)
		}
		if len(what) > 1 && advice[1] != advice[0] {
			t.Errorf("%s: advice %q", name, advice)
		}
	}
}

func TestOOMFollowsTheFilter(t *testing.T) {
	for name, c := range map[string]struct {
		filter query.Filter
		want   int
		blame  string
	}{
		"all":            {query.Filter{}, 3, ""},
		"large ones":     {query.Filter{MinBytes: 100 * mib}, 2, ""},
		"the first":      {query.Filter{ToNs: epoch + 2*second}, 1, ""},
		"other process":  {query.Filter{Pids: []int32{7}}, 0, "pid"},
		"other device":   {query.Filter{Devices: []int32{3}}, 0, "device"},
		"nothing inside": {query.Filter{FromNs: epoch + 50*second}, 0, ""},
	} {
		r, err := oompkg.Run(oomTape(t).timeline(), query.Options{Filter: c.filter})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(r.Tables[0].Rows); n != c.want {
			t.Errorf("%s: %d rows, want %d", name, n, c.want)
		}
		if c.want == 0 && (r.NoMatch == nil || r.NoMatch.Filter != c.blame) {
			t.Errorf("%s: %v", name, r.NoMatch)
		}
	}
}

// TestManyFailuresAreBounded: those that did harm are looked at first.
func TestManyFailuresAreBounded(t *testing.T) {
	s := newTorchScript(t)
	for range 3 * oompkg.MaxScenes {
		s.refused(200 * mib)
		s.tp.alloc(s.now+us*10, us, 0x7f0000000000, 200*mib)
		s.tp.free(s.now+us*20, us, 0x7f0000000000)
	}
	s.now += second
	s.refused(300 * mib)
	r, err := oompkg.Run(s.tp.timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	outcomes := cells(t, r, "failures", "outcome")
	if n, _, _ := r.Number("failures"); n != 3*oompkg.MaxScenes+1 || len(outcomes) != oompkg.MaxScenes || outcomes[oompkg.MaxScenes-1] != oompkg.NothingSince.String() {
		t.Errorf("%v failures, %d rows, the last %s", n, len(outcomes), outcomes[len(outcomes)-1])
	}
}
