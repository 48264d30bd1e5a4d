package hosttime

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// index finds the row groups that have rows of a thread, and keeps what belongs to no thread. It does not
// change, and all views of a Timeline share it.
type index struct {
	threads map[origin.Thread][]groupSpan // in the order of the file
	pauses  map[int32][]Pause             // by process, in the order of their starts
	// throttled are the counters HostThrottledNs of the cgroups of a process.
	throttled map[int32]map[string][]point
	// gilHeld are the counters HostGILHeld of the threads of a process.
	gilHeld map[int32]map[int32][]point
	// sampleNs is the CPU time between two samples of a thread; 0: threads were not sampled.
	sampleNs int64
	limits   map[int32]map[string]float64 // HostCPULimit by process and cgroup: the last value
	isLoader map[int32]loaderUse          // by stack, of the stacks with frames of a data loader
	isDriver map[int32]bool               // by stack, of the stacks with the CUDA driver inside of the program
	workers  map[int32][]origin.Thread    // by process: the threads of its child processes that have rows
	// names are the names of threads that ended waits. firstNs is from when on a thread was watched, Unix ns.
	names   map[origin.Thread]string
	firstNs map[origin.Thread]int64
	// hasWakers says that the recording says who ended waits.
	hasWakers bool
}

// groupSpan is the time of the rows of a thread in a row group.
type groupSpan struct {
	group        int // index of Timeline.Host
	fromNs, toNs int64
}

// point is a value of a counter.
type point struct {
	atNs  int64
	value float64
}

// indexKey is the key of the index in the memo of a Timeline.
type indexKey struct{}

// indexOf returns the index of a recording. It reads class host once for all views of the Timeline.
func indexOf(t *timeline.Timeline) (*index, error) {
	return timeline.Remember(t, indexKey{}, func() (*index, error) {
		x := &index{
			threads: make(map[origin.Thread][]groupSpan),
			pauses:  make(map[int32][]Pause),
			throttled: make(
				map[int32]map[string][]point,
			),
			gilHeld:  make(map[int32]map[int32][]point),
			limits:   make(map[int32]map[string]float64),
			isLoader: findLoaders(&t.Stacks),
			isDriver: findDrivers(&t.Stacks),
			workers:  make(map[int32][]origin.Thread),
			names:    make(map[origin.Thread]string),
			firstNs:  make(map[origin.Thread]int64),
		}
		group := -1
		err := EachGroup(t, func(r *Rows) error {
			group++
			x.addGroup(group, r)
			return nil
		})
		x.sort()
		for th := range x.threads {
			if parent := t.Facts.Processes[th.Pid].ParentPid; parent != 0 {
				x.workers[parent] = append(x.workers[parent], th)
			}
		}
		if f := t.Facts.Host; f != nil && f.SampleHz > 0 {
			x.sampleNs = max(x.sampleNs, int64(min(maxSampleNs, 1e9/f.SampleHz)))
		}
		return x, err
	})
}

func (idx *index) addGroup(group int, r *Rows) {
	for i := range r.Waits {
		w := &r.Waits[i]
		idx.addTime(group, w.Thread, w.FromNs, w.ToNs)
		idx.addFirst(w.Thread, w.FromNs)
		idx.hasWakers = idx.hasWakers || w.Fact.EndedBy != ""
		if w.Waker.Tid != 0 && w.Fact.Waker != "" {
			idx.names[w.Waker] = w.Fact.Waker
		}
	}
	for i := range r.Samples {
		s := &r.Samples[i]
		idx.addTime(group, s.Thread, s.AtNs, s.AtNs)
		idx.sampleNs = max(idx.sampleNs, s.ForNs)
	}
	for _, p := range r.Pauses {
		idx.pauses[p.Pid] = append(idx.pauses[p.Pid], p)
	}
	for i := range r.Metrics {
		m := &r.Metrics[i]
		if m.Tid != 0 {
			idx.addTime(group, m.Thread, m.AtNs, m.AtNs)
			switch m.Name {
			case format.HostRunning:
				idx.addFirst(m.Thread, m.AtNs)
			case format.HostGILHeld:
				addPoint(idx.gilHeld, m.Pid, m.Tid, point{m.AtNs, m.Value})
			}
		} else if m.Name == format.HostCPULimit {
			if idx.limits[m.Pid] == nil {
				idx.limits[m.Pid] = make(map[string]float64)
			}
			idx.limits[m.Pid][m.Cgroup] = m.Value
		} else if m.Name == format.HostThrottledNs {
			addPoint(idx.throttled, m.Pid, m.Cgroup, point{m.AtNs, m.Value})
		}
	}
}

// addPoint adds a point of a counter of a process, such as that of a thread or a cgroup.
func addPoint[K comparable](to map[int32]map[K][]point, pid int32, of K, p point) {
	if to[pid] == nil {
		to[pid] = make(map[K][]point)
	}
	to[pid][of] = append(to[pid][of], p)
}

// addFirst notes that a thread was watched at a time.
func (idx *index) addFirst(th origin.Thread, ns int64) {
	if first, ok := idx.firstNs[th]; !ok || ns < first {
		idx.firstNs[th] = ns
	}
}

// addTime extends the span of a thread in a row group.
func (idx *index) addTime(group int, th origin.Thread, fromNs, toNs int64) {
	spans := idx.threads[th]
	if n := len(spans); n > 0 && spans[n-1].group == group {
		spans[n-1].fromNs, spans[n-1].toNs = min(spans[n-1].fromNs, fromNs), max(spans[n-1].toNs, toNs)
		return
	}
	idx.threads[th] = append(spans, groupSpan{group, fromNs, toNs})
}

func (idx *index) sort() {
	for _, list := range idx.pauses {
		slices.SortStableFunc(list, func(a, b Pause) int { return cmp.Compare(a.FromNs, b.FromNs) })
	}
	for _, cgroups := range idx.throttled {
		for _, points := range cgroups {
			sortPoints(points)
		}
	}
	for _, threads := range idx.gilHeld {
		for _, points := range threads {
			sortPoints(points)
		}
	}
}

func sortPoints(points []point) {
	slices.SortStableFunc(points, func(a, b point) int { return cmp.Compare(a.atNs, b.atNs) })
}

// growth returns how much a counter grew between the last point before a span and the first point after it,
// and the time between them. Without both points, ok is false.
func growth(points []point, fromNs, toNs int64) (by float64, spanFromNs, spanToNs int64, ok bool) {
	i, found := slices.BinarySearchFunc(points, fromNs, func(p point, ns int64) int { return cmp.Compare(p.atNs, ns) })
	if !found {
		i--
	}
	j, _ := slices.BinarySearchFunc(points, toNs, func(p point, ns int64) int { return cmp.Compare(p.atNs, ns) })
	if i < 0 || j >= len(points) || i >= j {
		return 0, 0, 0, false
	}
	return max(0, points[j].value-points[i].value), points[i].atNs, points[j].atNs, true
}
