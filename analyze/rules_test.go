package analyze

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// checked applies rules to a made-up recording.
func checked(t *testing.T, tp *tape, opt RuleOptions) *Report {
	t.Helper()
	tl := tp.timeline()
	tl.rec.Path = "run.parquet"
	r, err := tl.Rules(opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// steady is a minute of a training as it should be, recorded from its first call: steps of 100 ms with ten launches, a copy of a
// batch from pinned memory and one wait, on a GPU that is busy. Memory comes from a pool.
func steady(t testing.TB) *tape {
	tp := newTape(t)
	tp.gpus()
	tp.stack(1, "train_step", "main", "_start")
	tp.stack(2, "load_weights", "main", "_start")
	tp.call(format.KindAPI, "cuInit", 0, ms)
	tp.pinned(ms, 0x500000, 64*mib)
	for i := range int64(60) { // warm-up: the model and its kernels
		at(tp.alloc(10*ms+i*10*ms, 100*us, 0x7f0000000000+i*64*mib, 64*mib), 2, "load_weights (train.cc:10)")
		at(tp.call(format.KindAPI, "cuLibraryLoadData", 15*ms+i*10*ms, ms), 2, "load_weights (train.cc:10)")
	}
	for step := range int64(590) {
		begin := second + step*100*ms
		block := tp.alloc(begin, us, 0x7e0000000000+step%4*mib, mib)
		block.Name, block.MemoryKind = "cuMemAllocAsync", format.MemoryAsync
		at(tp.copied("cuMemcpyHtoDAsync_v2", "HtoD", begin+us, 8*us, 0x7f0000000000, 0x500000, 16*mib), 1, "train_step (train.cc:10)")
		for k := range int64(10) {
			at(tp.big(begin+ms+k*9*ms, "gemm<float>(int)"), 1, "train_step (train.cc:10)")
		}
		at(tp.synced("cuStreamSynchronize", begin+93*ms, 6*ms, 7, 0), 1, "train_step (train.cc:10)")
		free := tp.free(begin+99*ms+500*us, us, 0x7e0000000000+step%4*mib)
		free.Name, free.MemoryKind = "cuMemFreeAsync", format.MemoryAsync
	}
	tp.sampled(map[string]float64{metricSMActive: 92, metricOccupancy: 40, metricTensor: 35, metricFP32: 25, metricDRAM: 40, metricReasons: 0,
		metricMemoryUsed: 80 << 30, metricMemoryTotal: 140 << 30})
	return tp
}

// big adds a launch that fills a GPU.
func (tp *tape) big(at int64, kernel string) *format.Row {
	l := tp.launched(at, 6*us, kernel, 7, 1)
	l.GridX, l.GridY, l.GridZ, l.BlockX, l.BlockY, l.BlockZ = 528, 1, 1, 256, 1, 1
	return l
}

// sampled adds samples of the GPU of the process, twice a second from the first second on.
func (tp *tape) sampled(metrics map[string]float64) {
	for at := second; at <= 60*second; at += second / 2 {
		for _, name := range slices.Sorted(maps.Keys(metrics)) {
			tp.nvml(1, at, name, metrics[name])
		}
	}
}

// resample changes what samples of a metric say.
func (tp *tape) resample(metric string, value func(i int) float64) {
	i := 0
	for _, r := range tp.rows {
		if r.Kind == format.KindNVML && r.Name == metric {
			r.Value = value(i)
			i++
		}
	}
}

func always(v float64) func(int) float64 { return func(int) float64 { return v } }

// without takes rows out of a recording.
func (tp *tape) without(is func(*format.Row) bool) {
	tp.rows = slices.DeleteFunc(tp.rows, is)
}

func TestNothingFiresOnASteadyTraining(t *testing.T) {
	tp := steady(t)
	r := checked(t, tp, RuleOptions{})
	if n := len(r.Tables[0].Rows); n > 0 {
		t.Errorf("%d hits:\n%s", n, rendered(t, r, RenderOptions{}))
	}
	numbers(t, r, map[string]float64{"hits": 0, "problems": 0, "rules_checked": float64(len(rules())), "growing_site": 0})
	// Nor if the recorder came late, NVML was off, or memory was pinned out of sight: the copies return at once.
	for name, change := range map[string]func(*tape){
		"late": func(tp *tape) {
			tp.without(func(r *format.Row) bool { return r.Name == "cuInit" || r.MemoryKind == format.MemoryHost })
		},
		"no NVML":   func(tp *tape) { tp.without(func(r *format.Row) bool { return r.Kind == format.KindNVML }) },
		"no launch": func(tp *tape) { tp.without(func(r *format.Row) bool { return r.Kind == format.KindLaunch }) },
		"nothing":   func(tp *tape) { tp.rows = nil },
	} {
		tp := steady(t)
		change(tp)
		if r := checked(t, tp, RuleOptions{}); len(r.Tables[0].Rows) > 0 {
			t.Errorf("%s:\n%s", name, rendered(t, r, RenderOptions{}))
		}
	}
}

// ruleCase changes a steady training: fires has what the rule is about, misses only nearly. Other rules may fire too where also
// names them: they are about the same trouble.
type ruleCase struct {
	fires, misses func(*tape)
	where         string // begins the place that is blamed
	severity      string
	also          string
}

func ruleCases() map[string]ruleCase {
	const site = "train_step (train.cc:10)"
	// every does something n times, so many ns apart, from two seconds on.
	every := func(tp *tape, n int, apart int64, do func(i, ns int64) *format.Row) {
		for i := range int64(n) {
			at(do(i, 2*second+i*apart), 1, site)
		}
	}
	return map[string]ruleCase{
		"xid": {
			fires:  func(tp *tape) { tp.xid(30*second, 1, 42, 31, format.XidFact{PCI: "0000:5e:00.0", Text: "MMU Fault"}) },
			misses: func(tp *tape) { tp.xid(-90*second, 1, 42, 31, format.XidFact{Text: "MMU Fault", Before: true}) },
			where:  "GPU 1 NVIDIA H200, process 42 train", severity: "problem",
		},
		"hang": {
			fires: func(tp *tape) {
				open := at(tp.synced("cuCtxSynchronize", 60*second, 20*second, 7, 0), 1, site)
				open.Flags = format.FlagOpen
				tp.meta.EndNs = epoch + 80*second
			},
			misses: func(tp *tape) { // it has just begun
				open := at(tp.synced("cuStreamSynchronize", 60*second, 500*ms, 7, 0), 1, site)
				open.Flags = format.FlagOpen
				tp.meta.EndNs = epoch + 60*second + 500*ms
			},
			where: site + " in process 42 train", severity: "problem",
		},
		"out-of-memory": {
			fires: func(tp *tape) {
				tp.call(format.KindAPI, "cuMemGetInfo_v2", 59_990*ms, us).Bytes = 30 << 30
				at(tp.alloc(59_993*ms, us, 0, 100<<30), 1, site).Result = resultOutOfMemory
				tp.exit(42, 59_999*ms)
			},
			misses: func(tp *tape) { at(tp.alloc(59_990*ms, us, 0, 100<<30), 1, site).Result = 1 }, // another error
			where:  site, severity: "problem",
		},
		"oom-fragmentation": {
			fires:  fragmented,
			misses: func(tp *tape) { at(tp.alloc(59_990*ms, us, 0, 100<<30), 1, site).Result = resultOutOfMemory }, // too little in total
			where:  "forward (model.py:12)", severity: "notice", also: "out-of-memory",
		},
		"failed-alloc-in-loop": {
			fires: func(tp *tape) {
				every(tp, 20, 100*ms, func(_, ns int64) *format.Row {
					r := tp.alloc(ns, us, 0, 100<<30)
					r.Result = resultOutOfMemory
					return r
				})
			},
			misses: func(tp *tape) { // smaller each time
				every(tp, 5, 100*ms, func(i, ns int64) *format.Row {
					r := tp.alloc(ns, us, 0, 100<<30-i<<30)
					r.Result = resultOutOfMemory
					return r
				})
			},
			where: site, severity: "notice", also: "out-of-memory",
		},
		"unchecked-error": {
			fires: func(tp *tape) {
				every(tp, 5, second, func(_, ns int64) *format.Row {
					r := tp.big(ns+50*ms, "wide")
					r.Result = 701
					return r
				})
			},
			misses: func(tp *tape) { // a question, twice an error, and one after which nothing is launched
				every(tp, 500, 100*ms, func(_, ns int64) *format.Row {
					r := tp.call(format.KindAPI, "cuPointerGetAttribute", ns, us)
					r.Result = 1
					return r
				})
				every(tp, 2, second, func(_, ns int64) *format.Row {
					r := tp.big(ns+50*ms, "wide")
					r.Result = 701
					return r
				})
				for i := range int64(5) {
					tp.free(59_990*ms+i*us, us, 0x1000).Result = 201
				}
			},
			where: site, severity: "notice",
		},
		"growing-site": {
			fires: func(tp *tape) {
				every(tp, 500, 100*ms, func(i, ns int64) *format.Row { return tp.alloc(ns, us, 0x7d0000000000+i*mib, mib) })
			},
			misses: func(tp *tape) { // a cache that fills in half of the time
				every(tp, 250, 100*ms, func(i, ns int64) *format.Row { return tp.alloc(ns, us, 0x7d0000000000+i*mib, mib) })
			},
			where: site, severity: "problem",
		},
		"memory-near-limit": {
			fires: func(tp *tape) {
				tp.resample(metricMemoryUsed, func(i int) float64 { return float64((80 + i/2) << 30) })
			},
			misses: func(tp *tape) { tp.resample(metricMemoryUsed, always(132<<30)) },
			where:  "GPU 1 NVIDIA H200", severity: "notice",
		},
		"throttling": {
			fires:  func(tp *tape) { tp.resample(metricReasons, func(i int) float64 { return float64(32 * (i / 100)) }) },
			misses: func(tp *tape) { tp.resample(metricReasons, func(i int) float64 { return float64(4*(i/110)) + 1 }) }, // the power cap, for 5 s; idle clocks
			where:  "GPU 1 NVIDIA H200", severity: "problem",
		},
		"gpu-idle": {
			fires:  func(tp *tape) { tp.resample(metricSMActive, func(i int) float64 { return float64(92 * min(1, i%4)) }) },
			misses: func(tp *tape) { tp.resample(metricSMActive, func(i int) float64 { return float64(92 * min(1, i%6)) }) },
			where:  "GPU 1 NVIDIA H200", severity: "notice",
		},
		"launch-bound": {
			fires: func(tp *tape) {
				every(tp, 45_000, 90*us, func(_, ns int64) *format.Row { return tp.big(ns, "small_step") })
				tp.shorten(6500 * ms)
				tp.resample(metricSMActive, always(30))
			},
			misses: func(tp *tape) { // as many launches, and the GPU is busy
				every(tp, 30_000, 90*us, func(_, ns int64) *format.Row { return tp.big(ns, "small_step") })
				tp.shorten(6 * second)
			},
			where: site, severity: "notice", also: "low-sm-activity",
		},
		"low-sm-activity": {
			fires:  func(tp *tape) { tp.resample(metricSMActive, always(30)) },
			misses: func(tp *tape) { tp.resample(metricSMActive, always(55)) },
			where:  "GPU 1 NVIDIA H200", severity: "notice",
		},
		"low-occupancy": {
			fires:  func(tp *tape) { tp.resample(metricOccupancy, always(15)); tp.resample(metricTensor, always(5)) },
			misses: func(tp *tape) { tp.resample(metricOccupancy, always(15)) }, // with tensor cores at work it need not be more
			where:  "GPU 1 NVIDIA H200", severity: "notice",
		},
		"tensor-cores-unused": {
			fires:  func(tp *tape) { tp.resample(metricTensor, always(0.2)) },
			misses: func(tp *tape) { tp.resample(metricTensor, always(0.2)); tp.resample(metricFP32, always(5)) }, // it waits for memory
			where:  "GPU 1 NVIDIA H200", severity: "info",
		},
		"tiny-kernels": {
			fires: func(tp *tape) {
				every(tp, 12_000, 400*us, func(_, ns int64) *format.Row { r := tp.big(ns, "add_scalar"); r.GridX = 1; return r })
				tp.shorten(7 * second)
			},
			misses: func(tp *tape) { // as many that are large
				every(tp, 12_000, 400*us, func(_, ns int64) *format.Row { return tp.big(ns, "add_scalar") })
				tp.shorten(7 * second)
			},
			where: site, severity: "notice",
		},
		"sync-in-loop": {
			fires: func(tp *tape) {
				every(tp, 10_000, ms, func(_, ns int64) *format.Row { return tp.synced("cuCtxSynchronize", ns, 20*us, 0, 0) })
				tp.shorten(12 * second)
			},
			misses: func(tp *tape) { // 100 times a second, and a short storm
				every(tp, 5000, 10*ms, func(_, ns int64) *format.Row { return tp.synced("cuCtxSynchronize", ns, 20*us, 0, 0) })
				every(tp, 1000, us, func(_, ns int64) *format.Row { return tp.synced("cuEventSynchronize", ns, us, 0, 0) })
			},
			where: site, severity: "notice",
		},
		"alloc-in-loop": {
			fires: func(tp *tape) {
				every(tp, 5000, 10*ms, func(_, ns int64) *format.Row {
					tp.free(ns+5*ms, 50*us, 0x7d0000000000)
					return tp.alloc(ns, 50*us, 0x7d0000000000, mib)
				})
			},
			misses: func(tp *tape) { // ten times a second; blocks that live long; a pool
				every(tp, 500, 100*ms, func(_, ns int64) *format.Row {
					tp.free(ns+5*ms, 50*us, 0x7d0000000000)
					return tp.alloc(ns, 50*us, 0x7d0000000000, mib)
				})
				every(tp, 5000, 10*ms, func(i, ns int64) *format.Row {
					f := tp.free(ns+5*ms, us, 0x7c0000000000)
					a := tp.alloc(ns, us, 0x7c0000000000, mib)
					f.Name, f.MemoryKind, a.Name, a.MemoryKind = "cuMemFreeAsync", format.MemoryAsync, "cuMemAllocAsync", format.MemoryAsync
					return a
				})
			},
			where: site, severity: "notice",
		},
		"memcpy-async-pageable": {
			fires: func(tp *tape) {
				every(tp, 50, second, func(_, ns int64) *format.Row {
					return tp.copied("cuMemcpyHtoDAsync_v2", "HtoD", ns+50*ms, 2*ms, 0x7f0000000000, 0x600000000000, 16*mib)
				})
			},
			misses: func(tp *tape) { // recorded late; they return before the data can be there, so that the memory must be pinned
				tp.without(func(r *format.Row) bool { return r.Name == "cuInit" })
				every(tp, 50, second, func(_, ns int64) *format.Row {
					return tp.copied("cuMemcpyHtoDAsync_v2", "HtoD", ns+50*ms, 8*us, 0x7f0000000000, 0x600000000000, 16*mib)
				})
			},
			where: site, severity: "notice",
		},
		"small-copies": {
			fires: func(tp *tape) {
				every(tp, 600, 50*us, func(_, ns int64) *format.Row {
					return tp.copied("cuMemcpyDtoH_v2", "DtoH", ns, 10*us, 0x600000000000, 0x7f0000000000, 4)
				})
			},
			misses: func(tp *tape) { // as many, not so close together, and one burst
				every(tp, 600, 5*ms, func(_, ns int64) *format.Row {
					return tp.copied("cuMemcpyDtoH_v2", "DtoH", ns, 10*us, 0x600000000000, 0x7f0000000000, 4)
				})
				every(tp, 60, 50*us, func(_, ns int64) *format.Row {
					return tp.copied("cuMemcpyDtoH_v2", "DtoH", ns+10*second, 10*us, 0x600000000000, 0x7f0000000000, 4)
				})
			},
			where: site, severity: "notice",
		},
		"module-load-in-loop": {
			fires: func(tp *tape) {
				every(tp, 100, 500*ms, func(_, ns int64) *format.Row { return tp.call(format.KindAPI, "cuModuleLoadData", ns, ms) })
			},
			misses: func(tp *tape) { // a long warm-up
				every(tp, 500, 50*ms, func(_, ns int64) *format.Row { return tp.call(format.KindAPI, "cuModuleLoadData", ns, ms) })
			},
			where: site, severity: "notice",
		},
	}
}

// shorten ends a recording, and what is in it, at a time.
func (tp *tape) shorten(to int64) {
	tp.meta.EndNs = epoch + to
	tp.without(func(r *format.Row) bool { return r.StartNs > epoch+to-second/10 })
}

// fragmented adds PyTorch's allocator with a request that finds enough memory in pieces.
func fragmented(tp *tape) {
	const segment = int64(0x7b0000000000)
	tp.stack(9, "forward", "main")
	event := func(at int64, name string, ptr, bytes, allocated, reserved int64) *format.Row {
		return tp.add(format.Row{Kind: format.KindAllocator, Name: name, StartNs: epoch + at, Pid: 42, Tid: 42, MemoryKind: format.MemoryTorch, Ptr: ptr, Bytes: bytes,
			StackID: 9, StackStatus: format.StackComplete, Site: "forward (model.py:12)", AllocatedBytes: allocated, ReservedBytes: reserved})
	}
	total := int64(0)
	for i := range int64(10) {
		ptr, at := segment+i*1024*mib, 50*second+i*10*ms
		event(at, format.AllocatorSegmentAlloc, ptr, 400*mib, total, (i+1)*400*mib)
		event(at+ms, format.AllocatorAlloc, ptr, 200*mib, total, (i+1)*400*mib)
		total += 200 * mib
	}
	event(51*second, format.AllocatorOOM, 0, 1024*mib, total, 4000*mib).Value = float64(100 * mib)
	// The program catches it and goes on.
}

func TestEveryRuleFiresAndNearlyDoesNot(t *testing.T) {
	cases := ruleCases()
	for _, rule := range rules() {
		c, ok := cases[rule.id]
		if !ok {
			t.Errorf("%s has no case", rule.id)
			continue
		}
		t.Run(rule.id, func(t *testing.T) {
			tp := steady(t)
			c.fires(tp)
			r := checked(t, tp, RuleOptions{})
			names := cells(t, r, "hits", "rule")
			i := slices.Index(names, rule.id)
			if i < 0 {
				t.Fatalf("does not fire; there are %v\n%s", names, rendered(t, r, RenderOptions{Width: 150}))
			}
			for _, name := range names {
				if name != rule.id && !slices.Contains(strings.Fields(c.also), name) {
					t.Errorf("%s fires too:\n%s", name, rendered(t, r, RenderOptions{}))
				}
			}
			if where := cells(t, r, "hits", "where")[i]; !strings.HasPrefix(where, c.where) {
				t.Errorf("blames %s, want %s", where, c.where)
			}
			if severity := cells(t, r, "hits", "severity")[i]; severity != c.severity {
				t.Errorf("severity %s, want %s", severity, c.severity)
			}
			if !slices.Contains(cells(t, r, "evidence", "rule"), rule.id) {
				t.Error("no evidence")
			}
			if advice := cells(t, r, "hits", "advice")[i]; advice == "" || strings.Count(advice, ". ") > 1 {
				t.Errorf("advice %q", advice)
			}
			if n, ok, _ := r.Number(strings.ReplaceAll(rule.id, "-", "_")); !ok || n < 1 {
				t.Errorf("--fail-on sees %v", n)
			}

			tp = steady(t)
			c.misses(tp)
			r = checked(t, tp, RuleOptions{Rules: []string{rule.id}})
			if len(r.Tables[0].Rows) > 0 {
				t.Errorf("the near miss fires:\n%s", rendered(t, r, RenderOptions{}))
			}
		})
	}
}

func TestConfidenceOfRules(t *testing.T) {
	launchBound := func(tp *tape) { ruleCases()["launch-bound"].fires(tp) }
	for name, c := range map[string]struct {
		rule   string
		change func(*tape)
		level  string
		reason string
	}{
		"as it should be": {"launch-bound", launchBound, "high", ""},
		"returns of some launches are not known": {"launch-bound", func(tp *tape) {
			launchBound(tp)
			for i, r := range tp.rows {
				if r.Kernel == "small_step" && i%2 == 0 {
					r.Flags, r.DurNs = format.FlagNoReturn, 0
				}
			}
		}, "medium", "only the entry is known"},
		"no samples": {"launch-bound", func(tp *tape) {
			launchBound(tp)
			tp.without(func(r *format.Row) bool { return r.Kind == format.KindNVML })
		}, "low", "no samples"},
		"a few calls lost": {"launch-bound", func(tp *tape) {
			launchBound(tp)
			tp.add(format.Row{Kind: format.KindLost, Name: "launch", StartNs: epoch + second, Value: 2000})
		}, "medium", "2,000 calls lost"},
		"many calls lost": {"launch-bound", func(tp *tape) {
			launchBound(tp)
			tp.add(format.Row{Kind: format.KindLost, Name: "launch", StartNs: epoch + second, Value: 20000})
		}, "low", "20,000 calls lost"},
		"stacks inferred badly": {"launch-bound", func(tp *tape) {
			launchBound(tp)
			tp.add(format.Row{Kind: format.KindNote, Name: format.NoteStackInference, Message: `{"class":"launch","inferred":1000,"checked":100,"wrong":5,"wrong_estimated":50}`})
		}, "medium", "5% of inferred stacks"},
		"pageable, seen from the start": {"memcpy-async-pageable", func(tp *tape) { ruleCases()["memcpy-async-pageable"].fires(tp) }, "high", ""},
		"pageable, seen from later on": {"memcpy-async-pageable", func(tp *tape) {
			ruleCases()["memcpy-async-pageable"].fires(tp)
			tp.without(func(r *format.Row) bool { return r.Name == "cuInit" })
		}, "medium", "began after the program"},
		"few samples": {"low-sm-activity", func(tp *tape) {
			ruleCases()["low-sm-activity"].fires(tp)
			tp.without(func(r *format.Row) bool { return r.Kind == format.KindNVML && (r.StartNs-epoch)%(10*second) != 0 })
		}, "medium", "only 5 samples"},
		"too few samples": {"low-sm-activity", func(tp *tape) {
			ruleCases()["low-sm-activity"].fires(tp)
			tp.without(func(r *format.Row) bool { return r.Kind == format.KindNVML && (r.StartNs-epoch)%(20*second) != 0 })
		}, "", ""},
	} {
		tp := steady(t)
		c.change(tp)
		r := checked(t, tp, RuleOptions{Rules: []string{c.rule}})
		level, reasons := strings.Join(cells(t, r, "hits", "confidence"), ""), strings.Join(cells(t, r, "hits", "confidence_reasons"), "")
		if level != c.level || !strings.Contains(reasons, c.reason) || c.reason == "" && len(reasons) > len("[]") {
			t.Errorf("%s: %s %s", name, level, reasons)
		}
	}
}

// Of the same trouble, how bad it is depends on what came of it.
func TestSeverityOfRules(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*tape)
		want   string // hits
	}{
		"work in a broken context": {func(tp *tape) {
			for i := range int64(5) {
				tp.big(59_950*ms+i*us, "after").Result = 700
			}
		}, "problem unchecked-error"},
		"tidying up in a broken context": {func(tp *tape) {
			for i := range int64(50) {
				tp.free(59_950*ms+i*us, us, 0x1000).Result = 700
			}
		}, ""},
		"the power cap half of the time": {func(tp *tape) { tp.resample(metricReasons, func(i int) float64 { return float64(4 * (i % 2)) }) }, "info throttling"},
		"memory that was had in the end": {func(tp *tape) {
			tp.alloc(30*second, us, 0, 20<<30).Result = resultOutOfMemory
			tp.alloc(31*second, us, 0x700000000000, 20<<30)
			tp.free(32*second, us, 0x700000000000)
		}, "notice out-of-memory"},
		"polling": {func(tp *tape) {
			tp.meta.EndNs = epoch + 120*second
			tp.counted(10*second, 110*second, 110_000)
		}, "notice hang"},
	} {
		tp := steady(t)
		c.change(tp)
		r := checked(t, tp, RuleOptions{})
		var got []string
		for i, rule := range cells(t, r, "hits", "rule") {
			got = append(got, cells(t, r, "hits", "severity")[i]+" "+rule)
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %s, want %s", name, strings.Join(got, ", "), c.want)
		}
	}
}

