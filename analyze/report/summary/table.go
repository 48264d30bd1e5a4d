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

var recordingFactColumns = []report.Column{
	{
		Key:   "processes",
		Title: "processes",
		Unit:  report.UnitText,
		About: "process id and name of each recorded process",
	},
	{Key: "devices", Title: "devices", Unit: report.UnitText, About: "index and name of each GPU of the machine"},
	{Key: "host", Title: "host", Unit: report.UnitText, About: "host name of the recorded machine"},
	{
		Key: "driver", Title: "driver", Unit: report.UnitText,
		About: "version of the NVIDIA driver, and the CUDA version that it supports",
	},
	{
		Key: "recorded_by", Title: "recorded by", Unit: report.UnitText,
		About: "version and command line of the gpurec that recorded",
	},
	{Key: "start_ns", Title: "started", Unit: report.UnitTime, About: "start of the recording"},
	{Key: "dur_ns", Title: "duration", Unit: report.UnitNs, About: "length of the recording"},
	{
		Key: "call_errors", Title: "errors", Unit: report.UnitCount,
		About: "CUDA driver calls in the window that returned an error",
	},
	{
		Key: "unfinished_calls", Title: "open calls", Unit: report.UnitCount,
		About: "calls in the window whose return was not recorded",
	},
	{
		Key: "out_of_memory", Title: "out of memory", Unit: report.UnitCount,
		About: "calls in the window that returned CUDA_ERROR_OUT_OF_MEMORY",
	},
	{Key: "xids", Title: "Xid errors", Unit: report.UnitCount, About: "Xid errors of all devices in the window"},
	{
		Key: "kernels", Title: "kernels", Unit: report.UnitText,
		About: "kernels_run, captured_launches and graph_launches as text",
	},
	{
		Key: "kernels_run", Title: "", Unit: report.UnitCount,
		About: "kernels that ran in the window: kernels_launched + graph_kernels",
	},
	{
		Key: "kernels_launched", Title: "", Unit: report.UnitCount,
		About: "kernel launches that succeeded and were not captured",
	},
	{
		Key: "captured_launches", Title: "", Unit: report.UnitCount,
		About: "kernel launches that stream capture put into a graph instead of running them",
	},
	{Key: "graph_launches", Title: "", Unit: report.UnitCount, About: "launches of CUDA graphs that succeeded"},
	{
		Key: "graph_kernels", Title: "", Unit: report.UnitCount,
		About: "kernels in launched graphs. A graph counts only if its construction was recorded",
	},
	{
		Key: "borrowed", Title: "borrowed", Unit: report.UnitText,
		About: "memory of other processes and APIs that the process opened, by kind: ipc, external, physical (an " +
			"imported handle). No other number includes it",
	},
	{
		Key: "borrowed_opened", Title: "", Unit: report.UnitCount,
		About: "calls that opened memory of another process or API",
	},
	{
		Key: "borrowed_open", Title: "", Unit: report.UnitCount,
		About: "borrowed_opened that were not closed before the end of the recording or of the process",
	},
	{
		Key: "borrowed_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes of borrowed_opened; calls without a size count as 0",
	},
	{
		Key: "graph_memory", Title: "graph memory", Unit: report.UnitText,
		About: "memory that CUDA graphs allocate when they run. Live bytes do not include it",
	},
	{Key: "graph_allocs", Title: "", Unit: report.UnitCount, About: "allocation nodes in CUDA graphs"},
	{
		Key: "graph_alloc_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes of graph_allocs; each node counts once, however often its graph runs",
	},
	{Key: "rules", Title: "rules", Unit: report.UnitText, About: "set if no rule of analyze rules fired"},
	{Key: "problems", Title: "", Unit: report.UnitCount, About: "hits of severity problem: see analyze rules"},
	{Key: "notices", Title: "", Unit: report.UnitCount, About: "hits of severity notice: see analyze rules"},
}

