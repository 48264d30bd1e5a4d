package gaps

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// factColumns are the facts of the report.
var factColumns = []report.Column{
	{Key: "result", Title: "result", Unit: report.UnitText, About: "set if the window has no launches"},
	{
		Key: "min_gap_ns", Title: "shortest gap", Unit: report.UnitNs,
		About: "minimum length of a gap; shorter intervals between launches are not gaps",
	},
}

// totalColumns are the totals of the report.
var totalColumns = []report.Column{
	{
		Key: "gaps", Title: "gaps", Unit: report.UnitCount,
		About: "number of gaps of processes, on all their devices together. A gap lasts from the return of a launch " +
			"(or its start, if the return was not recorded) to the start of the next launch that ran",
	},
	{Key: "gap_sum_ns", Title: "without launches", Unit: report.UnitNs, About: "total length of the gaps"},
	{Key: "gap_max_ns", Title: "longest", Unit: report.UnitNs, About: "length of the longest gap"},
	{
		Key: "gap_pct", Title: "% of the time between first and last launch", Unit: report.UnitPercent,
		About: "share of the gaps in the time between the first and last launch of each process, without times in " +
			"which launches were not recorded (--max-overhead)",
	},
	{
		Key: "launches", Title: "launches", Unit: report.UnitCount,
		About: "kernel and graph launches in the window that neither failed nor were captured",
	},
	{
		Key: "idle_gaps", Title: "with idle GPU", Unit: report.UnitCount,
		About: "listed gaps in which the GPU was idle by NVML's samples",
	},
	{
		Key: "busy_gaps", Title: "with busy GPU", Unit: report.UnitCount,
		About: "listed gaps in which the GPU was busy, with earlier work or work of another process",
	},
}

// computeTotals returns the totals of the report.
func (sc *Scan) computeTotals() []report.Fact {
	var sum stats.Durations
	var span, launches, idle, busy int64
	for _, track := range sc.SortedTracks() {
		if s := sc.Tracks[track]; track.Device == AllDevicesOfProcess ||
			sc.Tracks[DeviceTrack{track.Pid, AllDevicesOfProcess}] == nil {
			sum.Merge(&s.Gaps)
			span = units.EndOfRange(span, s.recordedNs())
			launches += s.Launches
		}
	}
	for i := range sc.List {
		switch sc.List[i].Busy.GPUState() {
		case GPUStateIdle:
			idle++
		case GPUStateBusy:
			busy++
		}
	}
	return report.NewFacts(totalColumns, report.Values{
		"gaps":       sum.Count,
		"gap_sum_ns": sum.SumNs,
		"gap_max_ns": sum.Longest(),
		"gap_pct":    units.Percent(sum.SumNs, span),
		"launches":   launches,
		"idle_gaps":  idle,
		"busy_gaps":  busy,
	})
}

// trackColumns are the columns of Scan.trackTable.
var trackColumns = []report.Column{
	{
		Key: "gaps", Title: "GAPS", Unit: report.UnitCount,
		About: "number of gaps: intervals without launches of at least min_gap_ns. A gap lasts from the return of a " +
			"launch (or its start, if the return was not recorded) to the start of the next launch that ran. Failed " +
			"and captured launches do not run",
	},
	{Key: "gap_sum_ns", Title: "TOTAL", Unit: report.UnitNs, About: "total length of the gaps"},
	{
		Key: "gap_pct", Title: "GAP%", Unit: report.UnitPercent,
		About: "share of the gaps in the time between first and last launch, without times in which launches were " +
			"not recorded",
	},
	{Key: "gap_med_ns", Title: "MED", Unit: report.UnitNs, About: "median length of the gaps; the error is below 0.8%"},
	{
		Key: "gap_p95_ns", Title: "P95", Unit: report.UnitNs,
		About: "95th percentile of the length of the gaps; the error is below 0.8%",
	},
	{Key: "gap_max_ns", Title: "LONGEST", Unit: report.UnitNs, About: "length of the longest gap"},
	{
		Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount,
		About: "kernel and graph launches in the window that neither failed nor were captured",
	},
	{
		Key: "unreturned_launches", Title: "", Unit: report.UnitCount,
		About: "launches without a recorded return: their gap begins at their start",
	},
	{
		Key: "lead_ns", Title: "BEFORE", Unit: report.UnitNs,
		About: "time from the start of the window to the first launch; not a gap",
	},
	{
		Key: "tail_ns", Title: "AFTER", Unit: report.UnitNs,
		About: "time from the last launch to the end of the window or process; not a gap",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "process", Title: "", Unit: report.UnitText, About: "name of the process"},
	{
		Key: "device", Title: "DEVICE", Unit: report.UnitText,
		About: "CUDA device ordinal in the process; all means all devices of the process together",
	},
}

