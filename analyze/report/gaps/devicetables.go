package gaps

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/idle"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// ownerColumns are the columns of the process and the device of a row.
var ownerColumns = []report.Column{
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device ordinal in the process"},
}

func (dg *deviceGaps) ownerValues(d *idle.Device) report.Values {
	return report.Values{"pid": int64(d.Pid), "device": dg.t.OrdinalDeviceLabel(d.Pid, d.Device)}
}

// estimateColumns returns the columns of a share of the time: probable, at least and at most.
func estimateColumns(key, title, about string) []report.Column {
	return []report.Column{
		{
			Key:   key + "_pct",
			Title: title + "%",
			Unit:  report.UnitPercent,
			About: about + "; absent if only bounds are known",
		},
		{Key: key + "_min_pct", Title: "MIN", Unit: report.UnitPercent, About: "lower bound of that share"},
		{Key: key + "_max_pct", Title: "MAX", Unit: report.UnitPercent, About: "upper bound of that share"},
	}
}

// estimateValues returns the cells of estimateColumns.
func estimateValues(key string, of *idle.Time, e idle.Estimate, isLimited bool) report.Values {
	values := report.Values{
		key + "_pct":     nil,
		key + "_min_pct": sharePct(of, e.MinNs),
		key + "_max_pct": sharePct(of, e.MaxNs),
	}
	if !isLimited {
		values[key+"_pct"] = sharePct(of, e.ProbableNs)
	}
	return values
}

// gpuTotalColumns are the totals with GPU times.
var gpuTotalColumns = slices.Concat(
	[]report.Column{
		{
			Key:   "gpu_idle_pct",
			Title: "% idle GPU",
			Unit:  report.UnitPercent,
			About: "share of the time between first and last operation in which the GPU probably ran nothing; " +
				"absent if only bounds are known",
		},
		{Key: "gpu_idle_min_pct", Title: "% at least", Unit: report.UnitPercent, About: "lower bound of that share"},
		{Key: "gpu_idle_max_pct", Title: "% at most", Unit: report.UnitPercent, About: "upper bound of that share"},
		{
			Key: "explained_pct", Title: "% explained", Unit: report.UnitPercent,
			About: "share of the probable idle time whose cause is known",
		},
		{
			Key:    "operations",
			OldKey: "works",
			Title:  "operations",
			Unit:   report.UnitCount,
			About:  "operations with known times, without event records",
		},
		{
			Key:    "untimed_operations",
			OldKey: "untimed_works",
			Title:  "operations without times",
			Unit:   report.UnitCount,
			About: "operations without a known start, and operations of streams without a channel; they count as " +
				"possibly running",
		},
	},
)

func (dg *deviceGaps) totals() []report.Fact {
	sum, isLimited := dg.sum()
	operations, untimed, known, all := int64(0), dg.idle.UntimedOperations, 0.0, 0.0
	for _, d := range dg.idle.Devices {
		operations, untimed = operations+d.Operations, untimed+d.UnknownOperations
		known, all = known+d.ExplainedPct()*d.Time.Idle.ProbableNs, all+d.Time.Idle.ProbableNs
	}
	return report.NewFacts(gpuTotalColumns, report.JoinValues(
		estimateValues("gpu_idle", &sum, sum.Idle, isLimited),
		report.Values{"explained_pct": known / max(1, all), "operations": operations, "untimed_operations": untimed},
	))
}

// deviceColumns are the columns of the table devices.
var deviceColumns = slices.Concat(
	estimateColumns("idle", "IDLE", "share of SPAN in which the GPU probably ran no operation of the process"),
	estimateColumns(
		"copies",
		"COPIES",
		"share of SPAN in which it ran only copies between host and device: exposed copies",
	),
	estimateColumns(
		"collectives",
		"COLLECTIVES",
		"share of SPAN in which it ran collectives (NCCL) but no other kernel: "+
			"exposed communication",
	),
	[]report.Column{
		{
			Key:   "quality",
			Title: "QUALITY",
			Unit:  report.UnitText,
			About: "measured: the bounds differ by less than 1%. estimated: most durations are estimated. bounded: " +
				"most durations have only bounds, because few operations waited in the queue. Or no wait or pause " +
				"confirms most starts",
		},
		{
			Key: "explained_pct", Title: "EXPLAINED%", Unit: report.UnitPercent,
			About: "share of the probable idle time whose cause is known",
		},
		{
			Key: "timed_pct", Title: "TIMED%", Unit: report.UnitPercent,
			About: "share of the operations whose start is known; the others count as possibly running",
		},
		{
			Key:    "operations",
			OldKey: "works",
			Title:  "OPERATIONS",
			Unit:   report.UnitCount,
			About:  "operations with a known start, without event records",
		},
		{
			Key: "late_operations", OldKey: "late_works", Title: "", Unit: report.UnitCount,
			About: "operations whose time was known too late for the sweep in order of time",
		},
		{
			Key:   "span_ns",
			Title: "SPAN",
			Unit:  report.UnitNs,
			About: "time between the first and the last operation, without UNRECORDED",
		},
		{
			Key: "unrecorded_ns", Title: "UNRECORDED", Unit: report.UnitNs,
			About: "time in which calls may be missing, and 20 ms after it; nothing is known about the GPU",
		},
	},
	ownerColumns,
)