// newRecordingFacts returns the facts about the recording: its origin, its contents and the number
// of hits.
func newRecordingFacts(
	t *timeline.Timeline,
	calls *calls.CallCounter,
	l *livemem.Set,
	rulesChecked int,
	hits []rules.Hit,
) []report.Fact {
	m := &t.Rec.Meta
	w := t.RecordingWindow()
	var processes, devices []string
	for _, pid := range slices.Sorted(maps.Keys(t.Facts.Processes)) {
		name := t.PidLabel(pid)
		for _, d := range t.Facts.Processes[pid].Devices {
			if m, index, ok := t.Facts.MIGDeviceOf(pid, d.Ordinal); ok {
				name += " on " + t.Facts.FormatMIGDevice(m, index)
			}
		}
		processes = append(processes, name)
	}
	for _, d := range slices.Sorted(maps.Keys(t.Facts.Devices)) {
		label := t.DeviceLabel(d)
		if parts := t.Facts.ListMIGDevices(d); parts != "" {
			label += " (MIG: " + parts + ")"
		}
		devices = append(devices, label)
	}
	driver := m.DriverVersion
	if m.CUDAVersion != "" {
		driver = strings.TrimSpace(driver + " (CUDA " + m.CUDAVersion + ")")
	}
	sum, work, borrowed := calls.TotalStats(), &calls.Work, l.SumBorrowed()
	severities, result := rules.CountHitsBySeverity(hits), ""
	if len(hits) == 0 {
		result = fmt.Sprintf("none fired (%d checked)", rulesChecked)
	}
	return report.NewFacts(recordingFactColumns, report.Values{
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
		"xids":              countXids(t, calls.Window),
		"kernels":           work.String(),
		"kernels_run":       work.KernelsRun(),
		"kernels_launched":  work.Launched,
		"captured_launches": work.Captured,
		"graph_launches":    work.GraphLaunches,
		"graph_kernels":     work.GraphKernels,
		"borrowed":          l.FormatBorrowed(),
		"borrowed_opened":   borrowed.Opened,
		"borrowed_open":     borrowed.Opened - borrowed.Returned,
		"borrowed_bytes":    borrowed.Bytes,
		"graph_memory":      describeGraphMemory(&l.Counts),
		"graph_allocs":      l.Counts.GraphAllocs,
		"graph_alloc_bytes": l.Counts.GraphBytes,
		"rules":             result,
		"problems":          severities[rules.SeverityProblem],
		"notices":           severities[rules.SeverityNotice],
	})
}

// describeGraphMemory describes the memory that CUDA graphs allocate. It returns "" if no graph
// allocates.
func describeGraphMemory(c *livemem.ReplayCounts) string {
	if c.GraphAllocs == 0 {
		return ""
	}
	return fmt.Sprintf(
		"%s in graphs, %s; not in live bytes",
		units.CountWithNoun(c.GraphAllocs, "allocation"),
		units.FormatBytes(c.GraphBytes),
	)
}

// countXids returns the number of Xid errors in a window.
func countXids(t *timeline.Timeline, w query.Window) int64 {
	var n int64
	for _, x := range t.Facts.Xids {
		if x.AtNs >= w.FromNs && x.AtNs <= w.ToNs {
			n++
		}
	}
	return n
}

var findingColumns = []report.Column{
	{
		Key: "finding", Title: "FINDING", Unit: report.UnitText,
		About: "a problem that no rule reports; the most important one first",
	},
	{Key: "next", Title: "NEXT", Unit: report.UnitText, About: "the gpurec analyze command with the details"},
}

// newFindingTable returns a table of problems that no rule checks, or whose rule did not fire.
func newFindingTable(t *timeline.Timeline, r *report.Report, hits []rules.Hit) report.Table {
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
		v, _, _ := r.FindNumber(name)
		return int64(v)
	}
	if n := number("out_of_memory"); n > 0 && !found(&rules.OutOfMemoryRule) {
		add("errors", "%s failed with CUDA_ERROR_OUT_OF_MEMORY", units.CountWithNoun(n, "call"))
	}
	if n := number("unfinished_calls"); n > 0 && !found(&rules.HangRule) {
		add("perfetto", "%s had not returned at the end of the recording", units.CountWithNoun(n, "call"))
	}
	if n := r.Quality.LostEvents; n > 0 {
		add("", "%s lost: all counts are too low by up to this number", units.CountWithNoun(n, "call"))
	}
	if q := &r.Quality; q.LateProcesses > 0 || q.MissedEvents > 0 {
		add("", "first calls are missing: %s known, %s with an unknown number; complete from +%s on",
			units.FormatCount(q.MissedEvents), units.CountWithNoun(q.LateProcesses, "process"),
			units.FormatDuration(q.CompleteAfterNs))
	}
	if d := t.Rec.Meta.ClockStepNs; d > int64(time.Second) || d < -int64(time.Second) {
		add("", "the wall clock was changed by %s during the recording", units.FormatDuration(d))
	}
	return table
}

