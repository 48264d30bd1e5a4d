package oom_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// oomCase is a program with one failed allocation, and the expected verdict.
type oomCase struct {
	script  func(*analyzetest.TorchScript)
	class   oom.FailureClass
	outcome oom.Outcome
	fits    string
	calls   int64
	says    string // part of the evidence
}

var oomCases = map[string]oomCase{
	"more than there is": {func(s *analyzetest.TorchScript) {
		s.AddSparseSegments(9, 100*analyzetest.Mib, 100*analyzetest.Mib)
		s.AddFailedDriverAlloc(300 * analyzetest.Mib)
		s.AddFailedDriverAlloc(300 * analyzetest.Mib)
		s.AddOutOfMemory(300*analyzetest.Mib, 100*analyzetest.Mib)
	}, oom.ClassCapacity, oom.OutcomeInactive, "no", 2, "100.0 MiB were free, and 0 B unused in the allocator's segments; the driver " +
		"refused 2 times"},
	"gaps of 14 MiB": {func(s *analyzetest.TorchScript) {
		s.AddSparseSegments(40, 20*analyzetest.Mib, 6*analyzetest.Mib)
		s.AddFailedDriverAlloc(300 * analyzetest.Mib)
		s.AddFailedDriverAlloc(300 * analyzetest.Mib)
		s.AddOutOfMemory(300*analyzetest.Mib, 200*analyzetest.Mib)
		s.AddLaunch()
	}, oom.ClassFragmentation, oom.OutcomeContinued, "perhaps", 2, "560.0 MiB unused in segments, but the largest piece is 14.0 MiB"},
	"gaps of 90 MiB": {func(s *analyzetest.TorchScript) {
		s.AddSparseSegments(9, 100*analyzetest.Mib, 10*analyzetest.Mib)
		s.AddFailedDriverAlloc(300 * analyzetest.Mib)
		s.AddOutOfMemory(300*analyzetest.Mib, 100*analyzetest.Mib)
		s.Tp.AddExit(42, 30*analyzetest.Second)
	}, oom.ClassFragmentation, oom.OutcomeEnded, "yes", 1, "with expandable segments the request would have succeeded"},
	"gaps of another stream": {func(s *analyzetest.TorchScript) {
		s.Stream = 0x77
		s.AddSparseSegments(4, 200*analyzetest.Mib, 10*analyzetest.Mib)
		s.Stream = 0
		s.AddFailedDriverAlloc(150 * analyzetest.Mib)
		s.AddOutOfMemory(150*analyzetest.Mib, 100*analyzetest.Mib)
		s.AddSegment(0x7e0000000000, 150*analyzetest.Mib)
		s.AddBlock(0x7e0000000000, 150*analyzetest.Mib, "forward (model.py:12)")
	}, oom.ClassFragmentation, oom.OutcomeRecovered, "yes", 1, "largest piece is 190.0 MiB and cannot serve this request"},
	"memory fraction": {func(s *analyzetest.TorchScript) {
		s.AddSparseSegments(2, 100*analyzetest.Mib, 100*analyzetest.Mib)
		s.AddOutOfMemory(100*analyzetest.Mib, 800*analyzetest.Mib)
		s.AddLaunch()
	}, oom.ClassLimit, oom.OutcomeContinued, "no", 0, "gave up without calling the driver"},
	"memory fraction, and gaps that are enough": {func(s *analyzetest.TorchScript) {
		s.AddSparseSegments(40, 20*analyzetest.Mib, 6*analyzetest.Mib)
		s.AddOutOfMemory(300*analyzetest.Mib, 700*analyzetest.Mib)
		s.AddLaunch()
	}, oom.ClassLimit, oom.OutcomeContinued, "perhaps", 0, "the request of 300.0 MiB would have succeeded if 560.0 MiB of " +
		"unused memory were in one piece, or without the limit of 800.0 MiB to 1.1 GiB; expandable segments would have helped if"},
	"memory fraction, and large gaps": {func(s *analyzetest.TorchScript) {
		s.AddSparseSegments(5, 110*analyzetest.Mib, 10*analyzetest.Mib)
		s.AddOutOfMemory(300*analyzetest.Mib, 450*analyzetest.Mib)
	}, oom.ClassLimit, oom.OutcomeInactive, "yes", 0, "if 500.0 MiB of unused memory were in one piece, or without the limit " +
		"of 550.0 MiB to 850.0 MiB; with expandable segments the request would have succeeded"},
	"memory fraction, and gaps that are just enough": {func(s *analyzetest.TorchScript) {
		s.AddSparseSegments(10, 20*analyzetest.Mib, 6*analyzetest.Mib)
		s.AddOutOfMemory(140*analyzetest.Mib, 700*analyzetest.Mib)
	}, oom.ClassLimit, oom.OutcomeInactive, "perhaps", 0, "would have succeeded if 140.0 MiB of unused memory"},
	"memory fraction, and gaps that are not enough": {func(s *analyzetest.TorchScript) {
		s.AddSparseSegments(10, 20*analyzetest.Mib, 6*analyzetest.Mib)
		s.AddOutOfMemory(140*analyzetest.Mib+512, 700*analyzetest.Mib)
	}, oom.ClassLimit, oom.OutcomeInactive, "no", 0, "it has a limit, such as set_per_process_memory_fraction or that of a " +
		"pool; "},
	"memory fraction, and one large gap of another stream": {func(s *analyzetest.TorchScript) {
		s.Stream = 0x77
		s.AddSparseSegments(1, 400*analyzetest.Mib, 10*analyzetest.Mib)
		s.Stream = 0
		s.AddOtherSparseSegments(10, 20*analyzetest.Mib, 6*analyzetest.Mib)
		s.AddOutOfMemory(300*analyzetest.Mib, 400*analyzetest.Mib)
	}, oom.ClassLimit, oom.OutcomeInactive, "yes", 0, "an unused piece of 390.0 MiB does not help: it is for another " +
		"stream, pool or size class"},
	"memory fraction, and gaps of several streams": {func(s *analyzetest.TorchScript) {
		s.Stream = 0x77
		s.AddSparseSegments(10, 20*analyzetest.Mib, 6*analyzetest.Mib)
		s.Stream = 0
		s.AddOtherSparseSegments(10, 20*analyzetest.Mib, 6*analyzetest.Mib)
		s.AddOutOfMemory(200*analyzetest.Mib, 400*analyzetest.Mib)
	}, oom.ClassLimit, oom.OutcomeInactive, "perhaps", 0, "would have succeeded if 280.0 MiB of unused memory were in one piece"},
	"memory fraction, and gaps that are enough with the rest of the limit": {func(s *analyzetest.TorchScript) {
		s.AddOtherSparseSegments(1, 60*analyzetest.Mib, analyzetest.Mib)
		s.AddSparseSegments(10, 20*analyzetest.Mib, 6*analyzetest.Mib)
		s.AddBlockFree(0x7d0000000000, analyzetest.Mib)
		s.RemoveSegment(0x7d0000000000, 60*analyzetest.Mib)
		s.AddOutOfMemory(190*analyzetest.Mib, 700*analyzetest.Mib)
	}, oom.ClassLimit, oom.OutcomeInactive, "perhaps", 0, "would have succeeded if 140.0 MiB of unused memory"},
	"a fraction that was lowered": {func(s *analyzetest.TorchScript) {
		s.AddOtherSparseSegments(1, 900*analyzetest.Mib, analyzetest.Mib)
		s.AddBlockFree(0x7d0000000000, analyzetest.Mib)
		s.RemoveSegment(0x7d0000000000, 900*analyzetest.Mib)
		s.AddSparseSegments(10, 20*analyzetest.Mib, 6*analyzetest.Mib)
		s.AddOutOfMemory(100*analyzetest.Mib, 700*analyzetest.Mib)
	}, oom.ClassLimit, oom.OutcomeInactive, "perhaps", 0, "or without the limit of less than 300.0 MiB"},
	"the driver's limit, and gaps that are enough": {func(s *analyzetest.TorchScript) {
		s.AddSparseSegments(10, 20*analyzetest.Mib, 6*analyzetest.Mib)
		s.AddFailedDriverAlloc(100 * analyzetest.Mib)
		s.AddOutOfMemory(100*analyzetest.Mib, 700*analyzetest.Mib)
	}, oom.ClassLimit, oom.OutcomeInactive, "yes", 1, "would have succeeded if 140.0 MiB of unused memory were in one piece, or " +
		"without the limit; with"},
	"gaps that are enough, and NCCL below a quota": {func(s *analyzetest.TorchScript) {
		s.AddSparseSegments(10, 20*analyzetest.Mib, 6*analyzetest.Mib)
		s.AddMemGetInfo(700 * analyzetest.Mib)
		analyzetest.SetStackAndSite(s.AddFailedDriverAlloc(100*analyzetest.Mib), 3, "init (train.py:1)")
	}, oom.ClassLimit, oom.OutcomeInactive, "", 1, "the driver refused: a limit of a MIG slice"},
	"another process": {func(s *analyzetest.TorchScript) {
		s.AddSparseSegments(2, 100*analyzetest.Mib, 100*analyzetest.Mib)
		s.AddProcessMemory(42, "train", 200*analyzetest.Mib)
		s.AddProcessMemory(99, "notebook", 700*analyzetest.Mib)
		s.AddFailedDriverAlloc(300 * analyzetest.Mib)
		s.AddOutOfMemory(300*analyzetest.Mib, 100*analyzetest.Mib)
	}, oom.ClassOtherProcess, oom.OutcomeInactive, "no", 1, "other processes used 700.0 MiB (99 notebook 700.0 MiB)"},
	"cached by PyTorch, wanted by NCCL": {func(s *analyzetest.TorchScript) {
		s.AddSparseSegments(9, 100*analyzetest.Mib, 10*analyzetest.Mib)
		for i := range int64(9) {
			s.AddBlockFree(0x7f0000000000+i*0x10000000, 10*analyzetest.Mib)
		}
		s.AddMemGetInfo(100 * analyzetest.Mib)
		analyzetest.SetStackAndSite(s.AddFailedDriverAlloc(200*analyzetest.Mib), 3, "init (train.py:1)")
		s.AddLaunch()
	}, oom.ClassCached, oom.OutcomeContinued, "", 1, "900.0 MiB more in whole segments of PyTorch's cache"},
	"tried again by PyTorch": {func(s *analyzetest.TorchScript) {
		s.AddSparseSegments(9, 100*analyzetest.Mib, 10*analyzetest.Mib)
		for i := range int64(9) {
			s.AddBlockFree(0x7f0000000000+i*0x10000000, 10*analyzetest.Mib)
		}
		s.AddMemGetInfo(100 * analyzetest.Mib)
		s.AddFailedDriverAlloc(300 * analyzetest.Mib)
		for i := range int64(3) {
			s.RemoveSegment(0x7f0000000000+i*0x10000000, 100*analyzetest.Mib)
		}
		s.AddSegment(0x7e0000000000, 300*analyzetest.Mib)
		s.AddBlock(0x7e0000000000, 299*analyzetest.Mib, "forward (model.py:12)")
	}, oom.ClassCached, oom.OutcomeRetried, "yes", 1, "the driver refused 1 time, and the allocator returned 300.0 MiB to " +
		"the driver in between; the same request succeeded"},
	"a plain program": {func(s *analyzetest.TorchScript) {
		s.Tp.AddAlloc(analyzetest.Second, analyzetest.Us, 0x7f0000000000, 900*analyzetest.Mib)
		s.Now += analyzetest.Second
		s.AddMemGetInfo(100 * analyzetest.Mib)
		s.AddFailedDriverAlloc(200 * analyzetest.Mib)
		s.Tp.AddFree(s.Now+500*analyzetest.Ms, analyzetest.Us, 0x7f0000000000)
		s.Tp.AddAlloc(s.Now+12*analyzetest.Second, analyzetest.Us, 0x7f0000000000, 400*analyzetest.Mib)
	}, oom.ClassCapacity, oom.OutcomeRecovered, "", 1, "900.0 MiB were freed within the next second"},
	"a sample from before the memory was filled": {func(s *analyzetest.TorchScript) {
		s.Tp.AddNVMLSample(0, s.Now, catalog.MetricMemoryFree, float64(990*analyzetest.Mib))
		s.Tp.AddAlloc(s.Now+analyzetest.Ms, analyzetest.Us, 0x7f0000000000, 900*analyzetest.Mib)
		s.Now += 2 * analyzetest.Ms
		s.AddFailedDriverAlloc(200 * analyzetest.Mib)
	}, oom.ClassCapacity, oom.OutcomeInactive, "", 1, "at most 100.0 MiB were free"},
	"a pool with a maximum": {func(s *analyzetest.TorchScript) {
		s.AddMemGetInfo(800 * analyzetest.Mib)
		r := s.AddFailedDriverAlloc(200 * analyzetest.Mib)
		r.Name, r.MemoryKind = "cuMemAllocAsync", format.MemoryAsync
	}, oom.ClassLimit, oom.OutcomeInactive, "", 1, "the pool may have a maximum"},
	"memory of the host": {func(s *analyzetest.TorchScript) {
		r := s.AddFailedDriverAlloc(200 * analyzetest.Mib)
		r.Name, r.MemoryKind = "cuMemHostAlloc", format.MemoryHost
	}, oom.ClassLimit, oom.OutcomeInactive, "", 1, "is host memory"},
	"no sample of the free memory": {func(s *analyzetest.TorchScript) {
		s.AddFailedDriverAlloc(200 * analyzetest.Mib)
	}, oom.ClassUnknown, oom.OutcomeInactive, "", 1, "but there is no sample of the free memory"},
}

