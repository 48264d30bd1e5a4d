package analyzetest

import (
	"maps"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/format"
)

// SteadyRecording returns a recording of one minute of a training without problems, from its first
// call. A step takes 100 ms: ten launches, a copy of a batch from pinned memory, and one
// synchronization, on a busy GPU. Memory comes from a pool.
func SteadyRecording(t testing.TB) *TestRecording {
	tp := NewTestRecording(t)
	tp.AddTwoGPUs()
	tp.AddStack(1, "train_step", "main", "_start")
	tp.AddStack(2, "load_weights", "main", "_start")
	tp.AddCall(format.KindAPI, "cuInit", 0, Ms)
	tp.AddPinned(Ms, 0x500000, 64*Mib)
	for i := range int64(60) { // warm-up: load the model and its kernels
		SetStackAndSite(
			tp.AddAlloc(10*Ms+i*10*Ms, 100*Us, 0x7f0000000000+i*64*Mib, 64*Mib),
			2,
			"load_weights (train.cc:10)",
		)
		SetStackAndSite(
			tp.AddCall(format.KindAPI, "cuLibraryLoadData", 15*Ms+i*10*Ms, Ms),
			2,
			"load_weights (train.cc:10)",
		)
	}
	for step := range int64(590) {
		begin := Second + step*100*Ms
		block := tp.AddAlloc(begin, Us, 0x7e0000000000+step%4*Mib, Mib)
		block.Name, block.MemoryKind = "cuMemAllocAsync", format.MemoryAsync
		SetStackAndSite(
			tp.AddCopy("cuMemcpyHtoDAsync_v2", "HtoD", begin+Us, 8*Us, 0x7f0000000000, 0x500000, 16*Mib),
			1,
			"train_step (train.cc:10)",
		)
		for k := range int64(10) {
			SetStackAndSite(tp.AddFullLaunch(begin+Ms+k*9*Ms, "gemm<float>(int)"), 1, "train_step (train.cc:10)")
		}
		SetStackAndSite(tp.AddSync("cuStreamSynchronize", begin+93*Ms, 6*Ms, 7, 0), 1, "train_step (train.cc:10)")
		free := tp.AddFree(begin+99*Ms+500*Us, Us, 0x7e0000000000+step%4*Mib)
		free.Name, free.MemoryKind = "cuMemFreeAsync", format.MemoryAsync
	}
	tp.addGPUSamples(map[string]float64{
		catalog.MetricSMActive:          92,
		catalog.MetricSMOccupancy:       40,
		catalog.MetricTensorActive:      35,
		"gpm_fp32_active_percent":       25,
		catalog.MetricDRAMBandwidth:     40,
		catalog.MetricClockEventReasons: 0,
		catalog.MetricMemoryUsed:        80 << 30,
		catalog.MetricMemoryTotal:       140 << 30,
	})
	return tp
}

// AddFullLaunch adds a launch whose grid fills a GPU.
func (tp *TestRecording) AddFullLaunch(at int64, kernel string) *format.Row {
	l := tp.AddLaunch(at, 6*Us, kernel, 7, 1)
	l.GridX, l.GridY, l.GridZ, l.BlockX, l.BlockY, l.BlockZ = 528, 1, 1, 256, 1, 1
	return l
}

// addGPUSamples adds samples of the process's GPU, twice a second from the first second on.
func (tp *TestRecording) addGPUSamples(metrics map[string]float64) {
	for at := Second; at <= 60*Second; at += Second / 2 {
		for _, name := range slices.Sorted(maps.Keys(metrics)) {
			tp.AddNVMLSample(1, at, name, metrics[name])
		}
	}
}

// ChangeSamples changes the values of a metric's samples. value gets the index of the sample.
func (tp *TestRecording) ChangeSamples(metric string, value func(i int) float64) {
	i := 0
	for _, r := range tp.Rows {
		if r.Kind == format.KindNVML && r.Name == metric {
			r.Value = value(i)
			i++
		}
	}
}