// callColumns are the columns of the table of calls. If launches were sampled, newCallTable adds
// the column report.EstimatedCallsColumn.
var callColumns = []report.Column{
	{Key: "name", Title: "CALL", Unit: report.UnitText, About: "function of the CUDA driver API"},
	{
		Key: "kind", Title: "KIND", Unit: report.UnitText,
		About: "kind of the function: alloc, free, launch, memcpy, memset, sync or api",
	},
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "calls that began in the window"},
	{
		Key: "errors", Title: "ERRORS", Unit: report.UnitCount,
		About: "calls that returned an error; CUDA_ERROR_NOT_READY and CUDA_ERROR_DEINITIALIZED do not count",
	},
	{Key: "unfinished", Title: "OPEN", Unit: report.UnitCount, About: "calls whose return was not recorded"},
	{
		Key: "timed", Title: "TIMED", Unit: report.UnitCount,
		About: "calls whose duration is known. At high rates gpurec probes the returns of kernel launches only part " +
			"of the time. HOST columns include only timed calls",
	},
	{
		Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs,
		About: "sum over all threads of the time inside of these calls, working or waiting. It is CPU time, not GPU " +
			"time",
	},
	{Key: "host_max_ns", Title: "HOST MAX", Unit: report.UnitNs, About: "duration of the longest of these calls"},
}

// newCallTable returns a table with one row for each CUDA driver function and kind.
func newCallTable(u *calls.CallCounter) report.Table {
	table := report.Table{
		Name:      "calls",
		Title:     "calls by time spent in them on the CPU",
		Columns:   slices.Clone(callColumns),
		HideFirst: []string{"host_max_ns", "timed"},
	}
	if u.Weights != nil {
		table.Columns = report.InsertColumnAfter(table.Columns, "calls", report.EstimatedCallsColumn)
	}
	hasUntimed := false
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
			values[report.EstimatedCallsColumn.Key] = sampling.RoundToLaunches(s.Scaled)
		}
		table.Add(values)
		hasUntimed = hasUntimed || s.Timed+s.Open < s.Calls
	}
	if !hasUntimed {
		report.HideTitle(table.Columns, "timed")
	}
	table.Sort("host_sum_ns", "calls", "name", "kind")
	return table
}

// kernelColumns are the columns of the table of kernels. If launches were sampled, newKernelTable
// adds the column report.EstimatedLaunchesColumn.
var kernelColumns = []report.Column{
	{
		Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount,
		About: "launches of the kernel in the window that succeeded and were not captured. Kernels in CUDA graphs do " +
			"not count. For their time on the GPU see kernels",
	},
	{
		Key: "captured", Title: "CAPTURED", Unit: report.UnitCount,
		About: "launches that stream capture put into a graph instead of running them",
	},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "launches that returned an error"},
	{
		Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs,
		About: "sum of the CPU time of the launch calls whose duration is known: see TIMED of the table calls. It is " +
			"not GPU time",
	},
	{
		Key: "kernel_short", Title: "KERNEL", Unit: report.UnitText,
		About: "short kernel name: nested template arguments are folded. #n distinguishes kernels whose short names " +
			"are equal",
	},
	{Key: "kernel", Title: "", Unit: report.UnitText, About: "full demangled name of the kernel"},
}

// newKernelTable returns a table with one row for each kernel.
func newKernelTable(u *calls.CallCounter) report.Table {
	table := report.Table{Name: "kernels", Title: "kernels by launches", Columns: slices.Clone(kernelColumns)}
	if u.Weights != nil {
		table.Columns = report.InsertColumnAfter(table.Columns, "launches", report.EstimatedLaunchesColumn)
	}
	short := calls.ShortenKernelNames(u.Kernels)
	hasCaptured := false
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
			values[report.EstimatedLaunchesColumn.Key] = sampling.RoundToLaunches(s.Scaled) - s.Captured
		}
		table.Add(values)
		hasCaptured = hasCaptured || s.Captured > 0
	}
	if !hasCaptured {
		report.HideTitle(table.Columns, "captured")
	}
	table.Sort("launches", "captured", "kernel")
	return table
}