func (dg *deviceGaps) deviceTable() report.Table {
	table := report.Table{
		Name: "devices", Title: "idle time of the GPU", Columns: deviceColumns, Keys: []string{"pid", "device"},
		HideFirst: []string{"unrecorded_ns", "timed_pct", "span_ns"},
	}
	for _, d := range dg.idle.Devices {
		isLimited := d.IsLimited()
		table.Add(report.JoinValues(
			estimateValues("idle", &d.Time, d.Time.Idle, isLimited),
			estimateValues("copies", &d.Time, d.Time.Copies, isLimited),
			estimateValues("collectives", &d.Time, d.Time.Collectives, isLimited),
			report.Values{
				"quality":       qualityOf(d),
				"explained_pct": d.ExplainedPct(),
				"timed_pct": units.Percent(
					d.Operations,
					d.Operations+d.UnknownOperations+dg.idle.UntimedOperations,
				),
				"operations":      d.Operations,
				"late_operations": d.LateOperations,
				"span_ns":         int64(d.Time.SpanNs),
				"unrecorded_ns":   int64(d.Time.UnrecordedNs),
			},
			dg.ownerValues(d),
		))
	}
	return table
}

// causeColumns are the columns of the table causes.
var causeColumns = slices.Concat(
	estimateColumns(
		"share",
		"SHARE",
		"share of the device's SPAN; rows of copies, collectives and streams are no idle time",
	),
	[]report.Column{
		{Key: "total_ns", Title: "TOTAL", Unit: report.UnitNs, About: "probable length of the gaps together"},
		{Key: "gaps", Title: "GAPS", Unit: report.UnitCount, About: "number of gaps"},
		{Key: "longest_ns", Title: "LONGEST", Unit: report.UnitNs, About: "probable length of the longest gap"},
	},
	ownerColumns,
	[]report.Column{
		{
			Key:   "line",
			Title: "LINE",
			Unit:  report.UnitText,
			About: "call site of the cause. If the host was outside CUDA or launching, it is the late launch. " +
				"Otherwise it is " +
				"the call that the host was in, or that made the stream wait, or that launched the copy or collective",
		},
		{
			Key:   "cause",
			Title: "CAUSE",
			Unit:  report.UnitText,
			About: "main activity of the host from the start of the gap until the launch of the next operation. If " +
				"the operation was launched in time, the thing that its stream waited for",
		},
		{
			Key:   "after",
			Title: "AFTER",
			Unit:  report.UnitText,
			About: "in the longest gap: the call before the time outside CUDA, the launch after a wait, or the " +
				"launch that " +
				"the stream waited for",
		},
	},
)

func (dg *deviceGaps) causeTable() report.Table {
	table := report.Table{Name: "causes", Title: "causes", Columns: causeColumns, HideFirst: []string{"pid", "device"}}
	for _, d := range dg.idle.Devices {
		for _, c := range d.Causes {
			table.Add(report.JoinValues(
				estimateValues("share", &d.Time, c.Time, d.IsLimited()),
				report.Values{
					"total_ns": int64(
						c.Time.ProbableNs,
					),
					"gaps":       c.Gaps,
					"longest_ns": c.LongestNs,
					"line":       dg.siteOf(c.Stack),
					"cause":      CauseText(dg.idle, c),
					"after":      dg.siteOf(c.After),
				},
				dg.ownerValues(d),
			))
		}
	}
	table.Sort("total_ns")
	return table
}

// idleColumns are the columns of the table idle.
var idleColumns = slices.Concat(
	[]report.Column{
		{Key: "dur_ns", Title: "GAP", Unit: report.UnitNs, About: "probable length of the gap"},
		{Key: "min_ns", Title: "MIN", Unit: report.UnitNs, About: "lower bound of the length"},
		{Key: "max_ns", Title: "MAX", Unit: report.UnitNs, About: "upper bound of the length"},
		{
			Key:   "at_ns",
			Title: "AT",
			Unit:  report.UnitNs,
			About: "probable start of the gap, from the start of the recording",
		},
		{Key: "tid", Title: "TID", Unit: report.UnitID, About: "thread that launched NEXT"},
	},
	ownerColumns,
	[]report.Column{
		{
			Key: "next", Title: "NEXT", Unit: report.UnitText,
			About: "the operation that ended the gap, or the copy or collective that ran in it",
		},
		{Key: "line", Title: "LINE", Unit: report.UnitText, About: "call site of the cause, as in causes"},
		{Key: "cause", Title: "CAUSE", Unit: report.UnitText, About: "cause, as in causes"},
	},
)

