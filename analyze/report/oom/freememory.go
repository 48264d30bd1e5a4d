package oom

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
)

// freeMemory is the free memory of a device at a failure, by several sources. An age is the time
// from a source's sample to the failure, ns. It is negative for later samples.
type freeMemory struct {
	bytes  int64
	ageNs  int64
	source string // name of the best source; "": unknown

	queried, queriedAgeNs any      // free memory by the program's nearest cuMemGetInfo, and its age: bytes, ns
	nvml, nvmlAgeNs       any      // free memory by NVML's nearest sample, and its age: bytes, ns
	total                 int64    // bytes of the device; 0: unknown
	others                any      // bytes that other processes use, an int64
	otherNames            []string // up to three other processes: pid, name and size
}

// freeFromAllocator is the source of free memory that an event of PyTorch's allocator carries.
const freeFromAllocator = "the allocator"

// freeMemoryAt returns the free memory at a failure: from the allocator, or else from the nearest
// sample.
func freeMemoryAt(t *timeline.Timeline, sc *FailureContext) freeMemory {
	var f freeMemory
	use := func(bytes, ageNs int64, source string) {
		if f.source == "" || f.source != freeFromAllocator && max(ageNs, -ageNs) < max(f.ageNs, -f.ageNs) {
			f.bytes, f.ageNs, f.source = bytes, ageNs, source
		}
	}
	if sc.deviceFree >= 0 {
		use(sc.deviceFree, 0, freeFromAllocator)
	}
	if s, ok := nearestMemoryQuery(t, sc.device, sc.AtNs); ok {
		f.queried, f.queriedAgeNs, f.total = s.FreeBytes, sc.AtNs-s.AtNs, s.TotalBytes
		use(s.FreeBytes, sc.AtNs-s.AtNs, "cuMemGetInfo")
	}
	index, paired := t.Facts.NVMLIndexOf(sc.pid, sc.device)
	if !paired {
		return f
	}
	if m, _, isMIG := t.Facts.MIGDeviceOf(sc.pid, sc.device); isMIG { // NVML samples only the whole GPU
		f.total = max(f.total, m.MemoryBytes)
	} else {
		f.total = max(f.total, t.Facts.Devices[index].TotalBytes)
		if s, ok := t.Facts.NearestSample(catalog.MetricMemoryFree, index, sc.AtNs); ok {
			f.nvml, f.nvmlAgeNs = units.RoundInt(s.Value), sc.AtNs-s.AtNs
			use(units.RoundInt(s.Value), sc.AtNs-s.AtNs, "NVML")
		}
		setOtherProcesses(t, &f, sc, index)
	}
	// The sample may be older than some allocations. Tracked memory gives an upper bound.
	upperBound := max(0, f.total-sc.tracked)
	if f.total > 0 && f.source != freeFromAllocator && (f.source == "" || upperBound < f.bytes) {
		f.bytes, f.ageNs, f.source = upperBound, 0, freeFromUpperBound
	}
	return f
}

// freeFromUpperBound is the source of an upper bound of the free memory.
const freeFromUpperBound = "an upper bound: device memory minus memory that is known to be used"

// setOtherProcesses sets the memory of other processes on a GPU. index is its NVML index.
func setOtherProcesses(t *timeline.Timeline, f *freeMemory, sc *FailureContext, index int32) {
	var sum int64
	for _, s := range t.Facts.ProcessMemoryAt(index, sc.AtNs) {
		f.others = sum
		if s.Pid == sc.pid {
			continue
		}
		sum += units.RoundInt(s.Value)
		f.others = sum
		if name, _ := t.ProcessName(s.Pid); len(f.otherNames) < 3 {
			f.otherNames = append(
				f.otherNames,
				fmt.Sprintf("%d %s %s", s.Pid, name, units.FormatBytes(units.RoundInt(s.Value))),
			)
		}
	}
}

// nearestMemoryQuery returns the result of cuMemGetInfo that is nearest to atNs, Unix ns.
func nearestMemoryQuery(t *timeline.Timeline, device int32, atNs int64) (best timeline.FreeMemorySample, ok bool) {
	for _, s := range t.Free {
		if s.Device == device && (!ok || max(s.AtNs-atNs, atNs-s.AtNs) < max(best.AtNs-atNs, atNs-best.AtNs)) {
			best, ok = s, true
		}
	}
	return best, ok
}
