package facts

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
)

// processMemoryFreshNs is how far from a moment a process's sample may be and still tell that the
// process was there: it is taken every second.
const processMemoryFreshNs = 3_000_000_000

// Nearest returns the sample of a metric of a device that is nearest to a moment.
func (f *Facts) Nearest(metric string, device int32, atNs int64) (best Sample, ok bool) {
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

// ProcessesAt returns the memory of the processes on a device around a moment, most of it first.
func (f *Facts) ProcessesAt(device int32, atNs int64) []ProcessSample {
	id, known := f.Metrics.Ids[catalog.MetricOfProcess]
	if !known {
		return nil
	}
	best := make(map[int32]ProcessSample)
	for _, s := range f.ProcessSamples {
		away := max(s.AtNs-atNs, atNs-s.AtNs)
		if s.Metric != id || s.Device != device || math.IsNaN(s.Value) || away > processMemoryFreshNs {
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

// TellsProcesses reports whether identities, containers or cgroups tell processes apart.
func (f *Facts) TellsProcesses() bool {
	cgroups := make(map[string]bool)
	for _, p := range f.Processes {
		if p.Identity.Known() || p.ContainerID != "" {
			return true
		}
		cgroups[CgroupPath(p.Cgroup)] = true
	}
	return len(cgroups) > 1
}

// RankOrder sorts processes by rank, those of an unknown one last.
func (f *Facts) RankOrder(pid int32) int64 {
	if rank, ok := f.Rank(pid); ok {
		return int64(rank)
	}
	return math.MaxInt64
}