func constantSamples(v float64) func(int) float64 { return func(int) float64 { return v } }

// RemoveRows removes the rows for which `is` returns true.
func (tp *TestRecording) RemoveRows(is func(*format.Row) bool) {
	tp.Rows = slices.DeleteFunc(tp.Rows, is)
}

// RuleCase is a test case of a rule. Fires changes a steady training so that the rule fires, Misses
// so that it just does not. Also names another rule that may fire because of the same problem.
type RuleCase struct {
	Fires, Misses func(*TestRecording)
	Where         string // prefix of the location that the finding names
	Severity      string // expected severity of the finding: problem, notice or info
	Also          string
}

// RuleCases returns a test case for each rule, by rule id.
func RuleCases() map[string]RuleCase {
	const site = "train_step (train.cc:10)"
	// every adds n calls, apart ns from each other, from two seconds on.
	every := func(tp *TestRecording, n int, apart int64, do func(i, ns int64) *format.Row) {
		for i := range int64(n) {
			SetStackAndSite(do(i, 2*Second+i*apart), 1, site)
		}
	}
	return map[string]RuleCase{
		"xid": {
			Fires: func(tp *TestRecording) {
				tp.AddXid(30*Second, 1, 42, 31, format.XidFact{PCI: "0000:5e:00.0", Text: "MMU Fault"})
			},
			Misses: func(tp *TestRecording) {
				tp.AddXid(-90*Second, 1, 42, 31, format.XidFact{Text: "MMU Fault", Before: true})
			},
			Where:    "GPU 1 NVIDIA H200, process 42 train",
			Severity: "problem",
		},
		"broken-context": {
			Fires: func(tp *TestRecording) {
				SetStackAndSite(tp.AddSync("cuStreamSynchronize", 59_950*Ms, Ms, 7, 0), 1, site).Result = 700
				SetStackAndSite(tp.AddFree(59_960*Ms, Us, 0x1000), 2, "load_weights (train.cc:10)").Result = 700
			},
			// an error of the call itself, "not ready", and "shutting down"
			Misses: func(tp *TestRecording) {
				for i, result := range []int32{1, 600, 4} {
					SetStackAndSite(tp.AddSync("cuStreamSynchronize", 59_950*Ms+int64(i)*Ms, Us, 7, 0), 1, site).Result = result
				}
			},
			Where: site, Severity: "problem",
		},
		"exit-leak": {
			Fires: func(tp *TestRecording) {
				every(
					tp,
					20,
					Second,
					func(i, ns int64) *format.Row { return tp.AddAlloc(ns, Us, 0x7d0000000000+i*Mib, Mib) },
				)
				tp.AddExit(42, 59_999*Ms)
			},
			Misses: func(tp *TestRecording) { // memory grows, but the process does not end
				every(
					tp,
					20,
					Second,
					func(i, ns int64) *format.Row { return tp.AddAlloc(ns, Us, 0x7d0000000000+i*Mib, Mib) },
				)
			},
			Where: site, Severity: "info",
		},
		"gpu-health": {
			Fires: func(tp *TestRecording) { tp.AddNVMLSample(1, 30*Second, "remapped_rows_pending", 1) },
			Misses: func(tp *TestRecording) { // corrected errors, and errors on a GPU that no process used
				tp.AddNVMLSample(1, 30*Second, "remapped_rows_pending", 0)
				tp.AddNVMLSample(1, 30*Second, "remapped_rows_uncorrectable", 1)
				tp.AddNVMLSample(1, 30*Second, "ecc_corrected_volatile_errors", 5)
				tp.AddNVMLSample(0, 30*Second, "pcie_replays", 3)
				tp.AddNVMLSample(0, 31*Second, "pcie_replays", 9)
			},
			Where: "GPU 1 NVIDIA H200", Severity: "problem",
		},
		"hang": {
			Fires: func(tp *TestRecording) {
				open := SetStackAndSite(tp.AddSync("cuCtxSynchronize", 60*Second, 20*Second, 7, 0), 1, site)
				open.Flags = format.FlagOpen
				tp.Meta.EndNs = Epoch + 80*Second
			},
			Misses: func(tp *TestRecording) { // a synchronization that started only 0.5 s before the end
				open := SetStackAndSite(tp.AddSync("cuStreamSynchronize", 60*Second, 500*Ms, 7, 0), 1, site)
				open.Flags = format.FlagOpen
				tp.Meta.EndNs = Epoch + 60*Second + 500*Ms
			},
			Where: site + " in process 42 train", Severity: "problem",
		},
		"out-of-memory": {
			Fires: func(tp *TestRecording) {
				tp.AddCall(format.KindAPI, "cuMemGetInfo_v2", 59_990*Ms, Us).Bytes = 30 << 30
				SetStackAndSite(tp.AddAlloc(59_993*Ms, Us, 0, 100<<30), 1, site).Result = calls.ResultOutOfMemory
				tp.AddExit(42, 59_999*Ms)
			},
			// an error other than out of memory
			Misses:   func(tp *TestRecording) { SetStackAndSite(tp.AddAlloc(59_990*Ms, Us, 0, 100<<30), 1, site).Result = 1 },
			Where:    site,
			Severity: "problem",
		},
		"oom-fragmentation": {
			Fires: AddFragmentedAllocator,
			// The device lacks memory in total.
			Misses: func(tp *TestRecording) {
				SetStackAndSite(tp.AddAlloc(59_990*Ms, Us, 0, 100<<30), 1, site).Result = calls.ResultOutOfMemory
			},
			Where:    "forward (model.py:12)",
			Severity: "notice",
			Also:     "out-of-memory",
		},
		"failed-alloc-in-loop": {
			Fires: func(tp *TestRecording) {
				every(tp, 20, 100*Ms, func(_, ns int64) *format.Row {
					r := tp.AddAlloc(ns, Us, 0, 100<<30)
					r.Result = calls.ResultOutOfMemory
					return r
				})
			},
			Misses: func(tp *TestRecording) { // each request is smaller than the one before
				every(tp, 5, 100*Ms, func(i, ns int64) *format.Row {
					r := tp.AddAlloc(ns, Us, 0, 100<<30-i<<30)
					r.Result = calls.ResultOutOfMemory
					return r
				})
			},
			Where: site, Severity: "notice", Also: "out-of-memory",
		},
		"unchecked-error": {
			Fires: func(tp *TestRecording) {
				every(tp, 5, Second, func(_, ns int64) *format.Row {
					r := tp.AddFullLaunch(ns+50*Ms, "wide")
					r.Result = 701
					return r
				})
			},
			// a query, two errors only, and errors without launches after them
			Misses: func(tp *TestRecording) {
				every(tp, 500, 100*Ms, func(_, ns int64) *format.Row {
					r := tp.AddCall(format.KindAPI, "cuPointerGetAttribute", ns, Us)
					r.Result = 1
					return r
				})
				every(tp, 2, Second, func(_, ns int64) *format.Row {
					r := tp.AddFullLaunch(ns+50*Ms, "wide")
					r.Result = 701
					return r
				})
				for i := range int64(5) {
					tp.AddFree(59_990*Ms+i*Us, Us, 0x1000).Result = 201
				}
			},
			Where: site, Severity: "notice",
		},
		"invalid-free": {
			Fires: func(tp *TestRecording) {
				every(tp, 20, Second, func(_, ns int64) *format.Row {
					SetStackAndSite(tp.AddAlloc(ns, Us, 0x7d0000000000, Mib), 2, "load_weights (train.cc:10)")
					SetStackAndSite(tp.AddFree(ns+Ms, Us, 0x7d0000000000), 2, "load_weights (train.cc:20)")
					r := tp.AddFree(ns+2*Ms, Us, 0x7d0000000000)
					r.Result = fault.ResultInvalidValue
					return r
				})
			},
			// A null pointer; memory from before the recording; live memory that is then freed
			// successfully; a driver that is shutting down.
			Misses: func(tp *TestRecording) {
				every(tp, 20, Second, func(i, ns int64) *format.Row {
					tp.AddFree(ns, Us, 0x7d0000000000+i*Mib)
					tp.AddAlloc(ns+Ms, Us, 0x7c0000000000, Mib)
					tp.AddFree(ns+2*Ms, Us, 0x7c0000000000).Result = fault.ResultInvalidValue
					tp.AddFree(ns+3*Ms, Us, 0x7c0000000000)
					tp.AddFree(ns+4*Ms, Us, 0x7c0000000000).Result = calls.ResultDeinitialized
					r := tp.AddFree(ns+5*Ms, Us, 0)
					r.Result = fault.ResultInvalidValue
					return r
				})
			},
			Where: site, Severity: "problem",
		},
		"growing-site": {
			Fires: func(tp *TestRecording) {
				every(
					tp,
					500,
					100*Ms,
					func(i, ns int64) *format.Row { return tp.AddAlloc(ns, Us, 0x7d0000000000+i*Mib, Mib) },
				)
			},
			Misses: func(tp *TestRecording) { // a cache that is full after half of the time
				every(
					tp,
					250,
					100*Ms,
					func(i, ns int64) *format.Row { return tp.AddAlloc(ns, Us, 0x7d0000000000+i*Mib, Mib) },
				)
			},
			Where: site, Severity: "problem",
		},
		"memory-near-limit": {
			Fires: func(tp *TestRecording) {
				tp.ChangeSamples(catalog.MetricMemoryUsed, func(i int) float64 { return float64((80 + i/2) << 30) })
			},
			Misses: func(tp *TestRecording) { tp.ChangeSamples(catalog.MetricMemoryUsed, constantSamples(132<<30)) },
			Where:  "GPU 1 NVIDIA H200", Severity: "notice",
		},
		"throttling": {
			Fires: func(tp *TestRecording) {
				tp.ChangeSamples(
					catalog.MetricClockEventReasons,
					func(i int) float64 { return float64(32 * (i / 100)) },
				)
			},
			Misses: func(tp *TestRecording) {
				tp.ChangeSamples(catalog.MetricClockEventReasons, func(i int) float64 { return float64(4*(i/110)) + 1 })
			}, // the power cap for 5 s, otherwise idle clocks
			Where: "GPU 1 NVIDIA H200", Severity: "problem",
		},
		"gpu-idle": {
			Fires: func(tp *TestRecording) {
				tp.ChangeSamples(catalog.MetricSMActive, func(i int) float64 { return float64(92 * min(1, i%4)) })
			},
			Misses: func(tp *TestRecording) {
				tp.ChangeSamples(catalog.MetricSMActive, func(i int) float64 { return float64(92 * min(1, i%6)) })
			},
			Where: "GPU 1 NVIDIA H200", Severity: "notice",
		},
		"launch-bound": {
			Fires: func(tp *TestRecording) {
				every(tp, 45_000, 90*Us, func(_, ns int64) *format.Row { return tp.AddFullLaunch(ns, "small_step") })
				tp.shortenTo(6500 * Ms)
				tp.ChangeSamples(catalog.MetricSMActive, constantSamples(30))
			},
			Misses: func(tp *TestRecording) { // many launches, but the GPU is busy
				every(tp, 30_000, 90*Us, func(_, ns int64) *format.Row { return tp.AddFullLaunch(ns, "small_step") })
				tp.shortenTo(6 * Second)
			},
			Where: site, Severity: "notice", Also: "low-sm-activity",
		},
		"low-sm-activity": {
			Fires:  func(tp *TestRecording) { tp.ChangeSamples(catalog.MetricSMActive, constantSamples(30)) },
			Misses: func(tp *TestRecording) { tp.ChangeSamples(catalog.MetricSMActive, constantSamples(55)) },
			Where:  "GPU 1 NVIDIA H200", Severity: "notice",
		},
		"low-occupancy": {
			Fires: func(tp *TestRecording) {
				tp.ChangeSamples(catalog.MetricSMOccupancy, constantSamples(15))
				tp.ChangeSamples(catalog.MetricTensorActive, constantSamples(5))
			},
			// Low occupancy is enough while the tensor cores work.
			Misses: func(tp *TestRecording) { tp.ChangeSamples(catalog.MetricSMOccupancy, constantSamples(15)) },
			Where:  "GPU 1 NVIDIA H200", Severity: "notice",
		},
		"tensor-cores-unused": {
			Fires: func(tp *TestRecording) { tp.ChangeSamples(catalog.MetricTensorActive, constantSamples(0.2)) },
			Misses: func(tp *TestRecording) {
				tp.ChangeSamples(catalog.MetricTensorActive, constantSamples(0.2))
				tp.ChangeSamples("gpm_fp32_active_percent", constantSamples(5))
			}, // FP32 units are idle too: the kernels wait for memory
			Where: "GPU 1 NVIDIA H200", Severity: "info",
		},
		"tiny-kernels": {
			Fires: func(tp *TestRecording) {
				every(
					tp,
					12_000,
					400*Us,
					func(_, ns int64) *format.Row { r := tp.AddFullLaunch(ns, "add_scalar"); r.GridX = 1; return r },
				)
				tp.shortenTo(7 * Second)
			},
			Misses: func(tp *TestRecording) { // as many launches of a large kernel
				every(tp, 12_000, 400*Us, func(_, ns int64) *format.Row { return tp.AddFullLaunch(ns, "add_scalar") })
				tp.shortenTo(7 * Second)
			},
			Where: site, Severity: "notice",
		},
		"sync-in-loop": {
			Fires: func(tp *TestRecording) {
				every(
					tp,
					10_000,
					Ms,
					func(_, ns int64) *format.Row { return tp.AddSync("cuCtxSynchronize", ns, 20*Us, 0, 0) },
				)
				tp.shortenTo(12 * Second)
			},
			Misses: func(tp *TestRecording) { // 100 times a second, and one short burst
				every(
					tp,
					5000,
					10*Ms,
					func(_, ns int64) *format.Row { return tp.AddSync("cuCtxSynchronize", ns, 20*Us, 0, 0) },
				)
				every(
					tp,
					1000,
					Us,
					func(_, ns int64) *format.Row { return tp.AddSync("cuEventSynchronize", ns, Us, 0, 0) },
				)
			},
			Where: site, Severity: "notice",
		},
		"alloc-in-loop": {
			Fires: func(tp *TestRecording) {
				every(tp, 5000, 10*Ms, func(_, ns int64) *format.Row {
					tp.AddFree(ns+5*Ms, 50*Us, 0x7d0000000000)
					return tp.AddAlloc(ns, 50*Us, 0x7d0000000000, Mib)
				})
			},
			Misses: func(tp *TestRecording) { // ten times a second, and a memory pool
				every(tp, 500, 100*Ms, func(_, ns int64) *format.Row {
					tp.AddFree(ns+5*Ms, 50*Us, 0x7d0000000000)
					return tp.AddAlloc(ns, 50*Us, 0x7d0000000000, Mib)
				})
				every(tp, 5000, 10*Ms, func(i, ns int64) *format.Row {
					f := tp.AddFree(ns+5*Ms, Us, 0x7c0000000000)
					a := tp.AddAlloc(ns, Us, 0x7c0000000000, Mib)
					f.Name, f.MemoryKind, a.Name, a.MemoryKind = "cuMemFreeAsync", format.MemoryAsync, "cuMemAllocAsync", format.MemoryAsync
					return a
				})
			},
			Where: site, Severity: "notice",
		},
		"memcpy-async-pageable": {
			Fires: func(tp *TestRecording) {
				every(tp, 50, Second, func(_, ns int64) *format.Row {
					return tp.AddCopy(
						"cuMemcpyHtoDAsync_v2",
						"HtoD",
						ns+50*Ms,
						2*Ms,
						0x7f0000000000,
						0x600000000000,
						16*Mib,
					)
				})
			},
			// The recording started late, and the copies return before the data can be copied. So
			// the host memory must be pinned.
			Misses: func(tp *TestRecording) {
				tp.RemoveRows(func(r *format.Row) bool { return r.Name == "cuInit" })
				every(tp, 50, Second, func(_, ns int64) *format.Row {
					return tp.AddCopy(
						"cuMemcpyHtoDAsync_v2",
						"HtoD",
						ns+50*Ms,
						8*Us,
						0x7f0000000000,
						0x600000000000,
						16*Mib,
					)
				})
			},
			Where: site, Severity: "notice",
		},
		"small-copies": {
			Fires: func(tp *TestRecording) {
				every(tp, 600, 50*Us, func(_, ns int64) *format.Row {
					return tp.AddCopy("cuMemcpyDtoH_v2", "DtoH", ns, 10*Us, 0x600000000000, 0x7f0000000000, 4)
				})
			},
			Misses: func(tp *TestRecording) { // as many with longer distances, and one burst
				every(tp, 600, 5*Ms, func(_, ns int64) *format.Row {
					return tp.AddCopy("cuMemcpyDtoH_v2", "DtoH", ns, 10*Us, 0x600000000000, 0x7f0000000000, 4)
				})
				every(tp, 60, 50*Us, func(_, ns int64) *format.Row {
					return tp.AddCopy("cuMemcpyDtoH_v2", "DtoH", ns+10*Second, 10*Us, 0x600000000000, 0x7f0000000000, 4)
				})
			},
			Where: site, Severity: "notice",
		},
		"module-load-in-loop": {
			Fires: func(tp *TestRecording) {
				every(
					tp,
					100,
					500*Ms,
					func(_, ns int64) *format.Row { return tp.AddCall(format.KindAPI, "cuModuleLoadData", ns, Ms) },
				)
			},
			Misses: func(tp *TestRecording) { // modules are loaded only during a long warm-up
				every(
					tp,
					500,
					50*Ms,
					func(_, ns int64) *format.Row { return tp.AddCall(format.KindAPI, "cuModuleLoadData", ns, Ms) },
				)
			},
			Where: site, Severity: "notice",
		},
	}
}

