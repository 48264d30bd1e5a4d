package summary

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/units"
)

var factColumns = []report.Column{
	{Key: "processes", Title: "processes", Unit: report.UnitText, About: "recorded processes"},
	{Key: "devices", Title: "devices", Unit: report.UnitText, About: "GPUs"},
	{Key: "host", Title: "host", Unit: report.UnitText, About: "machine that was recorded"},
	{Key: "driver", Title: "driver", Unit: report.UnitText, About: "NVIDIA driver and the CUDA version it supports"},
	{
		Key: "recorded_by", Title: "recorded by", Unit: report.UnitText,
		About: "version and command line of the recorder",
	},
	{Key: "start_ns", Title: "started", Unit: report.UnitTime, About: "start of the recording"},
	{Key: "dur_ns", Title: "duration", Unit: report.UnitNs, About: "length of the recording"},
	{Key: "call_errors", Title: "errors", Unit: report.UnitCount, About: "calls that returned an error, in the window"},
	{
		Key: "unfinished_calls", Title: "open calls", Unit: report.UnitCount,
		About: "calls that were not seen to return, in the window",
	},
	{
		Key: "out_of_memory", Title: "out of memory", Unit: report.UnitCount,
		About: "calls that returned CUDA_ERROR_OUT_OF_MEMORY, in the window",
	},
	{Key: "xids", Title: "Xid errors", Unit: report.UnitCount, About: "Xid errors of any device, in the window"},
	{
		Key: "kernels", Title: "kernels", Unit: report.UnitText,
		About: "kernels that ran and were captured, in the window; the numbers are below",
	},
	{Key: "kernels_run", Title: "", Unit: report.UnitCount, About: "kernels_launched + graph_kernels"},
	{
		Key: "kernels_launched", Title: "", Unit: report.UnitCount,
		About: "kernel launches that succeeded and were not captured",
	},
	{
		Key: "captured_launches", Title: "", Unit: report.UnitCount,
		About: "kernel launches that stream capture put into a graph instead of running them",
	},
	{Key: "graph_launches", Title: "", Unit: report.UnitCount, About: "graphs run"},
	{
		Key: "graph_kernels", Title: "", Unit: report.UnitCount,
		About: "kernels in those graphs, as far as their making was recorded",
	},
	{
		Key: "borrowed", Title: "borrowed", Unit: report.UnitText,
		About: "memory of other processes and APIs that was opened here, by kind (ipc, external, physical: an " +
			"imported handle); it is in no other number",
	},
	{Key: "borrowed_opened", Title: "", Unit: report.UnitCount, About: "how often memory was borrowed"},
	{
		Key: "borrowed_open", Title: "", Unit: report.UnitCount,
		About: "of those, not given back before the end of the recording or of the process",
	},
	{
		Key: "borrowed_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes of borrowed_opened, where the call says how much",
	},
	{
		Key: "graph_memory", Title: "graph memory", Unit: report.UnitText,
		About: "memory that graphs allocate when they run; it is in no number of live bytes",
	},
	{Key: "graph_allocs", Title: "", Unit: report.UnitCount, About: "allocations in graphs"},
	{Key: "graph_alloc_bytes", Title: "", Unit: report.UnitBytes, About: "bytes of those, each counted once"},
	{Key: "rules", Title: "rules", Unit: report.UnitText, About: "set if no rule of analyze rules found anything"},
	{Key: "problems", Title: "", Unit: report.UnitCount, About: "hits of severity problem: see analyze rules"},
	{Key: "notices", Title: "", Unit: report.UnitCount, About: "hits of severity notice"},
}

