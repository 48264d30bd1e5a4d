//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// ListGPUUsers returns the processes on each GPU, with their SM utilization within the last window.
// If some GPUs fail, it returns an error and the users of the others. It can block for minutes for
// a GPU that has fallen off the bus.
func ListGPUUsers(window time.Duration) ([]GPUUser, error) {
	if ret := nvml.Init(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("%w: %s", ErrNoNVML, explainNVMLError(ret))
	}
	defer nvml.Shutdown()
	n, ret := nvml.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("%w: count devices: %s", ErrNoNVML, explainNVMLError(ret))
	}
	var users []GPUUser
	var failed []error
	for i := range n {
		g, err := identifyGPU(i)
		if err == nil {
			var of []GPUUser
			of, err = g.listUsers(window)
			users = append(users, of...)
		}
		failed = append(failed, err)
	}
	return users, errors.Join(failed...)
}

// listUsers returns the compute processes on the device, ordered by pid.
func (g *gpu) listUsers(window time.Duration) ([]GPUUser, error) {
	memory := make(map[uint32]*int64) // nil: unknown
	listed := false
	for _, l := range computeProcessLists {
		if !l.isInNVML() {
			continue
		}
		infos, ret := l.list(g.handle)
		if ret == nvml.ERROR_NOT_SUPPORTED {
			continue
		}
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("processes of GPU %d: %s", g.index, explainNVMLError(ret))
		}
		listed = true
		for pid, bytes := range sumMemoryByPid(infos) {
			if have := memory[pid]; have == nil || bytes != nil && *bytes > *have {
				memory[pid] = bytes
			}
		}
	}
	if !listed {
		return nil, fmt.Errorf("processes of GPU %d: %s", g.index, explainNVMLError(nvml.ERROR_NOT_SUPPORTED))
	}
	busy := g.readSMPercents(window)
	users := make([]GPUUser, 0, len(memory))
	for _, pid := range slices.Sorted(maps.Keys(memory)) {
		use := GPUUse{Index: g.index, UUID: g.uuid, Name: g.name, MemoryBytes: memory[pid]}
		if percent, ok := busy[pid]; ok {
			use.SMPercent = &percent
		}
		users = append(users, GPUUser{Pid: int(pid), Use: use})
	}
	return users, nil
}

// sumMemoryByPid returns the memory of each process in a list, in bytes. A process has one entry
// per MIG device. The memory is nil if NVML does not know all of it.
func sumMemoryByPid(infos []nvml.ProcessInfo) map[uint32]*int64 {
	memory := make(map[uint32]*int64)
	unknown := make(map[uint32]bool)
	for _, p := range infos {
		if memory[p.Pid] == nil {
			memory[p.Pid] = new(int64)
		}
		*memory[p.Pid] += int64(p.UsedGpuMemory)
		unknown[p.Pid] = unknown[p.Pid] || p.UsedGpuMemory == memoryNotAvailable
	}
	for pid, is := range unknown {
		if is {
			memory[pid] = nil
		}
	}
	return memory
}

// readSMPercents returns the newest SM utilization of each process within the last window, in
// percent. It has no entry for processes without a sample.
func (g *gpu) readSMPercents(window time.Duration) map[uint32]int {
	if !hasNVMLFunction("nvmlDeviceGetProcessUtilization") {
		return nil
	}
	u := utilizationReader{gpu: g, lastUs: uint64(time.Now().Add(-window).UnixMicro())}
	samples, ret := u.readNewSamples()
	if ret != nvml.SUCCESS {
		return nil
	}
	newest := make(map[uint32]uint64)
	percents := make(map[uint32]int)
	for _, s := range samples {
		if s.TimeStamp <= u.lastUs || s.TimeStamp < newest[s.Pid] || s.SmUtil > 100 { // see utilizationReader
			continue
		}
		newest[s.Pid], percents[s.Pid] = s.TimeStamp, int(s.SmUtil)
	}
	return percents
}
