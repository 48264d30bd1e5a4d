package cpu

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// generationCounters are the counters of collections, by generation.
var generationCounters = []string{format.HostCollections0, format.HostCollections1, format.HostCollections2}

// collectionTable returns the garbage collections by process and generation.
func (s *scan) collectionTable() report.Table {
	table := report.Table{
		Name: "collections", Title: "garbage collections", Columns: slices.Clone(collectionColumns),
		HideFirst: []string{"longest_ns", "mean_ns", "process"}, Keys: []string{"process", "generation"},
	}
	keys := make(map[pauseKey]bool)
	for key := range s.pauses {
		keys[key] = true
	}
	for pid, m := range s.metrics.processes {
		for generation, name := range generationCounters {
			if m.number(name) > 0 {
				keys[pauseKey{pid, int32(generation)}] = true
			}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(keys), func(a, b pauseKey) int {
		return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.generation, b.generation))
	}) {
		s.addCollectionRow(&table, key)
	}
	table.Sort("gc_ns", "pid", "generation")
	return table
}

func (s *scan) addCollectionRow(table *report.Table, key pauseKey) {
	sum := s.pauses[key]
	if sum == nil {
		sum = new(pauseSum)
	}
	var collections, mean any
	generation := reasonUnknown
	if key.generation >= 0 {
		generation = fmt.Sprint(key.generation)
		if int(key.generation) < len(generationCounters) {
			collections = s.metrics.processes[key.pid].count(generationCounters[key.generation])
		}
	}
	if sum.count > 0 {
		mean = sum.ns / sum.count
	}
	table.Add(report.Values{
		"gc_ns":          sum.ns,
		"uncertainty_ns": sum.uncertaintyNs,
		"pauses":         sum.count,
		"collections":    collections,
		"mean_ns":        mean,
		"longest_ns":     sum.longestNs,
		"generation":     generation,
		"process":        s.t.PidLabel(key.pid),
		"pid":            int64(key.pid),
	})
}

// interpreterTable returns the readings of the interpreters.
func (s *scan) interpreterTable() report.Table {
	table := report.Table{
		Name: "interpreters", Title: "Python interpreters (estimated from readings)",
		Columns:   slices.Clone(interpreterColumns),
		HideFirst: []string{"process", "error_pct"}, Keys: []string{"process"},
	}
	for _, pid := range slices.Sorted(maps.Keys(s.metrics.processes)) {
		m := s.metrics.processes[pid]
		readings := m.number(format.HostInterpreterReads)
		if readings <= 0 {
			continue
		}
		held, holder := s.mostOf(pid, format.HostGILHeld)
		_, waiter := s.mostOf(pid, format.HostGILWaited)
		table.Add(report.Values{
			"readings":       roundCell(readings),
			"gil_held_pct":   percentCell(held, readings),
			"collecting_pct": percentCell(m.number(format.HostCollecting), readings),
			"error_pct":      standardErrorPct(readings),
			"holder":         holder,
			"waiter":         waiter,
			"process":        s.t.PidLabel(pid),
			"pid":            int64(pid),
		})
	}
	table.Sort("readings", "pid")
	return table
}

// mostOf returns the sum of a counter of all threads of a process, and the thread with the highest one.
func (s *scan) mostOf(pid int32, name string) (sum float64, label any) {
	var highest float64
	for _, th := range slices.SortedFunc(maps.Keys(s.metrics.threads), compareThreads) {
		if th.Pid != pid {
			continue
		}
		v := s.metrics.threads[th].number(name)
		if sum += v; v > highest {
			highest, label = v, s.t.ThreadLabel(origin.Thread{Pid: pid, Tid: th.Tid})
		}
	}
	return sum, label
}

// limitTable returns the limits of cgroups.
func (s *scan) limitTable() report.Table {
	table := report.Table{
		Name: "limits", Title: "limits of cgroups", Columns: slices.Clone(limitColumns),
		HideFirst: []string{"process", "memory_pressure_ns"}, Keys: []string{"process", "cgroup"},
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.metrics.cgroups), func(a, b cgroupKey) int {
		return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.path, b.path))
	}) {
		m := s.metrics.cgroups[key]
		var limit any
		if v := m.number(format.HostCPULimit); v > 0 {
			limit = v
		}
		table.Add(report.Values{
			"limit_cores":        limit,
			"throttled_pct":      percentCell(m.number(format.HostThrottled), m.number(format.HostPeriods)),
			"throttled_ns":       m.count(format.HostThrottledNs),
			"periods":            m.count(format.HostPeriods),
			"throttled_periods":  m.count(format.HostThrottled),
			"memory_pressure_ns": m.count(format.HostMemoryPressure),
			"cgroup":             key.path,
			"process":            s.t.PidLabel(key.pid),
			"pid":                int64(key.pid),
		})
	}
	table.Sort("throttled_ns", "cgroup", "pid")
	hideEmptyColumns(&table, "memory_pressure_ns")
	return table
}

// inputTable returns what processes read and write.
func (s *scan) inputTable() report.Table {
	table := report.Table{
		Name: "input", Title: "input and output of processes", Columns: slices.Clone(inputColumns),
		HideFirst: []string{"write_bytes"}, Keys: []string{"process"},
	}
	faults := make(map[int32]float64)
	for th, m := range s.metrics.threads {
		if m.count(format.HostMajorFaults) != nil {
			faults[th.Pid] += m.number(format.HostMajorFaults)
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(s.metrics.processes)) {
		m := s.metrics.processes[pid]
		count, isKnown := faults[pid]
		if !isKnown && m.count(format.HostReadBytes) == nil && m.count(format.HostWriteBytes) == nil {
			continue
		}
		var majorFaults any
		if isKnown {
			majorFaults = roundCell(count)
		}
		table.Add(report.Values{
			"read_bytes":   m.count(format.HostReadBytes),
			"write_bytes":  m.count(format.HostWriteBytes),
			"major_faults": majorFaults,
			"process":      s.t.PidLabel(pid),
			"pid":          int64(pid),
		})
	}
	table.Sort("read_bytes", "major_faults", "pid")
	return table
}

// pressureTable returns the pressure of the machine.
func (s *scan) pressureTable() report.Table {
	table := report.Table{
		Name: "pressure", Title: "pressure of the machine", Columns: slices.Clone(pressureColumns),
		Keys: []string{"resource"},
	}
	m := &s.metrics.machine
	for _, of := range []struct{ resource, name string }{
		{"cpu", format.HostMachineCPUPressure},
		{"io", format.HostMachineIOPressure},
		{"memory", format.HostMachineMemoryPressure},
	} {
		if m.count(of.name) == nil {
			continue
		}
		table.Add(report.Values{
			"pressure_ns":  m.count(of.name),
			"pressure_pct": percentCell(m.number(of.name), float64(m.coveredNs)),
			"resource":     of.resource,
		})
	}
	return table
}