// facts describes the recording and what it contains.
func facts(
	t *timeline.Timeline,
	calls *calls.Counter,
	l *livemem.Set,
	rulesChecked int,
	hits []rules.Hit,
) []report.Fact {
	m := &t.Rec.Meta
	w := t.Recording()
	var processes, devices []string
	for _, pid := range slices.Sorted(maps.Keys(t.Facts.Processes)) {
		name := t.PidLabel(pid)
		for _, d := range t.Facts.Processes[pid].Devices {
			if m, index, ok := t.Facts.MIGOf(pid, d.Ordinal); ok {
				name += " on " + t.Facts.MIGLabel(m, index)
			}
		}
		processes = append(processes, name)
	}
	for _, d := range slices.Sorted(maps.Keys(t.Facts.Devices)) {
		label := t.DeviceLabel(d)
		if parts := t.Facts.MIGNames(d); parts != "" {
			label += " (MIG: " + parts + ")"
		}
		devices = append(devices, label)
	}
	driver := m.DriverVersion
	if m.CUDAVersion != "" {
		driver = strings.TrimSpace(driver + " (CUDA " + m.CUDAVersion + ")")
	}
	sum, work, borrowed := calls.Total(), &calls.Work, l.BorrowTotals()
	severities, checked := rules.CountBySeverity(hits), ""
	if len(hits) == 0 {
		checked = fmt.Sprintf("none of %d found anything", rulesChecked)
	}
	return report.Facts(factColumns, report.Values{
		"processes":         strings.Join(processes, ", "),
		"devices":           strings.Join(devices, ", "),
		"host":              m.Host,
		"driver":            driver,
		"recorded_by":       strings.TrimSpace(m.GpurecVersion + " " + strings.Join(m.Command, " ")),
		"start_ns":          w.FromNs,
		"dur_ns":            w.DurNs(),
		"call_errors":       sum.Errors,
		"unfinished_calls":  sum.Open,
		"out_of_memory":     calls.OutOfMemory,
		"xids":              xidsIn(t, calls.Window),
		"kernels":           work.String(),
		"kernels_run":       work.Run(),
		"kernels_launched":  work.Launched,
		"captured_launches": work.Captured,
		"graph_launches":    work.GraphLaunches,
		"graph_kernels":     work.GraphKernels,
		"borrowed":          l.BorrowedText(),
		"borrowed_opened":   borrowed.Opened,
		"borrowed_open":     borrowed.Opened - borrowed.Returned,
		"borrowed_bytes":    borrowed.Bytes,
		"graph_memory":      graphText(&l.Counts),
		"graph_allocs":      l.Counts.GraphAllocs,
		"graph_alloc_bytes": l.Counts.GraphBytes,
		"rules":             checked,
		"problems":          severities[rules.SeverityProblem],
		"notices":           severities[rules.SeverityNotice],
	})
}

// graphText returns the memory of graphs, in words; "" if there is none.
func graphText(c *livemem.Counts) string {
	if c.GraphAllocs == 0 {
		return ""
	}
	return fmt.Sprintf(
		"%s in graphs, %s; not in live bytes",
		units.Plural(c.GraphAllocs, "allocation"),
		units.Bytes(c.GraphBytes),
	)
}

// xidsIn returns the number of Xids in a window.
func xidsIn(t *timeline.Timeline, w query.Window) int64 {
	var n int64
	for _, x := range t.Facts.Xids {
		if x.AtNs >= w.FromNs && x.AtNs <= w.ToNs {
			n++
		}
	}
	return n
}

var findingColumns = []report.Column{
	{Key: "finding", Title: "FINDING", Unit: report.UnitText, About: "what stands out; rows are ordered by weight"},
	{Key: "next", Title: "NEXT", Unit: report.UnitText, About: "the report that shows more"},
}

// findings returns a table of problems that no rule checks, or whose rule found nothing.
func findings(t *timeline.Timeline, r *report.Report, hits []rules.Hit) report.Table {
	table := report.Table{Name: "findings", Title: "findings", Columns: findingColumns}
	found := func(r *rules.Rule) bool {
		return slices.ContainsFunc(hits, func(h rules.Hit) bool { return h.Rule == r })
	}
	add := func(next, format string, args ...any) {
		table.Add(report.Values{
			"finding": fmt.Sprintf(format, args...),
			"next":    next,
		})
	}
	number := func(name string) int64 {
		v, _, _ := r.Number(name)
		return int64(v)
	}
	if n := number("out_of_memory"); n > 0 && !found(&rules.OOM) {
		add("errors", "%s failed with CUDA_ERROR_OUT_OF_MEMORY", units.Plural(n, "call"))
	}
	if n := number("unfinished_calls"); n > 0 && !found(&rules.Hang) {
		add("perfetto", "%s had not returned at the end", units.Plural(n, "call"))
	}
	if n := r.Quality.LostEvents; n > 0 {
		add("", "%s lost: numbers are too low by that", units.Plural(n, "call"))
	}
	if d := t.Rec.Meta.ClockStepNs; d > int64(time.Second) || d < -int64(time.Second) {
		add("", "the wall clock was set by %s during the recording", units.Duration(d))
	}
	return table
}

