package oom

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
)

// freeMemory is what is known of a device's free memory at a moment. Ages are positive
// for what was asked before it.
type freeMemory struct {
	bytes  int64
	ageNs  int64
	source string // "" is not known

	asked, askedAgeNs any // cuMemGetInfo
	nvml, nvmlAgeNs   any
	total             int64 // of the device; 0 not known
	others            any   // used by other processes
	othersNamed       []string
}

// fromAllocator is the source of numbers that PyTorch asked the driver for itself.
const fromAllocator = "the allocator"

// freeAt collects what is known, and takes the allocator's word before that of the
// nearest other.
func freeAt(t *timeline.Timeline, sc *Context) freeMemory {
	var f freeMemory
	take := func(bytes, ageNs int64, source string) {
		if f.source == "" || f.source != fromAllocator && max(ageNs, -ageNs) < max(f.ageNs, -f.ageNs) {
			f.bytes, f.ageNs, f.source = bytes, ageNs, source
		}
	}
	if sc.deviceFree >= 0 {
		take(sc.deviceFree, 0, fromAllocator)
	}
	if s, ok := askedNear(t, sc.device, sc.AtNs); ok {
		f.asked, f.askedAgeNs, f.total = s.FreeBytes, sc.AtNs-s.AtNs, s.TotalBytes
		take(s.FreeBytes, sc.AtNs-s.AtNs, "cuMemGetInfo")
	}
	index, paired := t.Facts.NVMLDevice(sc.pid, sc.device)
	if !paired {
		return f
	}
	if m, _, isMIG := t.Facts.MIGOf(sc.pid, sc.device); isMIG { // samples are of the whole GPU
		f.total = max(f.total, m.MemoryBytes)
	} else {
		f.total = max(f.total, t.Facts.Devices[index].TotalBytes)
		if s, ok := t.Facts.Nearest(catalog.MetricMemoryFree, index, sc.AtNs); ok {
			f.nvml, f.nvmlAgeNs = units.RoundInt(s.Value), sc.AtNs-s.AtNs
			take(units.RoundInt(s.Value), sc.AtNs-s.AtNs, "NVML")
		}
		otherProcesses(t, &f, sc, index)
	}
	// A sample may be from before the memory was filled: what calls tell bounds it.
	if most := max(0, f.total-sc.tracked); f.total > 0 && f.source != fromAllocator && (f.source == "" || most < f.bytes) {
		f.bytes, f.ageNs, f.source = most, 0, atMost
	}
	return f
}

// atMost is the source of a number that is only a bound.
const atMost = "the device's memory without what is known to be used: there is no more"

func otherProcesses(t *timeline.Timeline, f *freeMemory, sc *Context, index int32) {
	var sum int64
	for _, s := range t.Facts.ProcessesAt(index, sc.AtNs) {
		f.others = sum
		if s.Pid == sc.pid {
			continue
		}
		sum += units.RoundInt(s.Value)
		f.others = sum
		if name, _ := t.ProcessName(s.Pid); len(f.othersNamed) < 3 {
			f.othersNamed = append(f.othersNamed, fmt.Sprintf("%d %s %s", s.Pid, name, units.Bytes(units.RoundInt(s.Value))))
		}
	}
}

// askedNear returns the program's answer of cuMemGetInfo that is nearest to a moment.
func askedNear(t *timeline.Timeline, device int32, atNs int64) (best timeline.FreeSample, ok bool) {
	for _, s := range t.Free {
		if s.Device == device && (!ok || max(s.AtNs-atNs, atNs-s.AtNs) < max(best.AtNs-atNs, atNs-best.AtNs)) {
			best, ok = s, true
		}
	}
	return best, ok
}
