package gaps

import (
	"cmp"
	"maps"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/query"
)

// ActivityOutsideCUDA is the activity of a thread that is in no CUDA call.
const ActivityOutsideCUDA = "outside CUDA"

// mainActivity returns the activity with the longest time in a gap: a driver function, or
// ActivityOutsideCUDA.
func (g *Gap) mainActivity() (activity string, ns int64) {
	activity, ns = ActivityOutsideCUDA, max(0, g.DurNs()-g.Activity.TimeInCUDA())
	keys := slices.SortedFunc(maps.Keys(g.Activity.ByCall), func(a, b calls.CallName) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	for _, k := range keys {
		if n := g.Activity.ByCall[k]; n > ns {
			activity, ns = k.Name, n
		}
	}
	return activity, ns
}

// TimeInKinds returns the time in a gap that the thread spent in calls of these kinds, ns.
func (g *Gap) TimeInKinds(kinds ...string) (ns int64) {
	for k, n := range g.Activity.ByCall {
		if slices.Contains(kinds, k.Kind) {
			ns += n
		}
	}
	return ns
}

// ActivityPhrase returns an activity as part of a sentence, such as "in cuMemcpyHtoD_v2".
func ActivityPhrase(activity string) string {
	if activity == ActivityOutsideCUDA {
		return activity
	}
	return "in " + activity
}

// States of the GPU in a gap. They are values of the column "gpu".
const (
	GPUStateIdle   = "idle"
	GPUStateBusy   = "busy"
	GPUStatePartly = "partly"
	GPUStateUnsure = "unsure"
)

// BusyBounds has bounds of the share of a gap in which the GPU was busy, percent. Ok is false if
// the samples are insufficient.
type BusyBounds struct {
	MinPct, MaxPct float64
	Ok             bool
}

// GPUState returns the state of the GPU as one word. It returns "" if Ok is false.
func (b BusyBounds) GPUState() string {
	switch {
	case !b.Ok:
		return ""
	case b.MaxPct <= 5:
		return GPUStateIdle
	case b.MinPct >= 50:
		return GPUStateBusy
	case b.MinPct > 5 || b.MaxPct < 50:
		return GPUStatePartly
	}
	return GPUStateUnsure
}

// maxUtilizationPeriodNs is the longest period over which NVML averages its utilization, ns.
const maxUtilizationPeriodNs = int64(1e9)

// FindGPUActivity sets Busy of each gap in List, from the busiest device of the track.
func (sc *Scan) FindGPUActivity() {
	samples := &metric.DeviceMetrics{
		T:       sc.T,
		Window:  sc.T.RecordingWindow(),
		Filter:  new(query.Filter),
		Devices: make(map[int32]map[string]*metric.Series),
	}
	samples.CollectSamples()
	for i := range sc.List {
		g := &sc.List[i]
		for track := range sc.Tracks {
			if track.Pid != g.Track.Pid || track.Device == AllDevicesOfProcess ||
				g.Track.Device != AllDevicesOfProcess && track.Device != g.Track.Device {
				continue
			}
			index, paired := sc.T.Facts.NVMLIndexOf(track.Pid, track.Device)
			if !paired {
				continue
			}
			b := BusyBoundsFromAverages(samples.Devices[index][catalog.MetricSMActive], g.FromNs, g.ToNs)
			if !b.Ok {
				b = BusyBoundsFromInsideSamples(samples.Devices[index][catalog.MetricGPUUtilization], g.FromNs, g.ToNs)
			}
			if b.Ok {
				g.Busy = BusyBounds{max(g.Busy.MinPct, b.MinPct), max(g.Busy.MaxPct, b.MaxPct), true}
			}
		}
	}
}

// BusyBoundsFromAverages returns bounds of the busy share of a device between two times, Unix ns.
// Each sample is the average since the previous sample. Its part outside the gap may have been busy
// or idle.
func BusyBoundsFromAverages(s *metric.Series, fromNs, toNs int64) BusyBounds {
	if s == nil {
		return BusyBounds{}
	}
	var covered, low, high float64
	for i := max(1, firstSampleAfter(s, fromNs)); i < len(s.Values) && s.AtNs[i-1] < toNs; i++ {
		span := float64(s.AtNs[i] - s.AtNs[i-1])
		overlap := float64(min(toNs, s.AtNs[i]) - max(fromNs, s.AtNs[i-1]))
		busy := min(1, max(0, s.Values[i]/100)) * span
		covered += overlap
		low += max(0, busy-(span-overlap))
		high += min(overlap, busy)
	}
	if covered == 0 || covered < 0.5*float64(toNs-fromNs) {
		return BusyBounds{}
	}
	return BusyBounds{100 * low / covered, 100 * high / covered, true}
}

// BusyBoundsFromInsideSamples returns the average of the samples whose whole period is between two
// times, Unix ns.
func BusyBoundsFromInsideSamples(s *metric.Series, fromNs, toNs int64) BusyBounds {
	if s == nil {
		return BusyBounds{}
	}
	var sum, n float64
	for i := firstSampleAfter(s, fromNs+maxUtilizationPeriodNs-1); i < len(s.Values) && s.AtNs[i] <= toNs; i++ {
		sum += min(100, max(0, s.Values[i]))
		n++
	}
	if n == 0 {
		return BusyBounds{}
	}
	return BusyBounds{sum / n, sum / n, true}
}

// firstSampleAfter returns the index of the first sample after a time, Unix ns.
func firstSampleAfter(s *metric.Series, ns int64) int {
	return sort.Search(len(s.AtNs), func(i int) bool { return s.AtNs[i] > ns })
}