// shortenTo ends a recording at a time, and removes the rows near its end.
func (tp *TestRecording) shortenTo(to int64) {
	tp.Meta.EndNs = Epoch + to
	tp.RemoveRows(func(r *format.Row) bool { return r.StartNs > Epoch+to-Second/10 })
}

// AddFragmentedAllocator adds events of PyTorch's allocator: a request fails although enough memory
// is free in pieces.
func AddFragmentedAllocator(tp *TestRecording) {
	const segment = int64(0x7b0000000000)
	tp.AddStack(9, "forward", "main")
	event := func(at int64, name string, ptr, bytes, allocated, reserved int64) *format.Row {
		return tp.AddRow(format.Row{
			Kind:           format.KindAllocator,
			Name:           name,
			StartNs:        Epoch + at,
			Pid:            42,
			Tid:            42,
			MemoryKind:     format.MemoryTorch,
			Ptr:            ptr,
			Bytes:          bytes,
			StackID:        9,
			StackStatus:    format.StackComplete,
			Site:           "forward (model.py:12)",
			AllocatedBytes: allocated,
			ReservedBytes:  reserved,
		})
	}
	total := int64(0)
	for i := range int64(10) {
		ptr, at := segment+i*1024*Mib, 50*Second+i*10*Ms
		event(at, format.AllocatorSegmentAlloc, ptr, 400*Mib, total, (i+1)*400*Mib)
		event(at+Ms, format.AllocatorAlloc, ptr, 200*Mib, total, (i+1)*400*Mib)
		total += 200 * Mib
	}
	event(51*Second, format.AllocatorOOM, 0, 1024*Mib, total, 4000*Mib).Value = float64(100 * Mib)
	// The program handles the error and continues.
}
