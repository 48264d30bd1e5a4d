package cpu

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// counters has the increase of the counters of a subject in the window, by name. coveredNs is the longest
// time between the first and last sample of one of them.
type counters struct {
	increase  map[string]float64
	coveredNs int64
}

// cgroupKey identifies a cgroup of a process.
type cgroupKey struct {
	pid  int32
	path string
}

// metrics has the metrics of class host in the window, by subject.
type metrics struct {
	threads   map[origin.Thread]*counters
	processes map[int32]*counters
	cgroups   map[cgroupKey]*counters
	machine   counters
}

// metricKey identifies a metric of a subject.
type metricKey struct {
	origin.Thread
	name, path string
}

// metricSample is a value of a metric at a time, Unix ns.
type metricSample struct {
	atNs  int64
	value float64
}

// metricSamples are the samples of all metrics.
type metricSamples map[metricKey][]metricSample

// add adds a sample.
func (m metricSamples) add(s *hosttime.Metric) {
	key := metricKey{s.Thread, s.Name, s.Cgroup}
	m[key] = append(m[key], metricSample{s.AtNs, s.Value})
}

// sumUp returns the increase of all metrics in a window.
func (m metricSamples) sumUp(w query.Window) metrics {
	sums := metrics{
		threads: make(map[origin.Thread]*counters), processes: make(map[int32]*counters),
		cgroups: make(map[cgroupKey]*counters),
	}
	for key, list := range m {
		slices.SortStableFunc(list, func(a, b metricSample) int { return cmp.Compare(a.atNs, b.atNs) })
		list = cutToWindow(list, w)
		if len(list) == 0 {
			continue
		}
		of := sums.subjectOf(key)
		if of.increase == nil {
			of.increase = make(map[string]float64)
		}
		of.coveredNs = max(of.coveredNs, list[len(list)-1].atNs-list[0].atNs)
		if key.name == format.HostCPULimit {
			of.increase[key.name] = list[len(list)-1].value
		} else {
			of.increase[key.name] = increaseOf(list)
		}
	}
	return sums
}

// subjectOf returns the counters of the subject of a metric.
func (m *metrics) subjectOf(key metricKey) *counters {
	switch {
	case key.Pid == 0:
		return &m.machine
	case key.Tid != 0:
		return entryOf(m.threads, key.Thread)
	case key.path != "":
		return entryOf(m.cgroups, cgroupKey{key.Pid, key.path})
	}
	return entryOf(m.processes, key.Pid)
}

// cutToWindow returns the samples in the window, and the last one before it, on which they build.
func cutToWindow(list []metricSample, w query.Window) []metricSample {
	for len(list) > 1 && list[1].atNs <= w.FromNs {
		list = list[1:]
	}
	for len(list) > 0 && list[len(list)-1].atNs > w.ToNs {
		list = list[:len(list)-1]
	}
	return list
}

// increaseOf returns the increase of a counter. A decrease means that the counter began again.
func increaseOf(list []metricSample) (sum float64) {
	for i := 1; i < len(list); i++ {
		if d := list[i].value - list[i-1].value; d >= 0 {
			sum += d
		} else {
			sum += list[i].value
		}
	}
	return sum
}

// count returns the increase of a counter as a cell, or nil if it is unknown.
func (c *counters) count(name string) any {
	if c == nil {
		return nil
	}
	v, ok := c.increase[name]
	if !ok {
		return nil
	}
	return roundCell(v)
}

// number returns the increase of a counter, or 0 if it is unknown.
func (c *counters) number(name string) float64 {
	if c == nil {
		return 0
	}
	return c.increase[name]
}

// stateNs returns the sum of the times of a thread in all states.
func (c *counters) stateNs() (sum float64) {
	for _, name := range []string{
		format.HostRunning, format.HostRunnable, format.HostSleeping, format.HostUninterruptible,
	} {
		sum += c.number(name)
	}
	return sum
}