func TestOOMClasses(t *testing.T) {
	testclass.Unit(t)
	for name, c := range oomCases {
		s := analyzetest.NewTorchScript(t)
		c.script(s)
		r, err := oom.Run(s.Tp.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for column, want := range map[string]string{
			"class":           c.class.String(),
			"outcome":         c.outcome.String(),
			"driver_calls":    fmt.Sprint(c.calls),
			"expandable_fits": map[bool]string{true: "<nil>", false: c.fits}[c.fits == ""],
		} {
			if got := analyzetest.ColumnTexts(t, r, "failures", column); len(got) != 1 || got[0] != want {
				t.Errorf("%s: %s %v, want %s", name, column, got, want)
			}
		}
		if got := r.Tables[0].Rows[0].Evidence; !strings.Contains(got, c.says) {
			t.Errorf("%s: %s", name, got)
		}
		if n, _, _ := r.FindNumber(strings.ReplaceAll(c.class.String(), " ", "_")); n != 1 {
			t.Errorf("%s: %v of class %s", name, n, c.class)
		}
		also, said := "<nil>", 0.0
		if c.class == oom.ClassLimit && strings.Contains(c.says, "of unused memory") ||
			name == "a fraction that was lowered" {
			also, said = "fragmentation", 1
		}
		if got := analyzetest.ColumnTexts(t, r, "failures", "also"); got[0] != also {
			t.Errorf("%s: also %v, want %s", name, got, also)
		}
		if n, _, _ := r.FindNumber("fragmentation_under_limit"); n != said {
			t.Errorf("%s: %v failures are fragmentation under a limit", name, n)
		}
	}
}

func TestOOMConfidenceGoesDown(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		change func(*analyzetest.TorchScript)
		want   string
		reason string
	}{
		"complete": {func(*analyzetest.TorchScript) {}, report.ConfidenceHigh, ""},
		"lost events": {func(s *analyzetest.TorchScript) {
			s.Tp.Meta.Calls = map[string]format.CallCount{report.LostAllocatorClass: {Lost: 3}}
		}, report.ConfidenceLow, "3 events of the allocator lost"},
		"other totals": {func(s *analyzetest.TorchScript) {
			for _, r := range s.Tp.Rows[len(s.Tp.Rows)-40:] {
				if r.Kind == format.KindAllocator {
					r.AllocatedBytes += 1000 // no block is larger than its request by so much
				}
			}
		}, report.ConfidenceLow, "own statistics differ from its recorded events"},
		"attached later": {func(s *analyzetest.TorchScript) {
			s.Tp.Rows = slices.DeleteFunc(s.Tp.Rows, func(r *format.Row) bool {
				return r.Kind == format.KindAllocator && r.StartNs < analyzetest.Epoch+analyzetest.Second+30*analyzetest.Ms
			})
		}, report.ConfidenceMedium, "of the allocator's segments are from before the recording"},
	} {
		s := analyzetest.NewTorchScript(t)
		oomCases["gaps of 14 MiB"].script(s)
		c.change(s)
		r, err := oom.Run(s.Tp.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := analyzetest.ColumnTexts(t, r, "failures", "confidence"); got[0] != c.want {
			t.Errorf("%s: confidence %v, want %s: %s", name, got, c.want, r.Tables[0].Rows[0].Evidence)
		}
		if got := r.Tables[0].Rows[0].Evidence; !strings.Contains(got, c.reason) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestOOMTellsWhyCachedMemoryWasOfNoUse(t *testing.T) {
	testclass.Unit(t)
	s := analyzetest.NewTorchScript(t)
	s.AddSegment(0x7e0000000000, 2*analyzetest.Mib)
	s.AddBlock(0x7e0000000000, analyzetest.Mib/2, "bias (model.py:1)")
	s.Stream = 0x77
	s.AddSegment(0x7d0000000000, 80*analyzetest.Mib)
	s.AddBlock(0x7d0000000000, 10*analyzetest.Mib, "side (model.py:2)")
	s.Stream, s.Pool = 0, -3
	s.AddSegment(0x7c0000000000, 60*analyzetest.Mib)
	s.AddBlock(0x7c0000000000, 10*analyzetest.Mib, "graph (model.py:3)")
	s.Pool = 0
	s.AddSparseSegments(3, 20*analyzetest.Mib, 6*analyzetest.Mib)
	s.AddEvent(format.AllocatorFreeRequested, 0x7f0000000000, 6*analyzetest.Mib).AllocatedBytes -= 6 * analyzetest.Mib
	s.Allocated -= 6 * analyzetest.Mib
	s.AddFailedDriverAlloc(100 * analyzetest.Mib)
	s.AddOutOfMemory(100*analyzetest.Mib, 40*analyzetest.Mib)
	r, err := oom.Run(s.Tp.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	reasons, bytes, by := analyzetest.ColumnTexts(
		t,
		r,
		"cached",
		"reason",
	), analyzetest.ColumnTexts(
		t,
		r,
		"cached",
		"bytes",
	), analyzetest.ColumnTexts(
		t,
		r,
		"cached",
		"held_by",
	)
	for i := range reasons {
		got[reasons[i]] = bytes[i] + " " + by[i]
	}
	for reason, want := range map[oom.CachedReason]string{
		oom.CachedOtherSizeClass: fmt.Sprint(3*analyzetest.Mib/2, " bias (model.py:1)"),
		oom.CachedOtherStream:    fmt.Sprint(70*analyzetest.Mib, " side (model.py:2)"),
		oom.CachedOtherPool:      fmt.Sprint(50*analyzetest.Mib, " graph (model.py:3)"),
		oom.CachedTooSmall:       fmt.Sprint(42*analyzetest.Mib, " keep (train.py:3)"),
		oom.CachedUsedByStream:   fmt.Sprint(6*analyzetest.Mib, " keep (train.py:3)"),
	} {
		if got[reason.String()] != want {
			t.Errorf("%s: %s, want %s", reason, got[reason.String()], want)
		}
	}
}

func TestOOMReport(t *testing.T) {
	testclass.Unit(t)
	r, err := oom.Run(analyzetest.OOMRecording(t).Timeline(), query.Options{Top: 20, MaxFrames: 12})
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CompareGoldenReports(t, r, "oom", 110)
	for name, want := range map[string]float64{
		"failures":      3,
		"fatal":         0,
		"retried":       1,
		"fragmentation": 1,
		"cached":        1,
		"limit":         1,
	} {
		if got, ok, _ := r.FindNumber(name); !ok || got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
}

// limitedTape fails twice under a limit. The first request would fit into the unused memory if that
// were in one piece, the second would not.
func limitedTape(t testing.TB) *analyzetest.TestRecording {
	s := analyzetest.NewTorchScript(t)
	s.AddSparseSegments(35, 200*analyzetest.Mib, 98*analyzetest.Mib)
	s.AddOutOfMemory(2150*analyzetest.Mib, 130<<30)
	s.AddOutOfMemory(4000*analyzetest.Mib, 130<<30)
	s.AddLaunch()
	return s.Tp
}

func TestOOMUnderALimit(t *testing.T) {
	testclass.Unit(t)
	tl := limitedTape(t).Timeline()
	r, err := oom.Run(tl, query.Options{Top: 20, MaxFrames: 12})
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CompareGoldenReports(t, r, "oomlimit", 130)
	for name, want := range map[string]float64{
		"failures":                  2,
		"limit":                     2,
		"fragmentation":             0,
		"fragmentation_under_limit": 1,
	} {
		if got, ok, _ := r.FindNumber(name); !ok || got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
}

func TestOOMFollowsTheFilter(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		filter query.Filter
		want   int
		blame  string
	}{
		"all":            {query.Filter{}, 3, ""},
		"large ones":     {query.Filter{MinBytes: 100 * analyzetest.Mib}, 2, ""},
		"the first":      {query.Filter{ToNs: analyzetest.Epoch + 2*analyzetest.Second}, 1, ""},
		"other process":  {query.Filter{Pids: []int32{7}}, 0, "pid"},
		"other device":   {query.Filter{Devices: []int32{3}}, 0, "device"},
		"nothing inside": {query.Filter{FromNs: analyzetest.Epoch + 50*analyzetest.Second}, 0, ""},
	} {
		r, err := oom.Run(analyzetest.OOMRecording(t).Timeline(), query.Options{Filter: c.filter})
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

// TestManyFailuresAreBounded checks that the report keeps the worst failures.
func TestManyFailuresAreBounded(t *testing.T) {
	testclass.Unit(t)
	s := analyzetest.NewTorchScript(t)
	for range 3 * oom.MaxExaminedFailures {
		s.AddFailedDriverAlloc(200 * analyzetest.Mib)
		s.Tp.AddAlloc(s.Now+analyzetest.Us*10, analyzetest.Us, 0x7f0000000000, 200*analyzetest.Mib)
		s.Tp.AddFree(s.Now+analyzetest.Us*20, analyzetest.Us, 0x7f0000000000)
	}
	s.Now += analyzetest.Second
	s.AddFailedDriverAlloc(300 * analyzetest.Mib)
	r, err := oom.Run(s.Tp.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	outcomes := analyzetest.ColumnTexts(t, r, "failures", "outcome")
	if n, _, _ := r.FindNumber(
		"failures",
	); n != 3*oom.MaxExaminedFailures+1 || len(outcomes) != oom.MaxExaminedFailures ||
		outcomes[oom.MaxExaminedFailures-1] != oom.OutcomeInactive.String() {
		t.Errorf("%v failures, %d rows, the last %s", n, len(outcomes), outcomes[len(outcomes)-1])
	}
}
