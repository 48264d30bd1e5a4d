package ranksteps

import (
	"sort"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/timeline"
)

// GPUState is the state of the GPU of a process in a span of time, from samples of NVML.
type GPUState struct {
	ClockMHz    float64 // mean of the SM clock; 0: unknown
	Temperature float64 // mean, degrees Celsius; 0: unknown
	// Throttled is the counter of throttling that rose most, such as "hardware thermal", and ThrottledShare its share
	// of the time, 0 to 1. "": none rose.
	Throttled      string
	ThrottledShare float64
	Known          bool
}

// ReadGPUState returns the state of the GPU of a process from a time to a time, Unix ns. It is the GPU of the first
// CUDA ordinal whose UUID is known.
func ReadGPUState(t *timeline.Timeline, pid int32, fromNs, toNs int64) (s GPUState) {
	device := int32(-1)
	for _, d := range t.Facts.Processes[pid].Devices {
		if index, ok := t.Facts.NVMLIndexOf(pid, d.Ordinal); ok {
			device = index
			break
		}
	}
	if device < 0 {
		return s
	}
	type counter struct {
		first, last   float64
		firstNs, toNs int64
		sum, n        float64
	}
	counters := make(map[int32]*counter)
	samples := t.Facts.Samples
	for i := sort.Search(len(samples), func(i int) bool { return samples[i].AtNs >= fromNs }); i < len(samples); i++ {
		p := &samples[i]
		if p.AtNs > toNs {
			break
		}
		if p.Device != device {
			continue
		}
		c := counters[p.Metric]
		if c == nil {
			c = &counter{first: p.Value, firstNs: p.AtNs}
			counters[p.Metric] = c
		}
		c.last, c.toNs = p.Value, p.AtNs
		c.sum, c.n = c.sum+p.Value, c.n+1
	}
	mean := func(metric string) float64 {
		if id, ok := t.Facts.Metrics.Ids[metric]; ok && counters[id] != nil {
			return counters[id].sum / counters[id].n
		}
		return 0
	}
	s.ClockMHz, s.Temperature = mean("sm_clock_mhz"), mean("temperature_celsius")
	for name, id := range t.Facts.Metrics.Ids {
		reason, ok := strings.CutPrefix(name, "throttled_")
		c := counters[id]
		if !ok || c == nil || c.toNs == c.firstNs {
			continue
		}
		share := (c.last - c.first) / float64(c.toNs-c.firstNs)
		reason = strings.ReplaceAll(strings.TrimSuffix(reason, "_nanoseconds"), "_", " ")
		if share > s.ThrottledShare || share == s.ThrottledShare && share > 0 && reason < s.Throttled {
			s.Throttled, s.ThrottledShare = reason, min(1, share)
		}
	}
	s.Known = s.ClockMHz > 0 || s.Throttled != ""
	return s
}
