package operations

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// factColumns are the facts of the report.
var factColumns = []report.Column{
	{
		Key:   "result",
		Title: "result",
		Unit:  report.UnitText,
		About: "shares of the operations whose start is measured and bounded, and whose end is measured",
	},
}

func (s *scan) facts() []report.Fact {
	return report.NewFacts(factColumns, report.Values{"result": s.resultSentence()})
}

// totalColumns are the totals of the report.
var totalColumns = []report.Column{
	{Key: "channels", Title: "channels", Unit: report.UnitCount, About: "number of channels"},
	{Key: "paired_channels", Title: "with streams", Unit: report.UnitCount, About: "channels with a known stream"},
	{
		Key:    "operations",
		OldKey: "works",
		Title:  "operations",
		Unit:   report.UnitCount,
		About:  "recorded operations of channels with a known stream, in the window",
	},
	{
		Key:    "unpaired_operations",
		OldKey: "unpaired_works",
		Title:  "without a channel",
		Unit:   report.UnitCount,
		About:  "operations of streams without a channel, in the whole recording",
	},
	{Key: "slips", Title: "slips", Unit: report.UnitCount, About: "sum of the column SLIPS"},
	{Key: "conflicts", Title: "conflicts", Unit: report.UnitCount, About: "sum of the column CONFLICTS"},
}

func (s *scan) totals() []report.Fact {
	sum, paired, all, _ := s.sum()
	return report.NewFacts(totalColumns, report.Values{
		"channels":            all,
		"paired_channels":     paired,
		"operations":          sum.Operations,
		"unpaired_operations": s.activity.UnpairedOperations,
		"slips":               sum.Slips,
		"conflicts":           sum.Conflicts,
	})
}

// countColumns are the columns about operations and their times.
var countColumns = []report.Column{
	{
		Key:    "operations",
		OldKey: "works",
		Title:  "OPERATIONS",
		Unit:   report.UnitCount,
		About:  "kernels, graph launches, copies, fills and event records whose call starts in the window",
	},
	{
		Key:   "measured_pct",
		Title: "MEASURED",
		Unit:  report.UnitPercent,
		About: "share of OPERATIONS whose start a sample shows, with an uncertainty of RESIDUAL",
	},
	{
		Key:   "bounded_pct",
		Title: "BOUNDED",
		Unit:  report.UnitPercent,
		About: "share of OPERATIONS whose start lies between two known times",
	},
	{
		Key:   "estimated_pct",
		Title: "ESTIMATED",
		Unit:  report.UnitPercent,
		About: "share of OPERATIONS whose start is probable, because no wait or pause confirms their number",
	},
	{
		Key:   "unknown_pct",
		Title: "UNKNOWN",
		Unit:  report.UnitPercent,
		About: "share of OPERATIONS whose start is unknown",
	},
	{
		Key:   "ended_pct",
		Title: "ENDED",
		Unit:  report.UnitPercent,
		About: "share of OPERATIONS whose end is measured, because another operation waited for it",
	},
}

func countValues(n *activity.OperationCounts) report.Values {
	return report.Values{
		"operations":    n.Operations,
		"measured_pct":  units.Percent(n.Measured, n.Operations),
		"bounded_pct":   units.Percent(n.Bounded, n.Operations),
		"estimated_pct": units.Percent(n.Estimated, n.Operations),
		"unknown_pct":   units.Percent(n.Unknown, n.Operations),
		"ended_pct":     units.Percent(n.Ended, n.Operations),
	}
}

