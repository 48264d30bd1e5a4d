package change

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/changepoint"
	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// hostMetric is a counter of the host, and the rate that is searched.
type hostMetric struct {
	description
	// unit is by what the increase per second is divided.
	unit float64
}

// hostMetrics are the counters of the host, by their name in rows.
var hostMetrics = map[string]hostMetric{
	format.HostRunning: {
		description{
			metric: "cpu_use_cores",
			title:  "CPU use",
			limits: changepoint.Limits{MinChange: 0.3, MinShare: 0.2},
		},
		1e9,
	},
	format.HostRunnable: {
		description{
			metric: "cpu_wait_cores",
			title:  "CPU wait",
			limits: changepoint.Limits{MinChange: 0.2, MinShare: 0.3},
		},
		1e9,
	},
	format.HostMajorFaults: {
		description{
			metric: "major_faults_per_second", title: "major page faults",
			limits: changepoint.Limits{MinChange: 50, MinShare: 0.5},
		}, 1,
	},
	format.HostReadBytes: {
		description{
			metric: "read_bytes_per_second", title: "disk reads",
			limits: changepoint.Limits{MinChange: 10 * mib, MinShare: 0.3},
		}, 1,
	},
	format.HostWriteBytes: {
		description{
			metric: "write_bytes_per_second", title: "disk writes",
			limits: changepoint.Limits{MinChange: 10 * mib, MinShare: 0.3},
		}, 1,
	},
	format.HostThrottledNs: {
		description{
			metric: "cpu_throttled_percent", title: "CPU throttled",
			limits: changepoint.Limits{MinChange: 5, MinShare: 0.2},
		}, 1e7,
	},
	format.HostMachineCPUPressure: {
		description{
			metric: "cpu_pressure_percent",
			title:  "CPU pressure",
			limits: changepoint.Limits{MinChange: 10, MinShare: 0.3},
		},
		1e7,
	},
	format.HostMachineIOPressure: {
		description{
			metric: "io_pressure_percent",
			title:  "I/O pressure",
			limits: changepoint.Limits{MinChange: 10, MinShare: 0.3},
		},
		1e7,
	},
	format.HostMachineMemoryPressure: {
		description{
			metric: "memory_pressure_percent", title: "memory pressure",
			limits: changepoint.Limits{MinChange: 5, MinShare: 0.3},
		}, 1e7,
	},
}

// hostPartNs is the length of the parts in which counters of the host are added up: two samples of them.
const hostPartNs = 2_000_000_000

// maxHostParts bounds the parts.
const maxHostParts = 2048

// hostKey is a counter of a process, summed over its threads.
type hostKey struct {
	name string
	pid  int32
}

// counterKey is a counter of a thread.
type counterKey struct {
	name   string
	thread origin.Thread
	cgroup string
}

// hostScan adds up the counters of the host.
type hostScan struct {
	window query.Window
	filter *query.Filter
	partNs int64
	last   map[counterKey]hosttime.Metric
	sums   map[hostKey][]float64
}

// AddHost adds the rates of the host's counters. It returns errors of reading the recording.
func (s *Search) AddHost(f *query.Filter) error {
	scan := &hostScan{
		window: s.window, filter: f, partNs: max(hostPartNs, s.window.DurNs()/maxHostParts),
		last: make(map[counterKey]hosttime.Metric), sums: make(map[hostKey][]float64),
	}
	err := hosttime.EachGroup(s.t, func(rows *hosttime.Rows) error {
		// Rows of a row group are nearly in order of time.
		sorted := slices.Clone(rows.Metrics)
		slices.SortStableFunc(sorted, func(a, b hosttime.Metric) int { return cmp.Compare(a.AtNs, b.AtNs) })
		for i := range sorted {
			scan.add(&sorted[i])
		}
		return nil
	})
	if err != nil {
		return err
	}
	keys := slices.SortedFunc(maps.Keys(scan.sums), func(a, b hostKey) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.pid, b.pid))
	})
	for _, key := range keys {
		subject := machine
		subject.Pid = key.pid
		d := hostMetrics[key.name]
		s.add(&d.description, hostOrder, subject, scan.rates(key, d.unit))
	}
	return nil
}

// add adds the increase of a counter to the part in which it ends.
func (h *hostScan) add(m *hosttime.Metric) {
	if _, ok := hostMetrics[m.Name]; !ok || m.AtNs < h.window.FromNs || m.AtNs > h.window.ToNs ||
		m.Pid != 0 && len(h.filter.Pids) > 0 && !slices.Contains(h.filter.Pids, m.Pid) {
		return
	}
	key := counterKey{m.Name, m.Thread, m.Cgroup}
	before, ok := h.last[key]
	h.last[key] = *m
	if !ok || m.Value < before.Value || m.AtNs <= before.AtNs {
		return
	}
	sums := h.sums[hostKey{m.Name, m.Pid}]
	if sums == nil {
		sums = make([]float64, h.window.DurNs()/h.partNs+1)
		h.sums[hostKey{m.Name, m.Pid}] = sums
	}
	sums[(m.AtNs-h.window.FromNs)/h.partNs] += m.Value - before.Value
}

// rates returns the increase per second of a counter in each whole part, in a unit.
func (h *hostScan) rates(key hostKey, unit float64) (values changepoint.Series) {
	sums := h.sums[key]
	for i, sum := range sums[:len(sums)-1] {
		values.AtNs = append(values.AtNs, h.window.FromNs+int64(i)*h.partNs+h.partNs/2)
		values.Values = append(values.Values, sum/(float64(h.partNs)/1e9)/unit)
	}
	return values
}