// trackTable returns a table with one row per process and device.
func (sc *Scan) trackTable() report.Table {
	table := report.Table{
		Name:      "processes",
		Title:     "time without launches",
		Columns:   trackColumns,
		Secondary: true,
		HideFirst: []string{"gap_med_ns", "lead_ns"},
	}
	for _, track := range sc.SortedTracks() {
		s := sc.Tracks[track]
		end := sc.Window.ToNs
		if exit := sc.T.Facts.Processes[track.Pid].ExitNs; exit > 0 {
			end = min(end, exit)
		}
		name, _ := sc.T.ProcessName(track.Pid)
		table.Add(report.Values{
			"gaps":                s.Gaps.Count,
			"gap_sum_ns":          s.Gaps.SumNs,
			"gap_pct":             units.Percent(s.Gaps.SumNs, s.recordedNs()),
			"gap_med_ns":          s.Gaps.Quantile(0.5),
			"gap_p95_ns":          s.Gaps.Quantile(0.95),
			"gap_max_ns":          s.Gaps.Longest(),
			"launches":            s.Launches,
			"unreturned_launches": s.Unreturned,
			"lead_ns":             s.FirstNs - sc.Window.FromNs,
			"tail_ns":             max(0, end-s.UntilNs),
			"pid":                 int64(track.Pid),
			"process":             units.TextOrNil(name),
			"device":              sc.trackDeviceLabel(track),
		})
	}
	processes.AddRankColumn(sc.T, &table)
	return table
}

// trackDeviceLabel returns the name of the device of a track.
func (sc *Scan) trackDeviceLabel(track DeviceTrack) string {
	if track.Device == AllDevicesOfProcess {
		return "all"
	}
	return sc.T.OrdinalDeviceLabel(track.Pid, track.Device)
}

