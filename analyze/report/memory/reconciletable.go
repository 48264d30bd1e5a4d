package memory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// reconcileColumns are the columns of reconciliation.processTable.
var reconcileColumns = []report.Column{
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id of a recorded process"},
	{
		Key: "device", Title: "DEVICE", Unit: report.UnitText,
		About: "NVML index of the GPU; matched with the process's CUDA ordinal by UUID",
	},
	{Key: "memory_kind", Title: "KIND", Unit: report.UnitText, About: "kind of the tracked memory"},
	{Key: "library", Title: "LIBRARY", Unit: report.UnitText, About: "library that allocated the tracked memory"},
	{Key: "bytes", Title: "BYTES", Unit: report.UnitBytes, About: "bytes of this part"},
	{
		Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent,
		About: "share of the part in NVML's memory of the process",
	},
	{
		Key: "part", Title: "PART", Unit: report.UnitText,
		About: "part of the process's memory. Part nvml: the memory that NVML reports. Tracked: memory that recorded " +
			"calls allocated and did not free before the sample. From before: PyTorch's segments from before the " +
			"recording. Context and modules: CUDA context and loaded code. " +
			"Graph execs, streams and so on: an estimate of the driver's memory for these objects. " +
			"Not attributed: the rest. Unused in pools: part of the rest, from the program's last query",
	},
}

// processTable returns a table with one row per part of each process's memory.
func (r *reconciliation) processTable() report.Table {
	table := report.Table{
		Name:      "reconcile",
		Title:     "memory of each process by NVML, and its parts",
		Columns:   reconcileColumns,
		HideFirst: []string{"share_pct", "memory_kind"},
	}
	for _, a := range r.processes {
		nvml := units.RoundInt(a.samples[a.nearest].Value)
		row := func(part string, memory, library any, bytes int64, evidence string) {
			table.Add(report.Values{
				"pid":         int64(a.Pid),
				"device":      r.t.DeviceLabel(a.Device),
				"memory_kind": memory,
				"library":     library,
				"bytes":       bytes,
				"share_pct":   units.Percent(bytes, nvml),
				"part":        part,
			}).Evidence = evidence
		}
		at := a.samples[a.nearest].AtNs
		row(
			"nvml",
			nil,
			nil,
			nvml,
			fmt.Sprintf(
				"NVML's sample at %s, nearest to the reported time (%s away)",
				units.FormatDuration(at-r.t.RecordingWindow().FromNs),
				units.FormatDuration(at-r.atNs),
			),
		)
		for _, place := range slices.SortedFunc(maps.Keys(a.byLibrary), func(x, y libraryMemoryKind) int {
			return cmp.Or(
				cmp.Compare(a.byLibrary[y], a.byLibrary[x]),
				strings.Compare(x.memory, y.memory),
				strings.Compare(x.library, y.library),
			)
		}) {
			if a.byLibrary[place] != 0 {
				row("tracked", place.memory, place.library, a.byLibrary[place], trackedEvidence(place.memory))
			}
		}
		for _, kind := range slices.Sorted(maps.Keys(a.earlier)) {
			if bytes := a.earlier[kind]; bytes != 0 {
				row("from before", kind, "PyTorch", bytes, "segments of PyTorch's allocator that existed when gpurec "+
					"attached, and were not freed since")
			}
		}
		m := a.measureLoadGrowth()
		if m.bytes > 0 {
			row("context and modules", nil, nil, m.bytes, m.String())
		}
		rest := nvml - a.tracked[a.nearest] - m.bytes
		for _, cost := range a.costsBesideLoads() {
			if bytes := cost.objectBytes(rest); bytes > 0 {
				row(cost.Kind.Plural(), nil, nil, bytes, cost.String())
				rest -= bytes
			}
		}
		row("not attributed", nil, nil, rest, unattributedEvidence(rest, m))
		if unused, askedNs, ok := r.unusedPoolBytes(a, at); ok {
			row("unused in pools", format.MemoryAsync, nil, unused, fmt.Sprintf("part of \"not attributed\": "+
				"reserved minus used, by the program's query at %s",
				units.FormatDuration(askedNs-r.t.RecordingWindow().FromNs)))
		}
	}
	processes.AddRankColumn(r.t, &table)
	return table
}

// trackedEvidence returns how tracked bytes of a kind may differ from NVML's; "" for most kinds.
func trackedEvidence(memory string) string {
	switch memory {
	case format.MemoryManaged:
		return "from calls; an upper bound, because managed pages may be in host memory"
	case format.MemoryAsync:
		return "from calls; the pools hold more device memory than this"
	case format.MemoryPhysical:
		return "from calls: handles of cuMemCreate that are not released or still mapped"
	}
	return ""
}

// String returns the evidence for the growth as a sentence.
func (g codeLoadGrowth) String() string {
	text := fmt.Sprintf("growth of NVML's number beyond allocations, in %s with calls between them that create "+
		"contexts or load code", units.CountWithNoun(g.steps, "pair")+" of samples")
	if g.fromStart {
		return text + "; the recording has the first context creation"
	}
	return text + "; the context was created before the recording"
}

