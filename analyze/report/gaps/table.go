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

var factColumns = []report.Column{
	{Key: "result", Title: "result", Unit: report.UnitText, About: "set if there is nothing to tell"},
	{
		Key: "min_gap_ns", Title: "shortest gap", Unit: report.UnitNs,
		About: "intervals between launches that are shorter are no gaps",
	},
}

var totalColumns = []report.Column{
	{
		Key: "gaps", Title: "gaps", Unit: report.UnitCount,
		About: "gaps of processes, all their devices taken together: from the return of a launch (its entry, where " +
			"the return was not recorded) to the entry of the next one that ran",
	},
	{Key: "gap_sum_ns", Title: "without launches", Unit: report.UnitNs, About: "length of these together"},
	{Key: "gap_max_ns", Title: "longest", Unit: report.UnitNs, About: "the longest"},
	{
		Key: "gap_pct", Title: "% of the time between first and last launch", Unit: report.UnitPercent,
		About: "their share in that time, of all processes; times in which launches were not recorded " +
			"(--max-overhead) are in neither",
	},
	{
		Key: "launches", Title: "launches", Unit: report.UnitCount,
		About: "kernel and graph launches in the window that ran, as far as is known",
	},
	{
		Key: "idle_gaps", Title: "with idle GPU", Unit: report.UnitCount,
		About: "of the gaps listed, those in which samples say that the GPU was idle",
	},
	{
		Key: "busy_gaps", Title: "with busy GPU", Unit: report.UnitCount,
		About: "of the gaps listed, those in which the GPU was busy: with earlier work, or another process's",
	},
}

func (sc *Scan) totals() []report.Fact {
	var sum stats.Durations
	var span, launches, idle, busy int64
	for _, track := range sc.SortedTracks() {
		if s := sc.Tracks[track]; track.Device == AllDevices || sc.Tracks[Track{track.Pid, AllDevices}] == nil {
			sum.Merge(&s.Gaps)
			span = units.EndOf(span, s.seenNs())
			launches += s.Launches
		}
	}
	for i := range sc.List {
		switch sc.List[i].Busy.Word() {
		case GPUIdle:
			idle++
		case GPUBusy:
			busy++
		}
	}
	return report.Facts(totalColumns, report.Values{
		"gaps":       sum.Count,
		"gap_sum_ns": sum.SumNs,
		"gap_max_ns": sum.Most(),
		"gap_pct":    units.Percent(sum.SumNs, span),
		"launches":   launches,
		"idle_gaps":  idle,
		"busy_gaps":  busy,
	})
}

var trackColumns = []report.Column{
	{
		Key: "gaps", Title: "GAPS", Unit: report.UnitCount,
		About: "intervals without launches of at least min_gap_ns: from the return of a launch (its entry, where " +
			"the return was not recorded) to the entry of the next one that ran. Failed and captured launches do " +
			"not run",
	},
	{Key: "gap_sum_ns", Title: "TOTAL", Unit: report.UnitNs, About: "length of these together"},
	{
		Key: "gap_pct", Title: "GAP%", Unit: report.UnitPercent,
		About: "share in the time between first and last launch, without times in which launches were not recorded",
	},
	{Key: "gap_med_ns", Title: "MED", Unit: report.UnitNs, About: "half of them are no longer; off by less than 0.8%"},
	{Key: "gap_p95_ns", Title: "P95", Unit: report.UnitNs, About: "95% are no longer; off by less than 0.8%"},
	{Key: "gap_max_ns", Title: "LONGEST", Unit: report.UnitNs, About: "the longest"},
	{
		Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount,
		About: "kernel and graph launches in the window that ran, as far as is known",
	},
	{
		Key: "unreturned_launches", Title: "", Unit: report.UnitCount,
		About: "of these, launches that were recorded at their entry only: their gap begins there",
	},
	{
		Key: "lead_ns", Title: "BEFORE", Unit: report.UnitNs,
		About: "from the window's start to the first launch; not a gap",
	},
	{
		Key: "tail_ns", Title: "AFTER", Unit: report.UnitNs,
		About: "from the last launch to the window's end, or the end of the process; not a gap",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "process", Title: "", Unit: report.UnitText, About: "its name"},
	{
		Key: "device", Title: "DEVICE", Unit: report.UnitText,
		About: "CUDA device as the process counts; all: launches on any of several devices",
	},
}