// A GPU that idles is seen in the gaps alone where there is no NVML, if nobody waited for it.
func TestIdleWithoutSamples(t *testing.T) {
	for name, waits := range map[string]bool{"the thread waits for the GPU": true, "the thread loads data": false} {
		tp := newTape(t)
		for i := range int64(200) {
			tp.big(i*200*ms, "gemm")
			if waits {
				tp.synced("cuStreamSynchronize", i*200*ms+ms, 190*ms, 7, 0)
			}
		}
		names := cells(t, checked(t, tp, RuleOptions{}), "hits", "rule")
		if slices.Contains(names, "gpu-idle") == waits {
			t.Errorf("%s: %v", name, names)
		}
	}
}

// A process that waits for the GPU is not held up by launching, however little of the GPU its kernels fill.
func TestLaunchBoundDoesNotWait(t *testing.T) {
	for name, waits := range map[string]bool{"it waits": true, "it does not": false} {
		tp := steady(t)
		ruleCases()["launch-bound"].fires(tp)
		if waits {
			for i := range int64(40) {
				tp.synced("cuStreamSynchronize", 2*second+i*100*ms, 50*ms, 7, 0)
			}
		}
		names := cells(t, checked(t, tp, RuleOptions{}), "hits", "rule")
		if slices.Contains(names, "launch-bound") == waits {
			t.Errorf("%s: %v", name, names)
		}
	}
}

