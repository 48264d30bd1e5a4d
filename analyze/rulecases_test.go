package analyze

import (
	"maps"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/format"
)

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
	tp.sampled(map[string]float64{catalog.MetricSMActive: 92, catalog.MetricOccupancy: 40, catalog.MetricTensor: 35, rules.MetricFP32: 25, catalog.MetricDRAM: 40, catalog.MetricReasons: 0,
		catalog.MetricMemoryUsed: 80 << 30, catalog.MetricMemoryTotal: 140 << 30})
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
		"broken-context": {
			fires: func(tp *tape) {
				at(tp.synced("cuStreamSynchronize", 59_950*ms, ms, 7, 0), 1, site).Result = 700
				at(tp.free(59_960*ms, us, 0x1000), 2, "load_weights (train.cc:10)").Result = 700
			},
			misses: func(tp *tape) { // an error of the call itself; not ready, and shutting down
				for i, result := range []int32{1, 600, 4} {
					at(tp.synced("cuStreamSynchronize", 59_950*ms+int64(i)*ms, us, 7, 0), 1, site).Result = result
				}
			},
			where: site, severity: "problem",
		},
		"exit-leak": {
			fires: func(tp *tape) {
				every(tp, 20, second, func(i, ns int64) *format.Row { return tp.alloc(ns, us, 0x7d0000000000+i*mib, mib) })
				tp.exit(42, 59_999*ms)
			},
			misses: func(tp *tape) { // the process goes on
				every(tp, 20, second, func(i, ns int64) *format.Row { return tp.alloc(ns, us, 0x7d0000000000+i*mib, mib) })
			},
			where: site, severity: "info",
		},
		"gpu-health": {
			fires: func(tp *tape) { tp.nvml(1, 30*second, "remapped_rows_pending", 1) },
			misses: func(tp *tape) { // what was put right, and what a GPU that nobody used cannot do
				tp.nvml(1, 30*second, "remapped_rows_pending", 0)
				tp.nvml(1, 30*second, "remapped_rows_uncorrectable", 1)
				tp.nvml(1, 30*second, "ecc_corrected_volatile_errors", 5)
				tp.nvml(0, 30*second, "pcie_replays", 3)
				tp.nvml(0, 31*second, "pcie_replays", 9)
			},
			where: "GPU 1 NVIDIA H200", severity: "problem",
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
				at(tp.alloc(59_993*ms, us, 0, 100<<30), 1, site).Result = calls.ResultOutOfMemory
				tp.exit(42, 59_999*ms)
			},
			misses: func(tp *tape) { at(tp.alloc(59_990*ms, us, 0, 100<<30), 1, site).Result = 1 }, // another error
			where:  site, severity: "problem",
		},
		"oom-fragmentation": {
			fires:  fragmented,
			misses: func(tp *tape) { at(tp.alloc(59_990*ms, us, 0, 100<<30), 1, site).Result = calls.ResultOutOfMemory }, // too little in total
			where:  "forward (model.py:12)", severity: "notice", also: "out-of-memory",
		},
		"failed-alloc-in-loop": {
			fires: func(tp *tape) {
				every(tp, 20, 100*ms, func(_, ns int64) *format.Row {
					r := tp.alloc(ns, us, 0, 100<<30)
					r.Result = calls.ResultOutOfMemory
					return r
				})
			},
			misses: func(tp *tape) { // smaller each time
				every(tp, 5, 100*ms, func(i, ns int64) *format.Row {
					r := tp.alloc(ns, us, 0, 100<<30-i<<30)
					r.Result = calls.ResultOutOfMemory
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
		"invalid-free": {
			fires: func(tp *tape) {
				every(tp, 20, second, func(_, ns int64) *format.Row {
					at(tp.alloc(ns, us, 0x7d0000000000, mib), 2, "load_weights (train.cc:10)")
					at(tp.free(ns+ms, us, 0x7d0000000000), 2, "load_weights (train.cc:20)")
					r := tp.free(ns+2*ms, us, 0x7d0000000000)
					r.Result = fault.ResultInvalidValue
					return r
				})
			},
			misses: func(tp *tape) { // null; memory from before the recording; live memory, and again with success; an ended driver
				every(tp, 20, second, func(i, ns int64) *format.Row {
					tp.free(ns, us, 0x7d0000000000+i*mib)
					tp.alloc(ns+ms, us, 0x7c0000000000, mib)
					tp.free(ns+2*ms, us, 0x7c0000000000).Result = fault.ResultInvalidValue
					tp.free(ns+3*ms, us, 0x7c0000000000)
					tp.free(ns+4*ms, us, 0x7c0000000000).Result = calls.ResultDeinitialized
					r := tp.free(ns+5*ms, us, 0)
					r.Result = fault.ResultInvalidValue
					return r
				})
			},
			where: site, severity: "problem",
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
				tp.resample(catalog.MetricMemoryUsed, func(i int) float64 { return float64((80 + i/2) << 30) })
			},
			misses: func(tp *tape) { tp.resample(catalog.MetricMemoryUsed, always(132<<30)) },
			where:  "GPU 1 NVIDIA H200", severity: "notice",
		},
		"throttling": {
			fires: func(tp *tape) {
				tp.resample(catalog.MetricReasons, func(i int) float64 { return float64(32 * (i / 100)) })
			},
			misses: func(tp *tape) {
				tp.resample(catalog.MetricReasons, func(i int) float64 { return float64(4*(i/110)) + 1 })
			}, // the power cap, for 5 s; idle clocks
			where: "GPU 1 NVIDIA H200", severity: "problem",
		},
		"gpu-idle": {
			fires: func(tp *tape) {
				tp.resample(catalog.MetricSMActive, func(i int) float64 { return float64(92 * min(1, i%4)) })
			},
			misses: func(tp *tape) {
				tp.resample(catalog.MetricSMActive, func(i int) float64 { return float64(92 * min(1, i%6)) })
			},
			where: "GPU 1 NVIDIA H200", severity: "notice",
		},
		"launch-bound": {
			fires: func(tp *tape) {
				every(tp, 45_000, 90*us, func(_, ns int64) *format.Row { return tp.big(ns, "small_step") })
				tp.shorten(6500 * ms)
				tp.resample(catalog.MetricSMActive, always(30))
			},
			misses: func(tp *tape) { // as many launches, and the GPU is busy
				every(tp, 30_000, 90*us, func(_, ns int64) *format.Row { return tp.big(ns, "small_step") })
				tp.shorten(6 * second)
			},
			where: site, severity: "notice", also: "low-sm-activity",
		},
		"low-sm-activity": {
			fires:  func(tp *tape) { tp.resample(catalog.MetricSMActive, always(30)) },
			misses: func(tp *tape) { tp.resample(catalog.MetricSMActive, always(55)) },
			where:  "GPU 1 NVIDIA H200", severity: "notice",
		},
		"low-occupancy": {
			fires: func(tp *tape) {
				tp.resample(catalog.MetricOccupancy, always(15))
				tp.resample(catalog.MetricTensor, always(5))
			},
			misses: func(tp *tape) { tp.resample(catalog.MetricOccupancy, always(15)) }, // with tensor cores at work it need not be more
			where:  "GPU 1 NVIDIA H200", severity: "notice",
		},
		"tensor-cores-unused": {
			fires: func(tp *tape) { tp.resample(catalog.MetricTensor, always(0.2)) },
			misses: func(tp *tape) {
				tp.resample(catalog.MetricTensor, always(0.2))
				tp.resample(rules.MetricFP32, always(5))
			}, // it waits for memory
			where: "GPU 1 NVIDIA H200", severity: "info",
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