func (dg *deviceGaps) idleTable() report.Table {
	table := report.Table{
		Name:      "idle",
		Title:     "longest gaps",
		Columns:   idleColumns,
		HideFirst: []string{"tid", "pid", "device"},
	}
	if dg.hasHost() {
		table.Columns = append(slices.Clone(idleColumns), gapHostColumn)
	}
	for _, d := range dg.idle.Devices {
		for i := range d.Gaps {
			g := &d.Gaps[i]
			if g.LengthNs() < dg.min {
				continue
			}
			row := table.Add(report.JoinValues(dg.hostValues(g), report.Values{
				"dur_ns": g.LengthNs(),
				"min_ns": g.MinNs,
				"max_ns": g.MaxNs,
				"at_ns":  g.FromNs - dg.t.RecordingWindow().FromNs,
				"tid":    int64(g.Tid),
				"next":   units.TextOrNil(dg.operationText(g.NextOp, g.NextLabel)),
				"line":   dg.siteOf(g.Cause.Stack),
				"cause":  CauseText(dg.idle, &g.Cause),
			}, dg.ownerValues(d)))
			row.StackID, row.Evidence = g.Cause.Stack, dg.evidence(g)
		}
	}
	table.Sort("dur_ns")
	for i := range table.Rows {
		table.Rows[i].Brief = i >= maxPrintedGapStacks
	}
	return table
}

// evidence returns a sentence on the cause of a gap.
func (dg *deviceGaps) evidence(g *idle.Gap) string {
	if g.Cause.Stack == 0 {
		return "the cause is unknown"
	}
	text := CauseText(dg.idle, &g.Cause)
	if g.Cause.After != 0 && g.Cause.Reason == idle.ReasonOutside {
		text += fmt.Sprintf(" after its call at %s", dg.t.SiteOfStack(g.Cause.After))
	}
	return text + "; stack of the line:"
}

// spanColumns are the columns of the tables slices and phases.
var spanColumns = slices.Concat(
	[]report.Column{
		{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "start, from the start of the recording"},
		{Key: "dur_ns", Title: "LENGTH", Unit: report.UnitNs, About: "length"},
	},
	estimateColumns("busy", "BUSY", "share of the time in which the GPU probably ran operations of the process"),
	[]report.Column{
		{
			Key:   "bound",
			Title: "BOUND",
			Unit:  report.UnitText,
			About: "CPU: the queue is empty for at least 70% of the time, and the GPU is busy for less than 90%. " +
				"GPU: the " +
				"queue is not empty for at least 70%, and the GPU is busy for 90% or more, or it is always busy. " +
				"mixed: " +
				"neither. Absent: the bounds of BUSY are too far apart",
		},
		{
			Key:   "queue_p50",
			Title: "QUEUE",
			Unit:  report.UnitCount,
			About: "median number of operations that were launched and had not begun",
		},
		{
			Key:   "queue_max",
			Title: "MAX",
			Unit:  report.UnitCount,
			About: "largest average of that number in a part of the time",
		},
	},
)

// sliceColumns are the columns of the table slices.
var sliceColumns = slices.Concat(spanColumns, []report.Column{
	{
		Key:   "delay_p50_ns",
		Title: "DELAY",
		Unit:  report.UnitNs,
		About: "median time from the call of an operation to its start",
	},
	{Key: "delay_p95_ns", Title: "P95", Unit: report.UnitNs, About: "95th percentile of that time"},
}, ownerColumns)

// phaseColumns are the columns of the table phases.
var phaseColumns = slices.Concat(spanColumns, ownerColumns)

// spanValues returns the cells of spanColumns.
func (dg *deviceGaps) spanValues(d *idle.Device, span *idle.Span) report.Values {
	low, probable, high := span.Time.BusyPct()
	values := report.Values{
		"at_ns":        span.Window.FromNs - dg.t.RecordingWindow().FromNs,
		"dur_ns":       span.Window.DurNs(),
		"busy_pct":     probable,
		"busy_min_pct": low,
		"busy_max_pct": high,
		"bound":        boundText(span.Bound),
		"queue_p50":    span.DepthP50,
		"queue_max":    span.DepthMax,
	}
	if d.IsLimited() {
		values["busy_pct"] = nil
	}
	if !span.Time.IsRecorded() {
		for _, key := range []string{"busy_pct", "busy_min_pct", "busy_max_pct", "queue_p50", "queue_max"} {
			values[key] = nil
		}
	}
	return report.JoinValues(values, dg.ownerValues(d))
}

func (dg *deviceGaps) sliceTable() report.Table {
	table := report.Table{
		Name: "slices", Title: "the queue of the GPU over time", Columns: sliceColumns, Secondary: true,
		HideFirst: []string{"pid", "device", "dur_ns"},
	}
	for _, d := range dg.idle.Devices {
		for _, span := range d.Slices() {
			table.Add(report.JoinValues(dg.spanValues(d, &span), report.Values{
				"delay_p50_ns": span.StartDelay.Quantile(0.5), "delay_p95_ns": span.StartDelay.Quantile(0.95),
			}))
		}
	}
	return table
}

func (dg *deviceGaps) phaseTable() report.Table {
	table := report.Table{
		Name: "phases", Title: "phases bound by CPU or GPU", Columns: phaseColumns, Secondary: true,
		HideFirst: []string{"pid", "device"},
	}
	for _, d := range dg.idle.Devices {
		for _, span := range d.Phases() {
			table.Add(dg.spanValues(d, &span))
		}
	}
	return table
}
