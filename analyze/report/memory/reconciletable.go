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
	processespkg "github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// reconcileColumns are the columns of reconciliation.table.
var reconcileColumns = []report.Column{
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "recorded process"},
	{
		Key: "device", Title: "DEVICE", Unit: report.UnitText,
		About: "GPU, as NVML counts; paired with the process's ordinal by UUID",
	},
	{Key: "memory_kind", Title: "KIND", Unit: report.UnitText, About: "kind of tracked memory"},
	{Key: "library", Title: "LIBRARY", Unit: report.UnitText, About: "who asked for it"},
	{Key: "bytes", Title: "BYTES", Unit: report.UnitBytes, About: "bytes"},
	{Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent, About: "share in what the driver counts"},
	{
		Key: "part", Title: "PART", Unit: report.UnitText,
		About: "nvml: what the driver counts for the process; tracked: memory that calls allocated and did not free " +
			"until that sample; context and modules; not attributed: the rest; unused in pools is part of the rest " +
			"and known only as of when the program asked",
	},
}

// table returns a table with a row per part of each account.
func (c *reconciliation) table() report.Table {
	table := report.Table{
		Name:      "reconcile",
		Title:     "what the driver counts for each process, and what that is",
		Columns:   reconcileColumns,
		HideFirst: []string{"share_pct", "memory_kind"},
	}
	for _, a := range c.accounts {
		nvml := units.RoundInt(a.samples[a.chosen].Value)
		row := func(part string, memory, library any, bytes int64, evidence string) {
			table.Add(report.Values{
				"pid":         int64(a.Pid),
				"device":      c.t.DeviceLabel(a.Device),
				"memory_kind": memory,
				"library":     library,
				"bytes":       bytes,
				"share_pct":   units.Percent(bytes, nvml),
				"part":        part,
			}).Evidence = evidence
		}
		at := a.samples[a.chosen].AtNs
		row(
			"nvml",
			nil,
			nil,
			nvml,
			fmt.Sprintf(
				"NVML's sample at %s, nearest to the moment (%s)",
				units.Duration(at-c.t.Recording().FromNs),
				units.Duration(at-c.atNs),
			),
		)
		for _, place := range slices.SortedFunc(maps.Keys(a.held), func(x, y libraryPlace) int {
			return cmp.Or(
				cmp.Compare(a.held[y], a.held[x]),
				strings.Compare(x.memory, y.memory),
				strings.Compare(x.library, y.library),
			)
		}) {
			if a.held[place] != 0 {
				row("tracked", place.memory, place.library, a.held[place], trackedEvidence(place.memory))
			}
		}
		m := a.making()
		if m.bytes > 0 {
			row("context and modules", nil, nil, m.bytes, m.String())
		}
		rest := nvml - a.tracked[a.chosen] - m.bytes
		row("not attributed", nil, nil, rest, restEvidence(rest, m))
		if unused, askedNs, ok := c.unusedInPools(a, at); ok {
			row("unused in pools", format.MemoryAsync, nil, unused, fmt.Sprintf("part of what is not attributed: "+
				"reserved minus used, as the program asked at %s", units.Duration(askedNs-c.t.Recording().FromNs)))
		}
	}
	processespkg.AddRanks(c.t, &table)
	return table
}

// trackedEvidence says what the bytes of a kind of memory may miss, in words; "" for most kinds.
func trackedEvidence(memory string) string {
	switch memory {
	case format.MemoryManaged:
		return "calls; at most that: its pages may lie in the host's memory"
	case format.MemoryAsync:
		return "calls; it lies in pools, which hold more than that"
	case format.MemoryPhysical:
		return "calls: handles of cuMemCreate that are not released, or mapped"
	}
	return ""
}

// String says how the growth is known, in words.
func (m making) String() string {
	text := fmt.Sprintf("growth of the driver's count beyond allocations, in %s with calls that make contexts or "+
		"load code in between", units.Plural(m.steps, "pair")+" of samples")
	if m.fromStart {
		return text + "; the first context was made in the recording"
	}
	return text + "; the context was made before the recording"
}

