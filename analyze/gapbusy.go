package analyze

import (
	"sort"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/query"
)

// Words for what the GPU did in a gap.
const (
	gpuIdle   = "idle"
	gpuBusy   = "busy"
	gpuPartly = "partly"
	gpuUnsure = "unsure"
)

// gapBusy is how busy the GPU can have been in a gap, in percent of it; ok is false where samples do not tell.
type gapBusy struct {
	minPct, maxPct float64
	ok             bool
}

// word is "" where samples do not tell.
func (b gapBusy) word() string {
	switch {
	case !b.ok:
		return ""
	case b.maxPct <= 5:
		return gpuIdle
	case b.minPct >= 50:
		return gpuBusy
	case b.minPct > 5 || b.maxPct < 50:
		return gpuPartly
	}
	return gpuUnsure
}

// utilizationNs is the longest that the driver averages its utilization over.
const utilizationNs = int64(1e9)

// askSamples notes for the gaps that are told how busy the GPU was: of several devices of the process, the busiest one.
func (u *gapUse) askSamples() {
	samples := &metric.Devices{T: u.T, Window: u.T.Recording(), Filter: new(query.Filter), Devices: make(map[int32]map[string]*metric.Series)}
	samples.Collect()
	for i := range u.list {
		g := &u.list[i]
		for track := range u.tracks {
			if track.pid != g.track.pid || track.device == allDevices || g.track.device != allDevices && track.device != g.track.device {
				continue
			}
			index, paired := u.T.Facts.NVMLDevice(track.pid, track.device)
			if !paired {
				continue
			}
			b := busyByAverages(samples.Devices[index][catalog.MetricSMActive], g.fromNs, g.toNs)
			if !b.ok {
				b = busyInside(samples.Devices[index][catalog.MetricGPUBusy], g.fromNs, g.toNs)
			}
			if b.ok {
				g.busy = gapBusy{max(g.busy.minPct, b.minPct), max(g.busy.maxPct, b.maxPct), true}
			}
		}
	}
}

// busyByAverages bounds how busy a device was. Each sample is the average since the one before: of the part of that time which lies
// outside of the gap, nothing or everything may have been busy.
func busyByAverages(s *metric.Series, fromNs, toNs int64) gapBusy {
	if s == nil {
		return gapBusy{}
	}
	var covered, low, high float64
	for i := max(1, seriesAfter(s, fromNs)); i < len(s.Values) && s.AtNs[i-1] < toNs; i++ {
		span := float64(s.AtNs[i] - s.AtNs[i-1])
		overlap := float64(min(toNs, s.AtNs[i]) - max(fromNs, s.AtNs[i-1]))
		busy := min(1, max(0, s.Values[i]/100)) * span
		covered += overlap
		low += max(0, busy-(span-overlap))
		high += min(overlap, busy)
	}
	if covered == 0 || covered < 0.5*float64(toNs-fromNs) {
		return gapBusy{}
	}
	return gapBusy{100 * low / covered, 100 * high / covered, true}
}

// busyInside averages samples that are about nothing but the gap.
func busyInside(s *metric.Series, fromNs, toNs int64) gapBusy {
	if s == nil {
		return gapBusy{}
	}
	var sum, n float64
	for i := seriesAfter(s, fromNs+utilizationNs-1); i < len(s.Values) && s.AtNs[i] <= toNs; i++ {
		sum += min(100, max(0, s.Values[i]))
		n++
	}
	if n == 0 {
		return gapBusy{}
	}
	return gapBusy{sum / n, sum / n, true}
}

// seriesAfter is the first sample later than a time.
func seriesAfter(s *metric.Series, ns int64) int {
	return sort.Search(len(s.AtNs), func(i int) bool { return s.AtNs[i] > ns })
}