// channelColumns are the columns of scan.channelTable.
var channelColumns = slices.Concat(
	countColumns,
	busyColumns(
		"lower bound of the share of the window in which the channel ran operations",
		"upper bound of the same share. If all calls were recorded, both bounds use the "+
			"estimated durations, plus and minus two standard errors",
	),
	[]report.Column{
		{
			Key:   "residual_ns",
			Title: "RESIDUAL",
			Unit:  report.UnitNs,
			About: "uncertainty of measured starts: median width of the fit of the GPU's clock to the recording's",
		},
		{
			Key:    "extra_operations",
			OldKey: "extra_works",
			Title:  "EXTRA",
			Unit:   report.UnitCount,
			About: "operations without a recorded call: of the driver, lost, or launched while launches were not " +
				"recorded",
		},
		{
			Key:   "slips",
			Title: "SLIPS",
			Unit:  report.UnitCount,
			About: "times at which EXTRA rose from one confirmed number of an operation to the next; the operations " +
				"in between are bounded",
		},
		{
			Key:   "conflicts",
			Title: "CONFLICTS",
			Unit:  report.UnitCount,
			About: "times at which counter and calls disagreed; the operations before are unknown",
		},
		{
			Key:   "samples",
			Title: "SAMPLES",
			Unit:  report.UnitCount,
			About: "samples of the progress word in the whole recording",
		},
	},
	ownerColumns("number of the channel in the recording", "CUDA device of the channel's streams"),
	[]report.Column{{
		Key:   "stream",
		Title: "STREAMS",
		Unit:  report.UnitText,
		About: "streams whose operations the channel ran; empty if no stream fits",
	}},
)

// busyColumns returns the columns of the bounds of a busy time.
func busyColumns(minAbout, maxAbout string) []report.Column {
	return []report.Column{
		{Key: "busy_min_pct", Title: "BUSY MIN", Unit: report.UnitPercent, About: minAbout},
		{Key: "busy_max_pct", Title: "BUSY MAX", Unit: report.UnitPercent, About: maxAbout},
	}
}