func TestRuleFilter(t *testing.T) {
	tp := training(t)
	r := checked(t, tp, RuleOptions{Rules: []string{"growing-site", "hang"}})
	if got := strings.Join(cells(t, r, "hits", "rule"), " "); got != "growing-site" {
		t.Errorf("hits %s", got)
	}
	numbers(t, r, map[string]float64{"rules_checked": 2, "growing_site": 1, "hang": 0})
	if _, ok, isKnown := r.Number("xid"); ok || !isKnown {
		t.Error("a rule that was not checked has a number")
	}
	_, err := tp.timeline().Rules(RuleOptions{Rules: []string{"groing-site"}})
	var unknown *RuleError
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), `no rule "groing-site"; there are xid, hang`) {
		t.Error(err)
	}
	r = checked(t, training(t), RuleOptions{Options: Options{Suppressions: parsedSuppressions(t, "leak:log_metrics")}})
	numbers(t, r, map[string]float64{"growing_site": 0})
	if got := cells(t, r, "suppressions_used", "template"); fmt.Sprint(got) != "[log_metrics]" {
		t.Errorf("suppressions used %s", got)
	}
	r = checked(t, training(t), RuleOptions{Options: Options{Filter: Filter{Pids: []int32{7}}}})
	if r.NoMatch == nil || len(r.Tables[0].Rows) > 0 {
		t.Errorf("nobody's hits: %v", r.NoMatch)
	}
}

