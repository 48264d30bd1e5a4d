//go:build linux && cgo

package nvml

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
)

// makeProcessQueries returns the queries for processes on the device. They cover all processes that
// the driver lists, also unrecorded ones, because all share the device's memory.
func (g *gpu) makeProcessQueries() []*query {
	var queries []*query
	if lists := g.findProcessLists(); len(lists) > 0 {
		queries = append(
			queries,
			&query{
				name:  "process_used_memory_bytes",
				every: periodSecond,
				run: func(c clock.Clock) ([]format.Row, nvml.Return) {
					return g.sampleProcessMemory(c, lists)
				},
			},
		)
	}
	if hasNVMLFunction("nvmlDeviceGetProcessUtilization") {
		u := &utilizationReader{gpu: g}
		if _, ret := u.sampleUtilization(clock.Clock{}); ret == nvml.SUCCESS {
			queries = append(queries, &query{name: "process_utilization", every: periodSlow, run: u.sampleUtilization})
		}
	}
	return queries
}

// processList is an NVML function that lists processes on a device.
type processList func(nvml.Device) ([]nvml.ProcessInfo, nvml.Return)

// processListFunction is an NVML function that lists processes, with its symbol.
type processListFunction struct {
	symbol string
	list   processList
}

// computeProcessLists list processes that use CUDA, directly or through MPS.
var computeProcessLists = []processListFunction{
	{"nvmlDeviceGetComputeRunningProcesses", nvml.Device.GetComputeRunningProcesses},
	{"nvmlDeviceGetMPSComputeRunningProcesses", nvml.Device.GetMPSComputeRunningProcesses},
}

// graphicsProcessList lists processes that use graphics.
var graphicsProcessList = processListFunction{
	"nvmlDeviceGetGraphicsRunningProcesses",
	nvml.Device.GetGraphicsRunningProcesses,
}

// isInNVML reports whether NVML has the function in any version.
func (l processListFunction) isInNVML() bool {
	return hasNVMLFunction(l.symbol) || hasNVMLFunction(l.symbol+"_v2") || hasNVMLFunction(l.symbol+"_v3")
}

// findProcessLists returns the process lists of NVML that the device supports. A process that uses
// compute and graphics is in both lists, with the same memory.
func (g *gpu) findProcessLists() []processList {
	var lists []processList
	for _, l := range append(slices.Clone(computeProcessLists), graphicsProcessList) {
		if !l.isInNVML() {
			continue
		}
		if _, ret := l.list(g.handle); ret == nvml.SUCCESS {
			lists = append(lists, l.list)
		}
	}
	return lists
}

// memoryNotAvailable is NVML's value for unknown memory of a process.
const memoryNotAvailable = ^uint64(0)

// sampleProcessMemory returns one row of used memory for each process.
func (g *gpu) sampleProcessMemory(c clock.Clock, lists []processList) ([]format.Row, nvml.Return) {
	start := c.NowNs()
	used := make(map[uint32]uint64)
	for _, list := range lists {
		infos, ret := list(g.handle)
		if ret != nvml.SUCCESS {
			return nil, ret
		}
		seen := make(map[uint32]uint64)
		for _, p := range infos {
			if p.UsedGpuMemory != memoryNotAvailable {
				seen[p.Pid] += p.UsedGpuMemory // a process has one entry per MIG instance
			}
		}
		for pid, bytes := range seen {
			used[pid] = max(used[pid], bytes)
		}
	}
	dur := c.NowNs() - start
	rows := make([]format.Row, 0, len(used))
	for pid, bytes := range used {
		rows = append(rows, g.makeProcessRow(start, dur, pid, "process_used_memory_bytes", float64(bytes)))
	}
	return rows, nvml.SUCCESS
}

// makeProcessRow returns a row of a process metric.
func (g *gpu) makeProcessRow(start, dur int64, pid uint32, name string, value float64) format.Row {
	row := g.makeMetricRow(start, dur, name, value)
	row.Pid, row.Message = int32(pid), readComm(pid)
	return row
}

// readComm returns the name of a process, or "" if it has ended or is hidden.
func readComm(pid uint32) string {
	comm, err := os.ReadFile("/proc/" + strconv.Itoa(int(pid)) + "/comm")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(comm), "\n")
}

// utilizationReader reads the utilization samples that the driver stores per process.
type utilizationReader struct {
	gpu    *gpu
	lastUs uint64 // time of the newest sample on the driver's clock, in µs
}

// sampleUtilization returns rows of the driver's utilization samples since the last call.
func (u *utilizationReader) sampleUtilization(c clock.Clock) ([]format.Row, nvml.Return) {
	start := c.NowNs()
	samples, ret := u.readNewSamples()
	if ret != nvml.SUCCESS {
		return nil, ret
	}
	dur := c.NowNs() - start
	step := c.WallClockStepNs() // the driver uses CLOCK_REALTIME
	var rows []format.Row
	for _, s := range samples {
		if s.TimeStamp <= u.lastUs || s.Pid == 0 {
			continue
		}
		at := int64(s.TimeStamp)*1000 - step
		for _, v := range []struct {
			name  string
			value uint32
		}{
			{"process_sm_utilization_percent", s.SmUtil},
			{"process_memory_utilization_percent", s.MemUtil},
			{"process_encoder_utilization_percent", s.EncUtil},
			{"process_decoder_utilization_percent", s.DecUtil},
		} {
			if v.value <= 100 { // some drivers report values above 100 for unknown
				rows = append(rows, u.gpu.makeProcessRow(at, dur, s.Pid, v.name, float64(v.value)))
			}
		}
	}
	for _, s := range samples {
		u.lastUs = max(u.lastUs, s.TimeStamp)
	}
	return rows, nvml.SUCCESS
}

// readNewSamples returns the driver's samples since lastUs. Having no samples is not an error.
func (u *utilizationReader) readNewSamples() ([]nvml.ProcessUtilizationSample, nvml.Return) {
	samples, ret := u.gpu.handle.GetProcessUtilization(u.lastUs)
	if ret == nvml.ERROR_NOT_FOUND || ret == nvml.ERROR_INSUFFICIENT_SIZE {
		return nil, nvml.SUCCESS
	}
	return samples, ret
}