// ownerColumns returns the columns of a channel and its owner.
func ownerColumns(channelAbout, deviceAbout string) []report.Column {
	return []report.Column{
		{Key: "channel", Title: "CHANNEL", Unit: report.UnitID, About: channelAbout},
		{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
		{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: deviceAbout},
	}
}

// channelTable returns a table with one row per channel.
func (s *scan) channelTable() report.Table {
	table := report.Table{
		Name: "channels", Columns: channelColumns, Keys: []string{"channel"},
		HideFirst: []string{"samples", "estimated_pct", "conflicts", "extra_operations"},
	}
	for i := range s.activity.Channels {
		c := &s.activity.Channels[i]
		if !s.passesChannel(c) || len(c.Streams) == 0 && c.Samples == 0 {
			continue
		}
		values := report.Values{
			"busy_min_pct":     nil,
			"busy_max_pct":     nil,
			"residual_ns":      nil,
			"extra_operations": nil,
			"slips":            nil,
			"conflicts":        nil,
			"samples":          c.Samples,
			"channel":          int64(c.Number),
			"pid":              int64(c.Pid),
			"device":           s.t.DeviceLabel(c.Device),
			"stream":           s.streamLabels(c.Streams),
		}
		if len(c.Streams) > 0 {
			busy := c.BusyTime()
			values["busy_min_pct"], values["busy_max_pct"] = s.share(busy.LoNs), s.share(busy.HiNs)
			values["residual_ns"], values["extra_operations"] = c.ClockResidualNs, c.Extra
			values["slips"], values["conflicts"] = c.Slips, c.Conflicts
		}
		table.Add(report.JoinValues(countValues(&c.OperationCounts), values))
	}
	table.Sort("operations", "-channel")
	return table
}

// share returns ns as a share of the window, at most 100 percent.
func (s *scan) share(ns int64) float64 { return min(100, units.Percent(ns, s.window.DurNs())) }

// streamColumns are the columns of scan.streamTable.
var streamColumns = slices.Concat(
	countColumns,
	busyColumns(
		"lower bound of the share of the window in which operations of the stream ran, from samples alone",
		"upper bound of the same share",
	),
	ownerColumns("channel of the stream; copies run on other channels", "CUDA device of the stream"),
	[]report.Column{{
		Key:   "stream",
		Title: "STREAM",
		Unit:  report.UnitText,
		About: "handle of the stream. Streams with the same handle have a row each",
	}},
)

// streamTable returns a table with one row per stream that has operations with a channel.
func (s *scan) streamTable() report.Table {
	table := report.Table{
		Name:      "streams",
		Title:     "by stream",
		Columns:   streamColumns,
		Keys:      []string{"device", "stream"},
		Secondary: true,
		HideFirst: []string{"estimated_pct", "unknown_pct"},
	}
	for i := range s.activity.Streams {
		a := &s.activity.Streams[i]
		if a.Operations == 0 || !s.passesStream(&a.Stream) {
			continue
		}
		var channel any
		if a.Channel != 0 {
			channel = int64(a.Channel)
		}
		table.Add(report.JoinValues(countValues(&a.OperationCounts), report.Values{
			"busy_min_pct": s.share(a.Busy.LoNs), "busy_max_pct": s.share(a.Busy.HiNs), "channel": channel,
			"pid": int64(a.Pid), "device": s.t.DeviceLabel(a.Device), "stream": streamLabel(&a.Stream),
		}))
	}
	table.Sort("operations", "-pid", "device", "stream")
	return table
}

// durationColumns are the columns of scan.durationTable.
var durationColumns = []report.Column{
	{Key: "total_ns", Title: "TOTAL", Unit: report.UnitNs, About: "estimated time on the GPU: OPERATIONS times MEAN"},
	{Key: "total_error_ns", Title: "±", Unit: report.UnitNs, About: "standard error of TOTAL"},
	{
		Key:    "operations",
		OldKey: "works",
		Title:  "OPERATIONS",
		Unit:   report.UnitCount,
		About:  "operations whose call starts in the window",
	},
	{
		Key:   "mean_ns",
		Title: "MEAN",
		Unit:  report.UnitNs,
		About: "estimated mean duration in the whole recording, by least squares over the times between samples",
	},
	{Key: "error_ns", Title: "MEAN ±", Unit: report.UnitNs, About: "standard error of MEAN"},
	{
		Key:   "limited",
		Title: "LIMITED",
		Unit:  report.UnitText,
		About: "yes: no operation waits for these operations in the queue, so only bounds are known: MEAN plus and " +
			"minus twice its error",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "grid", Title: "GRID", Unit: report.UnitText, About: "grid of the kernel, or size of copies and memsets"},
	{Key: "kernel", Title: "OPERATION", Unit: report.UnitText, About: "kernel, graph or kind of operation"},
	{
		Key:   "site",
		Title: "SITE",
		Unit:  report.UnitText,
		About: "call site of kernels and graphs, whose durations may differ by call site; empty if call sites " +
			"share a row",
	},
}

// durationTable returns a table with one row per kernel, grid and call site, and per graph.
func (s *scan) durationTable() report.Table {
	table := report.Table{
		Name:      "durations",
		Title:     "estimated durations",
		Columns:   durationColumns,
		Keys:      []string{"kernel", "grid", "site"},
		Secondary: true,
		HideFirst: []string{"error_ns", "site"},
	}
	for i := range s.activity.Durations {
		d := &s.activity.Durations[i]
		if !d.IsEstimated || d.Operations == 0 || len(s.filter.Pids) > 0 && !slices.Contains(s.filter.Pids, d.Pid) {
			continue
		}
		total, totalError := d.TotalNs()
		name, grid := s.operationLabel(d)
		limited := ""
		if d.IsLimited {
			limited = "yes"
		}
		table.Add(report.Values{
			"total_ns": int64(
				total,
			),
			"total_error_ns": int64(totalError),
			"operations":     d.Operations,
			"mean_ns":        int64(d.MeanNs),
			"error_ns":       int64(d.ErrorNs),
			"pid":            int64(d.Pid),
			"grid":           grid,
			"kernel":         name,
			"limited":        limited,
			"site":           s.siteLabel(d.Label),
		})
	}
	table.Sort("total_ns", "-pid", "kernel", "grid", "site")
	return table
}