// trackTable has a row per process and device.
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
			"gap_pct":             units.Percent(s.Gaps.SumNs, s.seenNs()),
			"gap_med_ns":          s.Gaps.At(0.5),
			"gap_p95_ns":          s.Gaps.At(0.95),
			"gap_max_ns":          s.Gaps.Most(),
			"launches":            s.Launches,
			"unreturned_launches": s.Unreturned,
			"lead_ns":             s.FirstNs - sc.Window.FromNs,
			"tail_ns":             max(0, end-s.UntilNs),
			"pid":                 int64(track.Pid),
			"process":             units.Known(name),
			"device":              sc.trackDevice(track),
		})
	}
	processes.AddRanks(sc.T, &table)
	return table
}

// trackDevice names the device of a track.
func (sc *Scan) trackDevice(track Track) string {
	if track.Device == AllDevices {
		return "all"
	}
	return sc.T.OrdinalLabel(track.Pid, track.Device)
}

var lengthColumns = []report.Column{
	{
		Key: "length", Title: "LENGTH", Unit: report.UnitText,
		About: "of the interval between two launches, of any length, upper bound not included",
	},
	{Key: "intervals", Title: "INTERVALS", Unit: report.UnitCount, About: "intervals of that length"},
	{Key: "total_ns", Title: "TOTAL", Unit: report.UnitNs, About: "their length together"},
	{
		Key: "span_pct", Title: "SHARE%", Unit: report.UnitPercent,
		About: "share in the time between first and last launch",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "as above"},
}

// lengthTable has a row per process, device and length of intervals.
func (sc *Scan) lengthTable() report.Table {
	table := report.Table{
		Name:      "distribution",
		Title:     "intervals between launches by length",
		Columns:   lengthColumns,
		Secondary: true,
	}
	for _, track := range sc.SortedTracks() {
		s := sc.Tracks[track]
		for i, n := range s.All {
			if n.Count == 0 {
				continue
			}
			table.Add(report.Values{
				"length":    Lengths[i].name,
				"intervals": n.Count,
				"total_ns":  n.ns,
				"span_pct":  units.Percent(n.ns, s.seenNs()),
				"pid":       int64(track.Pid),
				"device":    sc.trackDevice(track),
			})
		}
	}
	processes.AddRanks(sc.T, &table)
	return table
}