// lengthColumns are the columns of Scan.lengthTable.
var lengthColumns = []report.Column{
	{
		Key: "length", Title: "LENGTH", Unit: report.UnitText,
		About: "length class of the interval between two launches, without its upper bound",
	},
	{Key: "intervals", Title: "INTERVALS", Unit: report.UnitCount, About: "number of intervals in the length class"},
	{Key: "total_ns", Title: "TOTAL", Unit: report.UnitNs, About: "total length of these intervals"},
	{
		Key: "span_pct", Title: "SHARE%", Unit: report.UnitPercent,
		About: "share of TOTAL in the time between first and last launch",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{
		Key: "device", Title: "DEVICE", Unit: report.UnitText,
		About: "CUDA device ordinal in the process; all means all devices of the process together",
	},
}

// lengthTable returns a table with one row per process, device and length class of intervals.
func (sc *Scan) lengthTable() report.Table {
	table := report.Table{
		Name:      "distribution",
		Title:     "intervals between launches by length",
		Columns:   lengthColumns,
		Secondary: true,
	}
	for _, track := range sc.SortedTracks() {
		s := sc.Tracks[track]
		for i, n := range s.ByLength {
			if n.Count == 0 {
				continue
			}
			table.Add(report.Values{
				"length":    LengthClasses[i].name,
				"intervals": n.Count,
				"total_ns":  n.ns,
				"span_pct":  units.Percent(n.ns, s.recordedNs()),
				"pid":       int64(track.Pid),
				"device":    sc.trackDeviceLabel(track),
			})
		}
	}
	processes.AddRankColumn(sc.T, &table)
	return table
}

// gapColumns are the columns of Scan.gapTable.
var gapColumns = []report.Column{
	{Key: "dur_ns", Title: "GAP", Unit: report.UnitNs, About: "length of the gap"},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "start of the gap, from the start of the recording"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{
		Key: "device", Title: "DEVICE", Unit: report.UnitText,
		About: "CUDA device without launches; all means all devices of the process",
	},
	{
		Key: "tid", Title: "TID", Unit: report.UnitID,
		About: "id of the thread whose launch ended the gap; DOING is its activity",
	},
	{
		Key: "doing_pct", Title: "OF IT%", Unit: report.UnitPercent,
		About: "share of the gap that the thread spent in DOING",
	},
	{
		Key: "waiting_ns", Title: "", Unit: report.UnitNs,
		About: "time in the gap that the thread spent in synchronization calls",
	},
	{
		Key: "copying_ns", Title: "", Unit: report.UnitNs,
		About: "time in the gap that the thread spent in copy and memset calls",
	},
	{
		Key: "memory_ns", Title: "", Unit: report.UnitNs,
		About: "time in the gap that the thread spent in calls that allocate, free or map memory",
	},
	{
		Key: "other_cuda_ns", Title: "", Unit: report.UnitNs,
		About: "time in the gap that the thread spent in other CUDA calls",
	},
	{
		Key: "outside_ns", Title: "", Unit: report.UnitNs,
		About: "time in the gap that the thread spent outside CUDA calls",
	},
	{
		Key: "gpu", Title: "GPU", Unit: report.UnitText,
		About: "state of the GPU by NVML samples that cover at least half of the gap. Idle: busy for at most 5% of " +
			"the gap. Busy: at least 50%. Partly: between. Unsure: the samples extend too far beyond the gap. Absent " +
			"without samples. The GPU may be busy with earlier work or another process",
	},
	{
		Key: "gpu_busy_min_pct", Title: "", Unit: report.UnitPercent,
		About: "lower bound of the GPU's busy share of the gap, from gpm_sm_active_percent. Its samples average half " +
			"a second, which may extend beyond the gap. Without GPM: average of gpu_utilization_percent samples " +
			"whose second is in the gap",
	},
	{
		Key: "gpu_busy_max_pct", Title: "", Unit: report.UnitPercent,
		About: "upper bound of the GPU's busy share of the gap",
	},
	{Key: "call_site", Title: "", Unit: report.UnitText, About: "call site of the thread's longest call in the gap"},
	{
		Key: "ended_by", Title: "ENDED BY", Unit: report.UnitText,
		About: "kernel, or else driver function, of the launch that ended the gap",
	},
	{
		Key: "ended_site", Title: "LAUNCHED AT", Unit: report.UnitText,
		About: "call site of the launch that ended the gap",
	},
	{
		Key: "doing", Title: "DOING", Unit: report.UnitText,
		About: "main activity of the thread in the gap: a CUDA driver function, or outside CUDA (Python, data " +
			"loading or any other code)",
	},
}

// maxPrintedGapStacks is the number of gaps whose stack text output prints.
const maxPrintedGapStacks = 3

// gapTable returns a table with the longest gaps.
func (sc *Scan) gapTable() report.Table {
	table := report.Table{
		Name:      "gaps",
		Title:     "longest gaps",
		Columns:   slices.Clone(gapColumns),
		HideFirst: []string{"tid", "pid", "device", "doing_pct"},
	}
	sampled := false
	for i := range sc.List {
		g := &sc.List[i]
		row := table.Add(sc.gapRowValues(g))
		row.StackID, row.Evidence = sc.gapEvidence(g)
		row.Brief = i >= maxPrintedGapStacks
		sampled = sampled || g.Busy.Ok
	}
	if !sampled {
		report.HideTitle(table.Columns, "gpu")
	}
	processes.AddRankColumn(sc.T, &table)
	return table
}

// gapRowValues returns the row of a gap.
func (sc *Scan) gapRowValues(g *Gap) report.Values {
	activity, ns := g.mainActivity()
	waiting := g.TimeInKinds(format.KindSync)
	copying := g.TimeInKinds(format.KindMemcpy, format.KindMemset)
	other := g.TimeInKinds(format.KindAPI, format.KindLaunch)
	inside := g.Activity.TimeInCUDA()
	var gpu, busyMin, busyMax any
	if b := g.Busy; b.Ok {
		gpu, busyMin, busyMax = b.GPUState(), b.MinPct, b.MaxPct
	}
	return report.Values{
		"dur_ns":           g.DurNs(),
		"at_ns":            g.FromNs - sc.T.RecordingWindow().FromNs,
		"pid":              int64(g.Track.Pid),
		"device":           sc.trackDeviceLabel(g.Track),
		"tid":              int64(g.EndedBy.Tid),
		"doing_pct":        units.Percent(ns, g.DurNs()),
		"waiting_ns":       waiting,
		"copying_ns":       copying,
		"memory_ns":        inside - waiting - copying - other,
		"other_cuda_ns":    other,
		"outside_ns":       max(0, g.DurNs()-inside),
		"gpu":              gpu,
		"gpu_busy_min_pct": busyMin,
		"gpu_busy_max_pct": busyMax,
		"call_site":        units.TextOrNil(g.Activity.Site),
		"ended_by":         cmp.Or(sc.Names.List[g.EndedBy.Kernel], sc.Names.List[g.EndedBy.Name]),
		"ended_site":       sc.Names.List[g.EndedBy.Site],
		"doing":            activity,
	}
}

// gapEvidence returns a sentence on the activity of the thread in a gap, and the stack for it.
func (sc *Scan) gapEvidence(g *Gap) (stack int32, text string) {
	activity, ns := g.mainActivity()
	text = fmt.Sprintf(
		"thread %s was %s for %s of the gap",
		sc.T.ThreadLabel(g.EndedBy.Thread()),
		ActivityPhrase(activity),
		units.FormatDuration(ns),
	)
	if activity == ActivityOutsideCUDA {
		return g.EndedBy.Stack, text + "; stack of the launch that ended the gap:"
	}
	return g.Activity.Longest.Stack, text + "; stack of the longest call:"
}