// callColumns are those of the table of calls; launches that were sampled add EstimatedCalls.
var callColumns = []report.Column{
	{Key: "name", Title: "CALL", Unit: report.UnitText, About: "function of the CUDA driver"},
	{Key: "kind", Title: "KIND", Unit: report.UnitText, About: "alloc, free, launch, memcpy, memset, sync or api"},
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "calls that began in the window"},
	{
		Key: "errors", Title: "ERRORS", Unit: report.UnitCount,
		About: "calls that returned an error (not ready and shutting down are none)",
	},
	{Key: "unfinished", Title: "OPEN", Unit: report.UnitCount, About: "calls that were not seen to return"},
	{
		Key: "timed", Title: "TIMED", Unit: report.UnitCount,
		About: "calls whose duration is known: at high rates the returns of kernel launches are probed for a share " +
			"of the time only; the times are of these calls",
	},
	{
		Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs,
		About: "sum of the time threads spent in these calls; it is CPU time waiting or working, not GPU time, and " +
			"threads add up",
	},
	{Key: "host_max_ns", Title: "HOST MAX", Unit: report.UnitNs, About: "longest of these calls"},
}

// callTable returns a table with a row per function of the driver.
func callTable(u *calls.Counter) report.Table {
	table := report.Table{
		Name:    "calls",
		Title:   "calls by time spent in them on the CPU",
		Columns: slices.Clone(callColumns),
		Spare:   []string{"host_max_ns", "timed"},
	}
	if u.Weights != nil {
		table.Columns = report.InsertAfter(table.Columns, "calls", report.EstimatedCalls)
	}
	untimed := false
	for n, s := range u.Calls {
		values := report.Values{
			"name":        n.Name,
			"kind":        n.Kind,
			"calls":       s.Calls,
			"errors":      s.Errors,
			"unfinished":  s.Open,
			"timed":       s.Timed,
			"host_sum_ns": s.HostNs,
			"host_max_ns": s.MaxNs,
		}
		if u.Weights != nil {
			values[report.EstimatedCalls.Key] = sampling.Whole(s.Scaled)
		}
		table.Add(values)
		untimed = untimed || s.Timed+s.Open < s.Calls
	}
	if !untimed {
		report.Hide(table.Columns, "timed")
	}
	table.Sort("host_sum_ns", "calls", "name", "kind")
	return table
}

// kernelColumns are those of the table of kernels; launches that were sampled add EstimatedLaunches.
var kernelColumns = []report.Column{
	{
		Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount,
		About: "launches of the kernel in the window that ran; how long it ran on the GPU is not known, and what " +
			"graphs launch is not in it",
	},
	{
		Key: "captured", Title: "CAPTURED", Unit: report.UnitCount,
		About: "launches that stream capture put into a graph instead",
	},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "launches that returned an error"},
	{
		Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs,
		About: "sum of the time threads spent launching it, not GPU time; of the launches whose duration is known, " +
			"see calls",
	},
	{
		Key: "kernel_short", Title: "KERNEL", Unit: report.UnitText,
		About: "name with template arguments folded, #n where that is the same for several kernels",
	},
	{Key: "kernel", Title: "", Unit: report.UnitText, About: "demangled name"},
}

// kernelTable returns a table with a row per kernel.
func kernelTable(u *calls.Counter) report.Table {
	table := report.Table{Name: "kernels", Title: "kernels by launches", Columns: slices.Clone(kernelColumns)}
	if u.Weights != nil {
		table.Columns = report.InsertAfter(table.Columns, "launches", report.EstimatedLaunches)
	}
	short := calls.ShortKernels(u.Kernels)
	captured := false
	for name, s := range u.Kernels {
		values := report.Values{
			"launches":     s.Calls - s.Captured,
			"captured":     s.Captured,
			"errors":       s.Errors,
			"host_sum_ns":  s.HostNs,
			"kernel_short": short[name],
			"kernel":       name,
		}
		if u.Weights != nil {
			values[report.EstimatedLaunches.Key] = sampling.Whole(s.Scaled) - s.Captured
		}
		table.Add(values)
		captured = captured || s.Captured > 0
	}
	if !captured {
		report.Hide(table.Columns, "captured")
	}
	table.Sort("launches", "captured", "kernel")
	return table
}
