package facts

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
)

// maxMemorySampleAgeNs is the maximum distance of a process's memory sample from the time of
// interest. The recorder takes one sample a second.
const maxMemorySampleAgeNs = 3_000_000_000

// NearestSample returns the sample of a device metric that is nearest to a time (Unix ns).
func (f *Facts) NearestSample(metric string, device int32, atNs int64) (best DeviceSample, ok bool) {
	id, known := f.Metrics.Ids[metric]
	if !known {
		return best, false
	}
	for _, s := range f.Samples {
		if s.Metric != id || s.Device != device || math.IsNaN(s.Value) {
			continue
		}
		if !ok || max(s.AtNs-atNs, atNs-s.AtNs) < max(best.AtNs-atNs, atNs-best.AtNs) {
			best, ok = s, true
		}
	}
	return best, ok
}

// ProcessMemoryAt returns the memory of each process on a device around a time (Unix ns), largest
// first.
func (f *Facts) ProcessMemoryAt(device int32, atNs int64) []ProcessSample {
	id, known := f.Metrics.Ids[catalog.MetricProcessMemory]
	if !known {
		return nil
	}
	best := make(map[int32]ProcessSample)
	for _, s := range f.ProcessSamples {
		away := max(s.AtNs-atNs, atNs-s.AtNs)
		if s.Metric != id || s.Device != device || math.IsNaN(s.Value) || away > maxMemorySampleAgeNs {
			continue
		}
		if old, ok := best[s.Pid]; !ok || away < max(old.AtNs-atNs, atNs-old.AtNs) {
			best[s.Pid] = s
		}
	}
	return slices.SortedFunc(maps.Values(best), func(a, b ProcessSample) int {
		return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.Pid, b.Pid))
	})
}

// CanDistinguishProcesses reports whether the recording can name processes by identity, container
// or cgroup.
func (f *Facts) CanDistinguishProcesses() bool {
	cgroups := make(map[string]bool)
	for _, p := range f.Processes {
		if p.Identity.Known() || p.ContainerID != "" {
			return true
		}
		cgroups[CgroupPath(p.Cgroup)] = true
	}
	return len(cgroups) > 1
}

// RankSortKey returns a sort key for processes: the rank, or the largest number if the rank is
// unknown.
func (f *Facts) RankSortKey(pid int32) int64 {
	if rank, ok := f.RankOfProcess(pid); ok {
		return int64(rank)
	}
	return math.MaxInt64
}