// restEvidence says what memory that is not attributed may be, in words.
func restEvidence(rest int64, m making) string {
	switch {
	case rest == 0:
		return ""
	case rest < 0:
		return "more was allocated than the driver counts: managed memory in the host, or a sample that is older " +
			"than the last allocations"
	case !m.fromStart:
		return "the context, and what was loaded and allocated before the recording, are in it; also rounding to " +
			"pages and unused memory of pools"
	}
	return "rounding of allocations to pages, unused memory of pools, and what the driver allocates for itself"
}

// totals sums up all accounts; the values are nil if there are none.
func (c *reconciliation) totals() []report.Fact {
	var nvml, rest int64
	for _, a := range c.accounts {
		used := units.RoundInt(a.samples[a.chosen].Value)
		nvml += used
		rest += used - a.tracked[a.chosen] - a.making().bytes
	}
	if len(c.accounts) == 0 {
		return report.Facts(reconcileTotalColumns, report.Values{
			"nvml_process_bytes":   nil,
			"attributed_pct":       nil,
			"not_attributed_bytes": nil,
		})
	}
	return report.Facts(reconcileTotalColumns, report.Values{
		"nvml_process_bytes":   nvml,
		"attributed_pct":       100 - units.Percent(max(rest, -rest), nvml),
		"not_attributed_bytes": rest,
	})
}

var deviceColumns = []report.Column{
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "GPU, as NVML counts"},
	{
		Key: "part", Title: "PART", Unit: report.UnitText,
		About: "total, used and reserved (the driver's and the firmware's own, not in used) of the device; process: " +
			"recorded or another one; rest: used, but of no process that the driver tells",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "process", Title: "PROCESS", Unit: report.UnitText, About: "its name"},
	{Key: "recorded", Title: "RECORDED", Unit: report.UnitText, About: "yes if its calls are in the recording"},
	{
		Key: "bytes", Title: "BYTES", Unit: report.UnitBytes,
		About: "bytes, by NVML's sample nearest to the moment; of processes nearest to that of the device",
	},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "when that sample was taken, from the recording's start"},
}

// deviceTable returns a table with NVML's numbers for each device at the moment, and for the
// processes on it, recorded or not.
func (c *reconciliation) deviceTable() report.Table {
	table := report.Table{
		Name:      "devices",
		Title:     "memory of the devices, as the driver counts it",
		Columns:   deviceColumns,
		Secondary: true,
		HideFirst: []string{"at_ns"},
	}
	f := &c.t.Facts
	for _, device := range slices.Sorted(maps.Keys(f.Devices)) {
		used, ok := f.Nearest(catalog.MetricMemoryUsed, device, c.momentOf(device))
		if !ok || len(c.filter.Devices) > 0 && !slices.Contains(c.filter.Devices, device) {
			continue
		}
		c.addDevice(&table, device, used)
	}
	processespkg.AddRanks(c.t, &table)
	return table
}

// addDevice adds the rows of a device; used is the sample of its used memory.
func (c *reconciliation) addDevice(table *report.Table, device int32, used facts.Sample) {
	f := &c.t.Facts
	label, start := c.t.DeviceLabel(device), c.t.Recording().FromNs
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
	addSample := func(part string, s facts.Sample) { add(part, units.RoundInt(s.Value), s.AtNs, nil, nil, nil) }
	if s, ok := f.Nearest(catalog.MetricMemoryTotal, device, used.AtNs); ok {
		addSample("total", s)
	}
	addSample("used", used)
	if s, ok := f.Nearest(catalog.MetricReserved, device, used.AtNs); ok {
		addSample("reserved", s)
	}
	rest := units.RoundInt(used.Value)
	processes := f.ProcessesAt(device, used.AtNs)
	for _, s := range processes {
		name, isRecorded := c.t.ProcessName(s.Pid)
		recorded := "no"
		if isRecorded {
			recorded = "yes"
		}
		bytes := units.RoundInt(s.Value)
		rest -= bytes
		add("process", bytes, s.AtNs, int64(s.Pid), units.Known(name), recorded)
	}
	if len(processes) > 0 {
		add("rest", rest, used.AtNs, nil, nil, nil)
	}
}

// momentOf returns the moment for a device, Unix ns: that of the chosen sample of a process on it,
// as processes are sampled less often than devices.
func (c *reconciliation) momentOf(device int32) int64 {
	for _, a := range c.accounts {
		if a.Device == device {
			return a.samples[a.chosen].AtNs
		}
	}
	return c.atNs
}
