package steps

import (
	"fmt"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// processColumns are the columns of scan.processTable.
var processColumns = []report.Column{
	{Key: "steps", Title: "STEPS", Unit: report.UnitCount, About: "complete steps in the window"},
	{
		Key:   "cut_steps",
		Title: "CUT",
		Unit:  report.UnitCount,
		About: "steps without a part: at the ends of the recording, or where launches were lost or not recorded. " +
			"No other column counts them",
	},
	{Key: "mean_ns", Title: "MEAN", Unit: report.UnitNs, About: "mean duration of a step"},
	{Key: "p50_ns", Title: "P50", Unit: report.UnitNs, About: "median duration of a step"},
	{Key: "p95_ns", Title: "P95", Unit: report.UnitNs, About: "95th percentile of the durations"},
	{Key: "max_ns", Title: "MAX", Unit: report.UnitNs, About: "duration of the longest step"},
	{
		Key:   "outliers",
		Title: "OUTLIERS",
		Unit:  report.UnitCount,
		About: "steps that are longer than the median by a tenth and by six standard deviations, which follow " +
			"from the median deviation",
	},
	{
		Key:   "slower_steps",
		Title: "SLOWER",
		Unit:  report.UnitCount,
		About: "longer steps that recur: more than 15 % of the steps, or always after the same number of steps. " +
			"They are no outliers",
	},
	{
		Key:    "operations",
		OldKey: "works",
		Title:  "LAUNCHES",
		Unit:   report.UnitRatio,
		About: "launches, copies and memsets of a step, on average. It, phases and GPU times need steps whose " +
			"launches are all recorded",
	},
	{
		Key: "covered_pct", Title: "COVERED", Unit: report.UnitPercent,
		About: "share of the process's launches, copies and memsets in the window that are in complete steps",
	},
	{
		Key: "time_pct", Title: "TIME", Unit: report.UnitPercent,
		About: "share of the window that is in complete steps",
	},
	{
		Key:   "outside_pct",
		Title: "OUTSIDE CUDA",
		Unit:  report.UnitPercent,
		About: "share of the steps' time in which no thread of the step was in a CUDA call. Launches without a " +
			"recorded return count as outside",
	},
	{
		Key: "wait_pct", Title: "WAITS", Unit: report.UnitPercent,
		About: "share of the steps' time in calls that wait for the GPU",
	},
	{
		Key:   "gpu_ns",
		Title: "GPU TIME",
		Unit:  report.UnitNs,
		About: "time of a step's operations on the GPU, on average: the sum of measured durations, and of estimated " +
			"means for other operations. Operations of several streams may overlap. Absent without GPU times",
	},
	{
		Key: "gpu_error_ns", Title: "±", Unit: report.UnitNs,
		About: "standard error of GPU TIME from the estimated means",
	},
	{
		Key: "gpu_covered_pct", Title: "GPU COVERED", Unit: report.UnitPercent,
		About: "share of the operations in steps whose duration is measured or estimated",
	},
	{
		Key: "gpu_measured_pct", Title: "MEASURED", Unit: report.UnitPercent,
		About: "share of the operations in steps whose duration is measured",
	},
	{
		Key:   "busy_min_pct",
		Title: "BUSY MIN",
		Unit:  report.UnitPercent,
		About: "lower bound of the share of time in which the busiest device ran operations of the process, from its " +
			"first to its last operation in the window",
	},
	{Key: "busy_max_pct", Title: "BUSY MAX", Unit: report.UnitPercent, About: "upper bound of the same share"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{
		Key: "begin", Title: "A STEP BEGINS AT", Unit: report.UnitText,
		About: "call site or kernel of the first launch of most steps",
	},
}

// processTable returns a table with one row per process with steps.
func (sc *scan) processTable() report.Table {
	table := report.Table{
		Name:    "steps",
		Columns: slices.Clone(processColumns),
		Keys:    []string{"pid"},
		HideFirst: []string{
			"gpu_measured_pct",
			"time_pct",
			"mean_ns",
			"wait_pct",
			"cut_steps",
			"gpu_error_ns",
			"outside_pct",
		},
	}
	if sc.activity == nil {
		for _, key := range []string{
			"gpu_ns", "gpu_error_ns", "gpu_covered_pct", "gpu_measured_pct", "busy_min_pct", "busy_max_pct",
		} {
			report.HideTitle(table.Columns, key)
		}
	}
	for _, s := range sc.processes {
		if s.complete == 0 {
			continue
		}
		table.Add(report.JoinValues(sc.gpuValues(s), s.fullValues(), report.Values{
			"steps":        s.complete,
			"cut_steps":    int64(len(s.Steps)) - s.complete,
			"mean_ns":      s.sumNs / s.complete,
			"p50_ns":       s.medianNs(),
			"p95_ns":       s.quantileNs(0.95),
			"max_ns":       s.quantileNs(1),
			"outliers":     s.outlierCount(),
			"slower_steps": s.slower,
			"covered_pct":  units.Percent(s.Inside, s.Operations),
			"time_pct":     min(100, units.Percent(s.sumNs, sc.reader.Window.DurNs())),
			"pid":          int64(s.Pid),
			"begin":        units.TextOrNil(s.beginSite()),
		}))
	}
	table.Sort("steps", "-pid")
	return table
}

// fullValues returns the cells that need steps with all calls, nil without such steps.
func (s *processScan) fullValues() report.Values {
	f := &s.full
	if f.count == 0 {
		return report.Values{"operations": nil, "outside_pct": nil, "wait_pct": nil}
	}
	return report.Values{
		"operations":  float64(f.operations) / float64(f.count),
		"outside_pct": max(0, units.Percent(f.ns-s.insideNs, f.ns)),
		"wait_pct":    units.Percent(s.waitNs, f.ns),
	}
}

// gpuValues returns the cells of GPU times of a process, nil without GPU times.
func (sc *scan) gpuValues(s *processScan) report.Values {
	v := report.Values{
		"gpu_ns": nil, "gpu_error_ns": nil, "gpu_covered_pct": nil, "gpu_measured_pct": nil, "busy_min_pct": nil,
		"busy_max_pct": nil,
	}
	g := &s.gpu.total
	if sc.activity == nil || g.measured+g.estimated == 0 {
		return v
	}
	ns, errorNs := g.sum(sc.activity, s.Pid)
	v["gpu_ns"], v["gpu_error_ns"] = ns/float64(s.full.count), errorNs/float64(s.full.count)
	v["gpu_covered_pct"] = units.Percent(g.measured+g.estimated, g.operations)
	v["gpu_measured_pct"] = units.Percent(g.measured, g.operations)
	if s.gpu.spanNs > 0 {
		v["busy_min_pct"] = min(100, units.Percent(s.gpu.busy.LoNs, s.gpu.spanNs))
		v["busy_max_pct"] = min(100, units.Percent(s.gpu.busy.HiNs, s.gpu.spanNs))
	}
	return v
}

// outlierColumns are the columns of scan.outlierTable.
var outlierColumns = []report.Column{
	{
		Key: "step", Title: "STEP", Unit: report.UnitID,
		About: "number of the step in its process, from 1; cut steps have numbers too",
	},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "start of the step, from the start of the recording"},
	{Key: "duration_ns", Title: "DURATION", Unit: report.UnitNs, About: "duration of the step"},
	{Key: "excess_ns", Title: "LONGER BY", Unit: report.UnitNs, About: "DURATION minus the median duration"},
	{
		Key:   "cause",
		Title: "CAUSE",
		Unit:  report.UnitText,
		About: "what explains most of LONGER BY: outside CUDA, in a call, waits for GPU, more launches, slow " +
			"kernel, or many places",
	},
	{
		Key:   "cause_ns",
		Title: "EXPLAINS",
		Unit:  report.UnitNs,
		About: "time of the cause, minus its mean in other steps; for a slow kernel a lower bound of its GPU " +
			"time minus the typical time of the kernel",
	},
	{
		Key:    "extra_operations",
		OldKey: "extra_works",
		Title:  "EXTRA",
		Unit:   report.UnitRatio,
		About:  "launches of the step minus their mean in other steps",
	},
	{
		Key:    "operations",
		OldKey: "works",
		Title:  "LAUNCHES",
		Unit:   report.UnitCount,
		About:  "launches, copies and memsets of the step",
	},
	{Key: "kernel", Title: "KERNEL", Unit: report.UnitText, About: "kernel of the cause; absent for other causes"},
	{
		Key:   "gpu_quality",
		Title: "GPU TIME",
		Unit:  report.UnitText,
		About: "certainty of the kernel's time: bounded, or estimated: the words of the channel showed no later " +
			"operation for a long time; absent for other causes",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{
		Key:   "site",
		Title: "SITE",
		Unit:  report.UnitText,
		About: "call site of the cause; outside CUDA: of the call that follows; more launches: the phase",
	},
	{Key: "detail", Title: "WHAT DIFFERED", Unit: report.UnitText, About: "the cause in words"},
}

// outlierTable returns a table with one row per outlier, the longest first.
func (sc *scan) outlierTable() report.Table {
	table := report.Table{
		Name: "outliers", Title: "outliers", Columns: outlierColumns, Keys: []string{},
		HideFirst: []string{"operations", "extra_operations", "gpu_quality", "cause_ns", "site", "kernel"},
	}
	hasHost := hosttime.HasRows(sc.t)
	if hasHost {
		table.Columns = append(slices.Clone(outlierColumns), outlierHostColumn)
	}
	startNs := sc.t.RecordingWindow().FromNs
	for _, s := range sc.processes {
		for _, o := range s.outliers {
			step, f := &s.Steps[o.step], &o.finding
			extra, _ := s.extraLaunches(o)
			values := report.Values{
				"step":             int64(o.step + 1),
				"at_ns":            step.BeginNs - startNs,
				"duration_ns":      step.DurNs(),
				"excess_ns":        step.DurNs() - s.medianNs(),
				"cause":            units.TextOrNil(string(f.cause)),
				"cause_ns":         f.ns,
				"extra_operations": math.Round(extra*100)/100 + 0,
				"operations":       int64(step.Operations),
				"kernel":           units.TextOrNil(f.kernel),
				"gpu_quality":      units.TextOrNil(f.quality),
				"pid":              int64(s.Pid),
				"site":             units.TextOrNil(f.site),
				"detail":           f.detail,
			}
			if hasHost {
				values["host"] = units.TextOrNil(sc.hostText(s, o))
			}
			table.Add(values)
		}
		table.OmittedRows += int(s.outliersOmitted)
	}
	table.Sort("excess_ns", "-step", "-pid")
	return table
}

// phaseColumns are the columns of scan.phaseTable.
var phaseColumns = []report.Column{
	{
		Key:   "host_pct",
		Title: "HOST",
		Unit:  report.UnitPercent,
		About: "share of the steps' time in which the threads of the step were in the phase: in its calls, and " +
			"between two of them",
	},
	{Key: "host_ns", Title: "HOST TIME", Unit: report.UnitNs, About: "the same time for a step, on average"},
	{
		Key:    "operations",
		OldKey: "works",
		Title:  "LAUNCHES",
		Unit:   report.UnitRatio,
		About:  "launches, copies and memsets of the phase in a step",
	},
	{
		Key: "gpu_pct", Title: "GPU", Unit: report.UnitPercent,
		About: "share of the phase in the GPU time of the steps. Absent without GPU times",
	},
	{
		Key:   "gpu_ns",
		Title: "GPU TIME",
		Unit:  report.UnitNs,
		About: "time of the phase's operations on the GPU in a step, on average: measured durations, and estimated " +
			"means for other operations",
	},
	{
		Key:   "gpu_error_ns",
		Title: "±",
		Unit:  report.UnitNs,
		About: "standard error of GPU TIME from the estimated means",
	},
	{
		Key: "gpu_covered_pct", Title: "COVERED", Unit: report.UnitPercent,
		About: "share of the phase's operations whose duration is measured or estimated",
	},
	{
		Key: "gpu_measured_pct", Title: "MEASURED", Unit: report.UnitPercent,
		About: "share of the phase's operations whose duration is measured",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "callee", Title: "CALLS", Unit: report.UnitText, About: "function that the call site calls"},
	{
		Key: "phase", Title: "PHASE", Unit: report.UnitText,
		About: "call site in the function of the step, thread, or kernel; or the way from one to another, " +
			"outside CUDA",
	},
}

// phaseTable returns a table with one row per phase, and per way between two phases that takes time.
func (sc *scan) phaseTable() report.Table {
	table := report.Table{
		Name: "phases", Title: "phases of a step", Columns: slices.Clone(phaseColumns), Keys: []string{"phase"},
		Secondary: true, HideFirst: []string{"gpu_measured_pct", "gpu_covered_pct", "gpu_error_ns", "pid"},
	}
	if sc.activity == nil {
		for _, key := range []string{"gpu_pct", "gpu_ns", "gpu_error_ns", "gpu_covered_pct", "gpu_measured_pct"} {
			report.HideTitle(table.Columns, key)
		}
	}
	for _, s := range sc.processes {
		if s.full.count == 0 {
			continue
		}
		names := s.Phases()
		for i := range s.phases {
			if p := &s.phases[i]; p.calls > 0 || p.gpu.operations > 0 {
				sc.addPhase(&table, s, p, names[i].Name, names[i].Callee)
			}
		}
		for key, p := range s.between {
			if p.hostNs*200 < s.full.ns {
				continue
			}
			name := "between other phases"
			if key[0] >= 0 {
				name = fmt.Sprintf("between %s and %s", names[key[0]].Name, names[key[1]].Name)
			}
			sc.addPhase(&table, s, p, name, "outside CUDA")
		}
	}
	table.Sort("host_ns", "-pid", "phase")
	return table
}

// addPhase adds the row of a phase.
func (sc *scan) addPhase(table *report.Table, s *processScan, p *phaseTotals, name, callee string) {
	steps := float64(s.full.count)
	values := report.Values{
		"host_pct": min(100, units.Percent(p.hostNs, s.full.ns)),
		"host_ns":  p.hostNs / s.full.count,
		"operations": float64(
			p.operations,
		) / steps,
		"pid":              int64(s.Pid),
		"callee":           units.TextOrNil(callee),
		"phase":            name,
		"gpu_pct":          nil,
		"gpu_ns":           nil,
		"gpu_error_ns":     nil,
		"gpu_covered_pct":  nil,
		"gpu_measured_pct": nil,
	}
	if g := &p.gpu; sc.activity != nil && g.measured+g.estimated > 0 {
		ns, errorNs := g.sum(sc.activity, s.Pid)
		all, _ := s.gpu.total.sum(sc.activity, s.Pid)
		values["gpu_ns"], values["gpu_error_ns"] = ns/steps, errorNs/steps
		values["gpu_pct"] = 100 * ns / max(1, all)
		values["gpu_covered_pct"] = units.Percent(g.measured+g.estimated, g.operations)
		values["gpu_measured_pct"] = units.Percent(g.measured, g.operations)
	}
	table.Add(values)
}

// slowColumns are the columns of scan.slowTable.
var slowColumns = []report.Column{
	{
		Key:   "slow",
		Title: "SLOW",
		Unit:  report.UnitCount,
		About: "operations that ran for more than twice TYPICAL, by bounds or estimates; at most 128. Kernels in " +
			"which one operation in ten is slow, or one step in five has one, are left out",
	},
	{
		Key:    "kernel_operations",
		OldKey: "kernel_works",
		Title:  "OF",
		Unit:   report.UnitCount,
		About:  "operations of the kernel and grid in steps",
	},
	{
		Key:   "longest_ns",
		Title: "LONGEST",
		Unit:  report.UnitNs,
		About: "duration of the longest of them, see gpu_quality",
	},
	{
		Key:   "gpu_quality",
		Title: "GPU TIME",
		Unit:  report.UnitText,
		About: "certainty of LONGEST: a lower bound (bounded), or the time until the next measured start minus " +
			"the typical durations of the operations between (estimated)",
	},
	{
		Key:   "typical_ns",
		Title: "TYPICAL",
		Unit:  report.UnitNs,
		About: "upper bound of the typical duration of the kernel and grid: the smaller of the median upper " +
			"bound, and the estimated mean plus two standard errors",
	},
	{Key: "longest_step", Title: "IN STEP", Unit: report.UnitID, About: "step that launched the longest"},
	{Key: "slow_steps", Title: "STEPS", Unit: report.UnitText, About: "first steps that launched slow operations"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "grid", Title: "GRID", Unit: report.UnitText, About: "grid of the kernel"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "call site that launched the longest"},
	{Key: "kernel", Title: "KERNEL", Unit: report.UnitText, About: "kernel, graph or kind of copy"},
}

// slowTable returns a table with one row per kernel and grid with slow operations.
func (sc *scan) slowTable() report.Table {
	table := report.Table{
		Name:      "slow_operations",
		OldName:   "slow_works",
		Title:     "GPU operations that ran for much longer than others of their kernel",
		Columns:   slowColumns,
		Keys:      []string{"kernel", "grid"},
		Secondary: true,
		HideFirst: []string{"pid", "slow_steps", "grid"},
	}
	for _, s := range sc.processes {
		for _, l := range s.gpu.slow {
			name := sc.gpuLabel(l.longest.key)
			table.Add(report.Values{
				"slow":              int64(len(l.list)),
				"kernel_operations": l.operations,
				"longest_ns":        l.longest.atLeastNs,
				"typical_ns":        l.longest.typicalNs,
				"gpu_quality":       l.longest.quality(),
				"longest_step":      int64(l.longest.step + 1),
				"slow_steps":        stepNumbers(l.steps),
				"pid":               int64(s.Pid),
				"grid":              name.grid,
				"site":              sc.t.SiteOfStack(l.longest.stack),
				"kernel":            name.name,
			})
		}
	}
	table.Sort("longest_ns", "-pid", "kernel", "grid")
	return table
}