// unattributedEvidence explains memory that is not attributed. rest is its size, bytes.
func unattributedEvidence(rest int64, m codeLoadGrowth) string {
	switch {
	case rest == 0:
		return ""
	case rest < 0:
		return "recorded allocations exceed NVML's number: managed memory is in host memory, or the sample is older " +
			"than the last allocations"
	case !m.fromStart:
		return "includes the context, and code and memory from before the recording; also rounding to pages and " +
			"unused memory of pools"
	}
	return "rounding of allocations to pages, unused memory of pools, and the driver's internal allocations"
}

// computeTotals returns the sums over all processes. The values are nil if there are no processes.
func (r *reconciliation) computeTotals() []report.Fact {
	var nvml, rest int64
	for _, a := range r.processes {
		used := units.RoundInt(a.samples[a.nearest].Value)
		nvml += used
		left := used - a.tracked[a.nearest] - a.measureLoadGrowth().bytes
		for _, cost := range a.costsBesideLoads() {
			left -= cost.objectBytes(left)
		}
		rest += left
	}
	if len(r.processes) == 0 {
		return report.NewFacts(reconcileTotalColumns, report.Values{
			"nvml_process_bytes":   nil,
			"attributed_pct":       nil,
			"not_attributed_bytes": nil,
		})
	}
	return report.NewFacts(reconcileTotalColumns, report.Values{
		"nvml_process_bytes":   nvml,
		"attributed_pct":       100 - units.Percent(max(rest, -rest), nvml),
		"not_attributed_bytes": rest,
	})
}

// deviceColumns are the columns of reconciliation.deviceTable.
var deviceColumns = []report.Column{
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "NVML index of the GPU"},
	{
		Key: "part", Title: "PART", Unit: report.UnitText,
		About: "part of the device's memory. Total and used: of the whole device. Reserved: memory of the driver and " +
			"firmware, not in used. Process: a recorded or other process. Rest: used memory that NVML assigns to no " +
			"process",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "process", Title: "PROCESS", Unit: report.UnitText, About: "name of the process"},
	{Key: "recorded", Title: "RECORDED", Unit: report.UnitText, About: "yes if its calls are in the recording"},
	{
		Key: "bytes", Title: "BYTES", Unit: report.UnitBytes,
		About: "bytes by NVML's sample nearest to the reported time; for processes, nearest to the device's sample",
	},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "time of NVML's sample, from the start of the recording"},
}

// deviceTable returns a table with NVML's numbers for each device at the reported time, and for all
// processes on it, recorded or not.
func (r *reconciliation) deviceTable() report.Table {
	table := report.Table{
		Name:      "devices",
		Title:     "memory of the devices, by NVML",
		Columns:   deviceColumns,
		Secondary: true,
		HideFirst: []string{"at_ns"},
	}
	f := &r.t.Facts
	for _, device := range slices.Sorted(maps.Keys(f.Devices)) {
		used, ok := f.NearestSample(catalog.MetricMemoryUsed, device, r.sampleTimeOf(device))
		if !ok || len(r.filter.Devices) > 0 && !slices.Contains(r.filter.Devices, device) {
			continue
		}
		r.addDeviceRows(&table, device, used)
	}
	processes.AddRankColumn(r.t, &table)
	return table
}

// addDeviceRows adds the rows of a device. used is the sample of its used memory.
func (r *reconciliation) addDeviceRows(table *report.Table, device int32, used facts.DeviceSample) {
	f := &r.t.Facts
	label, start := r.t.DeviceLabel(device), r.t.RecordingWindow().FromNs
	add := func(part string, bytes, atNs int64, pid, process, recorded any) {
		table.Add(report.Values{
			"device":   label,
			"part":     part,
			"pid":      pid,
			"process":  process,
			"recorded": recorded,
			"bytes":    bytes,
			"at_ns":    atNs - start,
		})
	}
	addSample := func(part string, s facts.DeviceSample) { add(part, units.RoundInt(s.Value), s.AtNs, nil, nil, nil) }
	if s, ok := f.NearestSample(catalog.MetricMemoryTotal, device, used.AtNs); ok {
		addSample("total", s)
	}
	addSample("used", used)
	if s, ok := f.NearestSample(catalog.MetricMemoryReserved, device, used.AtNs); ok {
		addSample("reserved", s)
	}
	rest := units.RoundInt(used.Value)
	usedByProcess := f.ProcessMemoryAt(device, used.AtNs)
	for _, s := range usedByProcess {
		name, isRecorded := r.t.ProcessName(s.Pid)
		recorded := "no"
		if isRecorded {
			recorded = "yes"
		}
		bytes := units.RoundInt(s.Value)
		rest -= bytes
		add("process", bytes, s.AtNs, int64(s.Pid), units.TextOrNil(name), recorded)
	}
	if len(usedByProcess) > 0 {
		add("rest", rest, used.AtNs, nil, nil, nil)
	}
}

// sampleTimeOf returns the time for NVML samples of a device, Unix ns. This is the time of the
// nearest sample of a process on the device, because processes are sampled less often than devices.
func (r *reconciliation) sampleTimeOf(device int32) int64 {
	for _, a := range r.processes {
		if a.Device == device {
			return a.samples[a.nearest].AtNs
		}
	}
	return r.atNs
}
