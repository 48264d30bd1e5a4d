// Package rulecases has, for each rule, changes of a steady recording that make the rule fire, and
// changes that just miss it.
package rulecases

import (
	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/format"
)

// Case is a test case of a rule. Fires changes a steady training so that the rule fires, Misses
// so that it just does not. Also names another rule that may fire because of the same problem.
type Case struct {
	Fires, Misses func(*analyzetest.TestRecording)
	Where         string // prefix of the location that the finding names
	Severity      string // expected severity of the finding: problem, notice or info
	Also          string
}

// AllCases returns a test case for each rule, by rule id.
func AllCases() map[string]Case {
	// every adds n calls, apart ns from each other, from two seconds on.
	every := func(recording *analyzetest.TestRecording, n int, apart int64, do func(i, ns int64) *format.Row) {
		for i := range int64(n) {
			analyzetest.SetStackAndSite(do(i, 2*analyzetest.Second+i*apart), 1, site)
		}
	}
	return map[string]Case{
		"xid": {
			Fires: func(recording *analyzetest.TestRecording) {
				recording.AddXid(
					30*analyzetest.Second,
					1,
					42,
					31,
					format.XidFact{PCI: "0000:5e:00.0", Text: "MMU Fault"},
				)
			},
			Misses: func(recording *analyzetest.TestRecording) {
				recording.AddXid(-90*analyzetest.Second, 1, 42, 31, format.XidFact{Text: "MMU Fault", Before: true})
			},
			Where:    "GPU 1 NVIDIA H200, process 42 train",
			Severity: "problem",
		},
		"broken-context": {
			Fires: func(recording *analyzetest.TestRecording) {
				analyzetest.SetStackAndSite(recording.AddSync("cuStreamSynchronize", 59_950*analyzetest.Ms, analyzetest.Ms, 7, 0), 1, site).Result = 700
				analyzetest.SetStackAndSite(recording.AddFree(59_960*analyzetest.Ms, analyzetest.Us, 0x1000), 2, "load_weights (train.cc:10)").Result = 700
			},
			// an error of the call itself, "not ready", and "shutting down"
			Misses: func(recording *analyzetest.TestRecording) {
				for i, result := range []int32{1, 600, 4} {
					analyzetest.SetStackAndSite(recording.AddSync("cuStreamSynchronize", 59_950*analyzetest.Ms+int64(i)*analyzetest.Ms, analyzetest.Us, 7, 0), 1, site).Result = result
				}
			},
			Where: site, Severity: "problem",
		},
		"use-after-free": useAfterFreeCase(),
		"exit-leak": {
			Fires: func(recording *analyzetest.TestRecording) {
				every(
					recording,
					20,
					analyzetest.Second,
					func(i, ns int64) *format.Row {
						return recording.AddAlloc(ns, analyzetest.Us, 0x7d0000000000+i*analyzetest.Mib, analyzetest.Mib)
					},
				)
				recording.AddExit(42, 59_999*analyzetest.Ms)
			},
			Misses: func(recording *analyzetest.TestRecording) { // memory grows, but the process does not end
				every(
					recording,
					20,
					analyzetest.Second,
					func(i, ns int64) *format.Row {
						return recording.AddAlloc(ns, analyzetest.Us, 0x7d0000000000+i*analyzetest.Mib, analyzetest.Mib)
					},
				)
			},
			Where: site, Severity: "info",
		},
		"gpu-health": {
			Fires: func(recording *analyzetest.TestRecording) {
				recording.AddNVMLSample(1, 30*analyzetest.Second, "remapped_rows_pending", 1)
			},
			Misses: func(recording *analyzetest.TestRecording) { // corrected errors, and errors on a GPU that no process used
				recording.AddNVMLSample(1, 30*analyzetest.Second, "remapped_rows_pending", 0)
				recording.AddNVMLSample(1, 30*analyzetest.Second, "remapped_rows_uncorrectable", 1)
				recording.AddNVMLSample(1, 30*analyzetest.Second, "ecc_corrected_volatile_errors", 5)
				recording.AddNVMLSample(0, 30*analyzetest.Second, "pcie_replays", 3)
				recording.AddNVMLSample(0, 31*analyzetest.Second, "pcie_replays", 9)
			},
			Where:    "GPU 1 NVIDIA H200",
			Severity: "problem",
		},
		"hang": {
			Fires: func(recording *analyzetest.TestRecording) {
				open := analyzetest.SetStackAndSite(
					recording.AddSync("cuCtxSynchronize", 60*analyzetest.Second, 20*analyzetest.Second, 7, 0),
					1,
					site,
				)
				open.Flags = format.FlagOpen
				recording.Meta.EndNs = analyzetest.Epoch + 80*analyzetest.Second
			},
			Misses: func(recording *analyzetest.TestRecording) { // a synchronization that started only 0.5 s before the end
				open := analyzetest.SetStackAndSite(
					recording.AddSync("cuStreamSynchronize", 60*analyzetest.Second, 500*analyzetest.Ms, 7, 0),
					1,
					site,
				)
				open.Flags = format.FlagOpen
				recording.Meta.EndNs = analyzetest.Epoch + 60*analyzetest.Second + 500*analyzetest.Ms
			},
			Where:    site + " in process 42 train",
			Severity: "problem",
		},
		"rank-missing":        rankMissingCase(),
		"collective-mismatch": mismatchCase(),
		"straggler":           stragglerCase(),
		"small-collectives":   smallCollectivesCase(),
		"uneven-memory":       unevenMemoryCase(),
		"out-of-memory": {
			Fires: func(recording *analyzetest.TestRecording) {
				recording.AddCall(format.KindAPI, "cuMemGetInfo_v2", 59_990*analyzetest.Ms, analyzetest.Us).Bytes = 30 << 30
				analyzetest.SetStackAndSite(recording.AddAlloc(59_993*analyzetest.Ms, analyzetest.Us, 0, 100<<30), 1, site).Result = calls.ResultOutOfMemory
				recording.AddExit(42, 59_999*analyzetest.Ms)
			},
			// an error other than out of memory
			Misses: func(recording *analyzetest.TestRecording) {
				analyzetest.SetStackAndSite(recording.AddAlloc(59_990*analyzetest.Ms, analyzetest.Us, 0, 100<<30), 1, site).Result = 1
			},
			Where:    site,
			Severity: "problem",
		},
		"oom-fragmentation": {
			Fires: analyzetest.AddFragmentedAllocator,
			// The device lacks memory in total.
			Misses: func(recording *analyzetest.TestRecording) {
				analyzetest.SetStackAndSite(recording.AddAlloc(59_990*analyzetest.Ms, analyzetest.Us, 0, 100<<30), 1, site).Result = calls.ResultOutOfMemory
			},
			Where:    "forward (model.py:12)",
			Severity: "notice",
			Also:     "out-of-memory",
		},
		"failed-alloc-in-loop": {
			Fires: func(recording *analyzetest.TestRecording) {
				every(recording, 20, 100*analyzetest.Ms, func(_, ns int64) *format.Row {
					r := recording.AddAlloc(ns, analyzetest.Us, 0, 100<<30)
					r.Result = calls.ResultOutOfMemory
					return r
				})
			},
			Misses: func(recording *analyzetest.TestRecording) { // each request is smaller than the one before
				every(recording, 5, 100*analyzetest.Ms, func(i, ns int64) *format.Row {
					r := recording.AddAlloc(ns, analyzetest.Us, 0, 100<<30-i<<30)
					r.Result = calls.ResultOutOfMemory
					return r
				})
			},
			Where: site, Severity: "notice", Also: "out-of-memory",
		},
		"unchecked-error": {
			Fires: func(recording *analyzetest.TestRecording) {
				every(recording, 5, analyzetest.Second, func(_, ns int64) *format.Row {
					r := recording.AddFullLaunch(ns+50*analyzetest.Ms, "wide")
					r.Result = 701
					return r
				})
			},
			// a query, two errors only, and errors without launches after them
			Misses: func(recording *analyzetest.TestRecording) {
				every(recording, 500, 100*analyzetest.Ms, func(_, ns int64) *format.Row {
					r := recording.AddCall(format.KindAPI, "cuPointerGetAttribute", ns, analyzetest.Us)
					r.Result = 1
					return r
				})
				every(recording, 2, analyzetest.Second, func(_, ns int64) *format.Row {
					r := recording.AddFullLaunch(ns+50*analyzetest.Ms, "wide")
					r.Result = 701
					return r
				})
				for i := range int64(5) {
					recording.AddFree(59_990*analyzetest.Ms+i*analyzetest.Us, analyzetest.Us, 0x1000).Result = 201
				}
			},
			Where: site, Severity: "notice",
		},
		"invalid-free": {
			Fires: func(recording *analyzetest.TestRecording) {
				every(recording, 20, analyzetest.Second, func(_, ns int64) *format.Row {
					analyzetest.SetStackAndSite(
						recording.AddAlloc(ns, analyzetest.Us, 0x7d0000000000, analyzetest.Mib),
						2,
						"load_weights (train.cc:10)",
					)
					analyzetest.SetStackAndSite(
						recording.AddFree(ns+analyzetest.Ms, analyzetest.Us, 0x7d0000000000),
						2,
						"load_weights (train.cc:20)",
					)
					r := recording.AddFree(ns+2*analyzetest.Ms, analyzetest.Us, 0x7d0000000000)
					r.Result = fault.ResultInvalidValue
					return r
				})
			},
			// A null pointer; memory from before the recording; live memory that is then freed
			// successfully; a driver that is shutting down.
			Misses: func(recording *analyzetest.TestRecording) {
				every(recording, 20, analyzetest.Second, func(i, ns int64) *format.Row {
					recording.AddFree(ns, analyzetest.Us, 0x7d0000000000+i*analyzetest.Mib)
					recording.AddAlloc(ns+analyzetest.Ms, analyzetest.Us, 0x7c0000000000, analyzetest.Mib)
					recording.AddFree(ns+2*analyzetest.Ms, analyzetest.Us, 0x7c0000000000).Result = fault.ResultInvalidValue
					recording.AddFree(ns+3*analyzetest.Ms, analyzetest.Us, 0x7c0000000000)
					recording.AddFree(ns+4*analyzetest.Ms, analyzetest.Us, 0x7c0000000000).Result = calls.ResultDeinitialized
					r := recording.AddFree(ns+5*analyzetest.Ms, analyzetest.Us, 0)
					r.Result = fault.ResultInvalidValue
					return r
				})
			},
			Where: site, Severity: "problem",
		},
		"growing-site": {
			Fires: func(recording *analyzetest.TestRecording) {
				every(
					recording,
					500,
					100*analyzetest.Ms,
					func(i, ns int64) *format.Row {
						return recording.AddAlloc(ns, analyzetest.Us, 0x7d0000000000+i*analyzetest.Mib, analyzetest.Mib)
					},
				)
			},
			Misses: func(recording *analyzetest.TestRecording) { // a cache that is full after half of the time
				every(
					recording,
					250,
					100*analyzetest.Ms,
					func(i, ns int64) *format.Row {
						return recording.AddAlloc(ns, analyzetest.Us, 0x7d0000000000+i*analyzetest.Mib, analyzetest.Mib)
					},
				)
			},
			Where: site, Severity: "problem",
		},
		"cache-growth": {
			Fires: func(recording *analyzetest.TestRecording) {
				analyzetest.NewCacheProgram(recording, analyzetest.TorchConf{}).RequestLonger(1000)
			},
			Misses: func(recording *analyzetest.TestRecording) { // longer requests only in the first third
				analyzetest.NewCacheProgram(recording, analyzetest.TorchConf{}).RequestLonger(190)
			},
			Where: analyzetest.CacheSite, Severity: "notice",
		},
		"memory-near-limit": {
			Fires: func(recording *analyzetest.TestRecording) {
				recording.ChangeSamples(
					catalog.MetricMemoryUsed,
					func(i int) float64 { return float64((80 + i/2) << 30) },
				)
			},
			Misses: func(recording *analyzetest.TestRecording) {
				recording.ChangeSamples(catalog.MetricMemoryUsed, analyzetest.ConstantSamples(132<<30))
			},
			Where: "GPU 1 NVIDIA H200", Severity: "notice",
		},
		"throttling": {
			Fires: func(recording *analyzetest.TestRecording) {
				recording.ChangeSamples(
					catalog.MetricClockEventReasons,
					func(i int) float64 { return float64(32 * (i / 100)) },
				)
			},
			Misses: func(recording *analyzetest.TestRecording) {
				recording.ChangeSamples(
					catalog.MetricClockEventReasons,
					func(i int) float64 { return float64(4*(i/110)) + 1 },
				)
			}, // the power cap for 5 s, otherwise idle clocks
			Where: "GPU 1 NVIDIA H200", Severity: "problem",
		},
		"change": changeCase(),
		"gpu-idle": {
			Fires: func(recording *analyzetest.TestRecording) {
				recording.ChangeSamples(
					catalog.MetricSMActive,
					func(i int) float64 { return float64(92 * min(1, i%4)) },
				)
			},
			Misses: func(recording *analyzetest.TestRecording) {
				recording.ChangeSamples(
					catalog.MetricSMActive,
					func(i int) float64 { return float64(92 * min(1, i%6)) },
				)
			},
			Where: "GPU 1 NVIDIA H200", Severity: "notice",
		},
		"dataloader-bound":   hostCase(format.WaitFact{Reason: format.ReasonPoll}, gpuprogram.DataLoaderFrames()...),
		"gil-bound":          hostCase(format.WaitFact{Reason: format.ReasonGIL, OwnerPid: 42, OwnerTid: 43}),
		"oversubscribed-cpu": hostCase(format.WaitFact{Reason: format.ReasonRunQueue}),
		"io-bound":           hostCase(format.WaitFact{Reason: format.ReasonFile, Target: "/data/a.bin"}),
		"gc-pause":           gcCase(),
		"cpu-throttled":      throttledCase(),
		"launch-bound": {
			Fires: func(recording *analyzetest.TestRecording) {
				every(
					recording,
					45_000,
					90*analyzetest.Us,
					func(_, ns int64) *format.Row { return recording.AddFullLaunch(ns, "small_step") },
				)
				recording.ShortenTo(6500 * analyzetest.Ms)
				recording.ChangeSamples(catalog.MetricSMActive, analyzetest.ConstantSamples(30))
			},
			Misses: func(recording *analyzetest.TestRecording) { // many launches, but the GPU is busy
				every(
					recording,
					30_000,
					90*analyzetest.Us,
					func(_, ns int64) *format.Row { return recording.AddFullLaunch(ns, "small_step") },
				)
				recording.ShortenTo(6 * analyzetest.Second)
			},
			Where: site, Severity: "notice", Also: "low-sm-activity",
		},
		"low-sm-activity": {
			Fires: func(recording *analyzetest.TestRecording) {
				recording.ChangeSamples(catalog.MetricSMActive, analyzetest.ConstantSamples(30))
				narrowLaunches(recording)
			},
			Misses: func(recording *analyzetest.TestRecording) { // the kernels are large enough
				recording.ChangeSamples(catalog.MetricSMActive, analyzetest.ConstantSamples(30))
			},
			Where: "GPU 1 NVIDIA H200", Severity: "notice",
		},
		"low-occupancy": {
			Fires: func(recording *analyzetest.TestRecording) {
				recording.ChangeSamples(catalog.MetricSMOccupancy, analyzetest.ConstantSamples(15))
				recording.ChangeSamples(catalog.MetricTensorActive, analyzetest.ConstantSamples(5))
			},
			// Low occupancy is enough while the tensor cores work.
			Misses: func(recording *analyzetest.TestRecording) {
				recording.ChangeSamples(catalog.MetricSMOccupancy, analyzetest.ConstantSamples(15))
			},
			Where: "GPU 1 NVIDIA H200", Severity: "notice",
		},
		"tensor-cores-unused": {
			Fires: func(recording *analyzetest.TestRecording) {
				recording.ChangeSamples(catalog.MetricTensorActive, analyzetest.ConstantSamples(0.2))
			},
			Misses: func(recording *analyzetest.TestRecording) {
				recording.ChangeSamples(catalog.MetricTensorActive, analyzetest.ConstantSamples(0.2))
				recording.ChangeSamples("gpm_fp32_active_percent", analyzetest.ConstantSamples(5))
			}, // FP32 units are idle too: the kernels wait for memory
			Where: "GPU 1 NVIDIA H200", Severity: "info",
		},
		"tiny-kernels": {
			Fires: func(recording *analyzetest.TestRecording) {
				every(
					recording,
					12_000,
					400*analyzetest.Us,
					func(_, ns int64) *format.Row { r := recording.AddFullLaunch(ns, "add_scalar"); r.GridX = 1; return r },
				)
				recording.ShortenTo(7 * analyzetest.Second)
			},
			Misses: func(recording *analyzetest.TestRecording) { // as many launches of a large kernel
				every(
					recording,
					12_000,
					400*analyzetest.Us,
					func(_, ns int64) *format.Row { return recording.AddFullLaunch(ns, "add_scalar") },
				)
				recording.ShortenTo(7 * analyzetest.Second)
			},
			Where: site, Severity: "notice",
		},
		"sync-in-loop": {
			Fires: func(recording *analyzetest.TestRecording) {
				every(
					recording,
					10_000,
					analyzetest.Ms,
					func(_, ns int64) *format.Row {
						return recording.AddSync("cuCtxSynchronize", ns, 20*analyzetest.Us, 0, 0)
					},
				)
				recording.ShortenTo(12 * analyzetest.Second)
			},
			Misses: func(recording *analyzetest.TestRecording) { // 100 times a second, and one short burst
				every(
					recording,
					5000,
					10*analyzetest.Ms,
					func(_, ns int64) *format.Row {
						return recording.AddSync("cuCtxSynchronize", ns, 20*analyzetest.Us, 0, 0)
					},
				)
				every(
					recording,
					1000,
					analyzetest.Us,
					func(_, ns int64) *format.Row {
						return recording.AddSync("cuEventSynchronize", ns, analyzetest.Us, 0, 0)
					},
				)
			},
			Where: site, Severity: "notice",
		},
		"object-leak": {
			Fires: func(recording *analyzetest.TestRecording) { // an event a second, and none is destroyed
				every(recording, 58, analyzetest.Second, func(i, ns int64) *format.Row {
					return recording.AddAPICall("cuEventCreate", ns, 0x6000+i*0x100, 0)
				})
			},
			Misses: func(recording *analyzetest.TestRecording) { // a pool that is full after half of the time
				every(recording, 29, analyzetest.Second, func(i, ns int64) *format.Row {
					return recording.AddAPICall("cuEventCreate", ns, 0x6000+i*0x100, 0)
				})
			},
			Where: site, Severity: "problem",
		},
		"alloc-in-loop": {
			Fires: func(recording *analyzetest.TestRecording) {
				every(recording, 5000, 10*analyzetest.Ms, func(_, ns int64) *format.Row {
					recording.AddFree(ns+5*analyzetest.Ms, 50*analyzetest.Us, 0x7d0000000000)
					return recording.AddAlloc(ns, 50*analyzetest.Us, 0x7d0000000000, analyzetest.Mib)
				})
			},
			Misses: func(recording *analyzetest.TestRecording) { // ten times a second, and a memory pool
				every(recording, 500, 100*analyzetest.Ms, func(_, ns int64) *format.Row {
					recording.AddFree(ns+5*analyzetest.Ms, 50*analyzetest.Us, 0x7d0000000000)
					return recording.AddAlloc(ns, 50*analyzetest.Us, 0x7d0000000000, analyzetest.Mib)
				})
				every(recording, 5000, 10*analyzetest.Ms, func(i, ns int64) *format.Row {
					f := recording.AddFree(ns+5*analyzetest.Ms, analyzetest.Us, 0x7c0000000000)
					a := recording.AddAlloc(ns, analyzetest.Us, 0x7c0000000000, analyzetest.Mib)
					f.Name, f.MemoryKind, a.Name, a.MemoryKind = "cuMemFreeAsync", format.MemoryAsync, "cuMemAllocAsync", format.MemoryAsync
					return a
				})
			},
			Where: site, Severity: "notice",
		},
		"memcpy-async-pageable": {
			Fires: func(recording *analyzetest.TestRecording) {
				every(recording, 50, analyzetest.Second, func(_, ns int64) *format.Row {
					return recording.AddCopy(
						"cuMemcpyHtoDAsync_v2",
						"HtoD",
						ns+50*analyzetest.Ms,
						2*analyzetest.Ms,
						0x7f0000000000,
						0x600000000000,
						16*analyzetest.Mib,
					)
				})
			},
			// The recording started late, and the copies return before the data can be copied. So
			// the host memory must be pinned.
			Misses: func(recording *analyzetest.TestRecording) {
				recording.RemoveRows(func(r *format.Row) bool { return r.Name == "cuInit" })
				every(recording, 50, analyzetest.Second, func(_, ns int64) *format.Row {
					return recording.AddCopy(
						"cuMemcpyHtoDAsync_v2",
						"HtoD",
						ns+50*analyzetest.Ms,
						8*analyzetest.Us,
						0x7f0000000000,
						0x600000000000,
						16*analyzetest.Mib,
					)
				})
			},
			Where: site, Severity: "notice",
		},
		"small-copies": {
			Fires: func(recording *analyzetest.TestRecording) {
				every(recording, 600, 50*analyzetest.Us, func(_, ns int64) *format.Row {
					return recording.AddCopy(
						"cuMemcpyDtoH_v2",
						"DtoH",
						ns,
						10*analyzetest.Us,
						0x600000000000,
						0x7f0000000000,
						4,
					)
				})
			},
			Misses: func(recording *analyzetest.TestRecording) { // as many with longer distances, and one burst
				every(recording, 600, 5*analyzetest.Ms, func(_, ns int64) *format.Row {
					return recording.AddCopy(
						"cuMemcpyDtoH_v2",
						"DtoH",
						ns,
						10*analyzetest.Us,
						0x600000000000,
						0x7f0000000000,
						4,
					)
				})
				every(recording, 60, 50*analyzetest.Us, func(_, ns int64) *format.Row {
					return recording.AddCopy(
						"cuMemcpyDtoH_v2",
						"DtoH",
						ns+10*analyzetest.Second,
						10*analyzetest.Us,
						0x600000000000,
						0x7f0000000000,
						4,
					)
				})
			},
			Where: site, Severity: "notice",
		},
		"module-load-in-loop": {
			Fires: func(recording *analyzetest.TestRecording) {
				every(
					recording,
					100,
					500*analyzetest.Ms,
					func(_, ns int64) *format.Row {
						return recording.AddCall(format.KindAPI, "cuModuleLoadData", ns, analyzetest.Ms)
					},
				)
			},
			Misses: func(recording *analyzetest.TestRecording) { // modules are loaded only during a long warm-up
				every(
					recording,
					500,
					50*analyzetest.Ms,
					func(_, ns int64) *format.Row {
						return recording.AddCall(format.KindAPI, "cuModuleLoadData", ns, analyzetest.Ms)
					},
				)
			},
			Where: site, Severity: "notice",
		},
	}
}

// narrowLaunches gives all launches 32 blocks of 1,024 threads.
func narrowLaunches(recording *analyzetest.TestRecording) {
	for _, r := range recording.Rows {
		if r.Kind == format.KindLaunch {
			r.GridX, r.BlockX = 32, 1024
		}
	}
}