func TestRulesAreDescribed(t *testing.T) {
	seen := make(map[string]bool)
	for _, r := range rules() {
		if seen[r.id] || r.about == "" || r.report == "" || strings.ToLower(r.id) != r.id || strings.ContainsAny(r.id, "_ ") {
			t.Errorf("rule %+v", r)
		}
		seen[r.id] = true
	}
}

func TestShellWord(t *testing.T) {
	for path, want := range map[string]string{"run.parquet": "run.parquet", "/a b": "'/a b'", "it's": `'it'\''s'`, "": "''", "$(x)": "'$(x)'"} {
		if got := shellWord(path); got != want {
			t.Errorf("%q: %s, want %s", path, got, want)
		}
	}
}

// troubled is a training with several kinds of trouble.
func troubled(t testing.TB) *tape {
	tp := steady(t)
	for _, name := range []string{"growing-site", "unchecked-error", "small-copies", "xid"} {
		ruleCases()[name].fires(tp)
	}
	tp.resample(metricReasons, func(i int) float64 { return float64(32 * (i / 100)) })
	return tp
}

func TestRulesLookAsBefore(t *testing.T) {
	goldens(t, checked(t, troubled(t), RuleOptions{Options: Options{Top: 20, MaxFrames: 12}}), "rules", 130)
	golden(t, "rules.steady.table", rendered(t, checked(t, steady(t), RuleOptions{}), RenderOptions{Width: 130}))
	tl := troubled(t).timeline()
	r, err := tl.Summary(Options{Top: 20, MaxFrames: 12})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "rules.summary.table", rendered(t, r, RenderOptions{Width: 130}))
}