var gapColumns = []report.Column{
	{Key: "dur_ns", Title: "GAP", Unit: report.UnitNs, About: "length of the gap"},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "when it began, from the recording's start"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{
		Key: "device", Title: "DEVICE", Unit: report.UnitText,
		About: "CUDA device without launches; all: none of several had any",
	},
	{
		Key: "tid", Title: "TID", Unit: report.UnitID,
		About: "thread that made the launch that ended the gap: DOING is about it",
	},
	{Key: "doing_pct", Title: "OF IT%", Unit: report.UnitPercent, About: "share of DOING in the gap"},
	{Key: "waiting_ns", Title: "", Unit: report.UnitNs, About: "time of the thread in synchronizations, in the gap"},
	{Key: "copying_ns", Title: "", Unit: report.UnitNs, About: "in copies and fills"},
	{Key: "memory_ns", Title: "", Unit: report.UnitNs, About: "in calls that allocate, free or map memory"},
	{Key: "other_cuda_ns", Title: "", Unit: report.UnitNs, About: "in other calls of the driver"},
	{Key: "outside_ns", Title: "", Unit: report.UnitNs, About: "in none"},
	{
		Key: "gpu", Title: "GPU", Unit: report.UnitText,
		About: "idle: the GPU was busy for at most 5% of the gap, by samples that cover at least half of it; busy: " +
			"at least 50%; partly; unsure: the samples reach too far beyond the gap; absent where samples do not " +
			"tell. Busy can be earlier work of the process, or another process",
	},
	{
		Key: "gpu_busy_min_pct", Title: "", Unit: report.UnitPercent,
		About: "least that the GPU can have been busy in the gap, given gpm_sm_active_percent: a sample is an " +
			"average of half a second, of which a part may lie outside of the gap; without GPM, the mean of " +
			"gpu_utilization_percent of samples whose second lies in the gap",
	},
	{Key: "gpu_busy_max_pct", Title: "", Unit: report.UnitPercent, About: "most that it can have been busy"},
	{Key: "call_site", Title: "", Unit: report.UnitText, About: "place in the program of the longest call in the gap"},
	{Key: "ended_by", Title: "ENDED BY", Unit: report.UnitText, About: "kernel, or call, that was launched at its end"},
	{Key: "ended_site", Title: "LAUNCHED AT", Unit: report.UnitText, About: "place in the program of that launch"},
	{
		Key: "doing", Title: "DOING", Unit: report.UnitText,
		About: "what the thread did most of the gap: a function of the CUDA driver, or outside CUDA (Python, data " +
			"loading, anything)",
	},
}

// gapStacks is the number of gaps whose stack text shows.
const gapStacks = 3

// gapTable lists the longest gaps.
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
		row := table.Add(sc.gapValues(g))
		row.StackID, row.Evidence = sc.gapEvidence(g)
		row.Brief = i >= gapStacks
		sampled = sampled || g.Busy.Ok
	}
	if !sampled {
		report.HideTitle(table.Columns, "gpu")
	}
	processes.AddRanks(sc.T, &table)
	return table
}

func (sc *Scan) gapValues(g *Gap) report.Values {
	what, ns := g.most()
	waiting := g.InKind(format.KindSync)
	copying := g.InKind(format.KindMemcpy, format.KindMemset)
	other := g.InKind(format.KindAPI, format.KindLaunch)
	inside := g.Doing.InCUDA()
	var gpu, busyMin, busyMax any
	if b := g.Busy; b.Ok {
		gpu, busyMin, busyMax = b.Word(), b.MinPct, b.MaxPct
	}
	return report.Values{
		"dur_ns":           g.DurNs(),
		"at_ns":            g.FromNs - sc.T.Recording().FromNs,
		"pid":              int64(g.Track.Pid),
		"device":           sc.trackDevice(g.Track),
		"tid":              int64(g.Ended.Tid),
		"doing_pct":        units.Percent(ns, g.DurNs()),
		"waiting_ns":       waiting,
		"copying_ns":       copying,
		"memory_ns":        inside - waiting - copying - other,
		"other_cuda_ns":    other,
		"outside_ns":       max(0, g.DurNs()-inside),
		"gpu":              gpu,
		"gpu_busy_min_pct": busyMin,
		"gpu_busy_max_pct": busyMax,
		"call_site":        units.Known(g.Doing.Site),
		"ended_by":         cmp.Or(sc.Names.List[g.Ended.Kernel], sc.Names.List[g.Ended.Name]),
		"ended_site":       sc.Names.List[g.Ended.Site],
		"doing":            what,
	}
}

// gapEvidence says what the thread did in a gap, and returns the stack that shows it.
func (sc *Scan) gapEvidence(g *Gap) (stack int32, text string) {
	what, ns := g.most()
	text = fmt.Sprintf(
		"thread %s was %s for %s of it",
		sc.T.ThreadLabel(g.Ended.Thread()),
		Where(what),
		units.Duration(ns),
	)
	if what == OutsideCUDA {
		return g.Ended.Stack, text + "; the launch that ended it came from"
	}
	return g.Doing.Longest.Stack, text + ", called from"
}
