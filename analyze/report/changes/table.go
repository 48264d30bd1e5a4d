package changes

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/changepoint"
	"github.com/gpurec/gpurec/analyze/model/change"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// factColumns are the facts of the report.
var factColumns = []report.Column{
	{
		Key: "result", Title: "result", Unit: report.UnitText,
		About: "the event with the largest change, or that there is none",
	},
}

// facts returns the most important event as a sentence.
func (sc *scan) facts() []report.Fact {
	var result any
	switch worst := sc.worstEvent(); {
	case worst != nil:
		result = sc.describeEvent(worst)
	case len(sc.findings) > 0:
		result = "no series moved to another level"
	}
	return report.NewFacts(factColumns, report.Values{"result": result})
}

// worstEvent returns the event with the most changed series, the first of several. It returns nil without one.
func (sc *scan) worstEvent() (worst *change.Event) {
	for _, e := range sc.events {
		if worst == nil || len(e.Changes) > len(worst.Changes) {
			worst = e
		}
	}
	return worst
}

// totalColumns are the totals of the report.
var totalColumns = []report.Column{
	{
		Key: "changes", Title: "changes", Unit: report.UnitCount,
		About: "rows of the table changes: series that moved to another level, without warm-up and patterns",
	},
	{
		Key:   "events",
		Title: "events",
		Unit:  report.UnitCount,
		About: "times of changes; changes within 3 s are one event",
	},
	{Key: "drifts", Title: "drifts", Unit: report.UnitCount, About: "series that moved slowly"},
	{Key: "outliers", Title: "outliers", Unit: report.UnitCount, About: "samples that are far from their neighbors"},
	{Key: "series", Title: "series", Unit: report.UnitCount, About: "series that were searched"},
	{
		Key: "too_short", Title: "too short", Unit: report.UnitCount,
		About: "series with too few samples to find a change",
	},
}

// totals returns the totals of the report.
func (sc *scan) totals() []report.Fact {
	var changes, drifts, outliers, short int64
	for _, e := range sc.events {
		changes += int64(len(e.Changes))
	}
	for _, f := range sc.findings {
		if f.Drift != nil {
			drifts++
		}
		if f.IsTooShort {
			short++
		}
		outliers += int64(f.Outliers.Count)
	}
	return report.NewFacts(totalColumns, report.Values{
		"changes": changes, "events": int64(len(sc.events)), "drifts": drifts, "outliers": outliers,
		"series": int64(len(sc.findings)), "too_short": short,
	})
}

// Columns that several tables have.
var (
	seriesColumn = report.Column{
		Key: "series", Title: "SERIES", Unit: report.UnitText, About: "short name of the values",
	}
	whereColumn = report.Column{
		Key: "where", Title: "WHERE", Unit: report.UnitText, About: "GPU or process of the values, or the machine",
	}
	metricColumn = report.Column{
		Key: "metric", Title: "", Unit: report.UnitText,
		About: "name of the values, which ends in their unit: a metric of format/FORMAT.md, or one of gpurec",
	}
	fromColumn = report.Column{
		Key:   "from",
		Title: "FROM",
		Unit:  report.UnitRatio,
		About: "median of the level before the change, in the unit of METRIC; for counters of errors, errors per " +
			"second",
	}
	toColumn = report.Column{
		Key: "to", Title: "TO", Unit: report.UnitRatio, About: "median of the level after the change",
	}
	shareColumn = report.Column{
		Key: "change_pct", Title: "CHANGE%", Unit: report.UnitPercent | report.UnitSigned,
		About: "TO minus FROM, in percent of FROM; absent if FROM is 0",
	}
)

// changeColumns are the columns of changeTable.
var changeColumns = []report.Column{
	{
		Key: "at_ns", Title: "AT", Unit: report.UnitNs,
		About: "first sample of the new level, from the start of the recording",
	},
	{
		Key: "within_ns", Title: "WITHIN", Unit: report.UnitNs,
		About: "time between the last sample of the old level and AT; the change was in it",
	},
	{
		Key: "event", Title: "EVENT", Unit: report.UnitID,
		About: "number of the event; changes within 3 s of another have the same number",
	},
	seriesColumn, fromColumn, toColumn, shareColumn, whereColumn,
	{Key: "also", Title: "ALSO", Unit: report.UnitText, About: "other changes of the event"},
	{
		Key: "confidence", Title: "CONFIDENCE", Unit: report.UnitText,
		About: "high, or medium or low for the reasons in WHY",
	},
	{Key: "why", Title: "WHY", Unit: report.UnitText, About: "reasons for a confidence below high"},
	{
		Key: "false_alarm_pct", Title: "", Unit: report.UnitRatio,
		About: "bound of the chance, in percent, that noise without a change has such a difference; at most 0.1",
	},
	{
		Key: "samples_before", Title: "", Unit: report.UnitCount,
		About: "samples of the old level, or parts of the time with samples",
	},
	{
		Key: "samples_after", Title: "", Unit: report.UnitCount,
		About: "samples of the new level, or parts of the time with samples",
	},
	metricColumn,
	{Key: "time_ns", Title: "", Unit: report.UnitTime, About: "time of AT"},
	{Key: "device", Title: "", Unit: report.UnitID, About: "NVML index of the GPU; absent for other values"},
	{Key: "pid", Title: "", Unit: report.UnitID, About: "id of the process; absent for other values"},
}

// changeTable returns a table with one row for each change.
func (sc *scan) changeTable() report.Table {
	table := report.Table{
		Name: "changes", Title: "changes of the level", Columns: slices.Clone(changeColumns), Keys: []string{},
		HideFirst: []string{"why", "within_ns", "also", "where"},
	}
	hasReasons := false
	for number, e := range sc.events {
		for i := range e.Changes {
			l := &e.Changes[i]
			confidence, reasons := Confidence(sc.t, l)
			hasReasons = hasReasons || len(reasons) > 0
			table.Add(report.JoinValues(sc.levelValues(l.Finding, l.Change.From, l.Change.To), report.Values{
				"at_ns":           l.Change.AfterNs - sc.startNs(),
				"within_ns":       l.Change.AfterNs - l.Change.BeforeNs,
				"event":           int64(number + 1),
				"also":            units.TextOrNil(alsoText(e, i)),
				"confidence":      confidence,
				"why":             units.TextOrNil(strings.Join(reasons, "; ")),
				"false_alarm_pct": 100 * math.Exp(max(l.Change.LogChance, -200)),
				"samples_before":  int64(l.Change.Before),
				"samples_after":   int64(l.Change.After),
				"time_ns":         l.Change.AfterNs,
				"device":          idOrNil(l.Device, l.Device >= 0),
				"pid":             idOrNil(l.Pid, l.Pid != 0),
			}))
		}
	}
	if !hasReasons {
		report.HideTitle(table.Columns, "why")
	}
	return table
}

func (sc *scan) startNs() int64 { return sc.t.RecordingWindow().FromNs }

// levelValues returns the values of the columns that several tables have.
func (sc *scan) levelValues(f *change.Finding, from, to float64) report.Values {
	var share any
	if pct := change.SharePct(&changepoint.Change{From: from, To: to}); !math.IsNaN(pct) {
		share = pct
	}
	return report.Values{
		"series": f.Title, "where": Where(sc.t, f.Subject), "metric": f.Metric, "from": valueOf(f.Series, from),
		"to": valueOf(f.Series, to), "change_pct": share,
	}
}

// alsoText lists the other changes of an event, as many as fit.
func alsoText(e *change.Event, but int) string {
	const most = 4
	var list []string
	for i := range e.Changes {
		if i != but && len(list) < most {
			list = append(list, DescribeBriefly(&e.Changes[i]))
		}
	}
	if n := len(e.Changes) - 1 - len(list); n > 0 {
		list = append(list, fmt.Sprintf("%d more", n))
	}
	return strings.Join(list, ", ")
}

func idOrNil(id int32, has bool) any {
	if !has {
		return nil
	}
	return int64(id)
}

// aroundColumns are the columns of aroundTable.
var aroundColumns = []report.Column{
	{
		Key: "event", Title: "EVENT", Unit: report.UnitID,
		About: "number of the event. What happened up to 3 s before or after its best located change is listed",
	},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "time, from the start of the recording"},
	{
		Key: "what", Title: "WHAT", Unit: report.UnitText,
		About: "clock reason: began or ended, by NVML. Xid. Links: NVLinks with errors. Allocation failed. Allocator " +
			"segments: memory that a caching allocator got from the driver. New kernels, stacks and threads: their " +
			"first call. Process: first launch or end. Lost calls",
	},
	{Key: "detail", Title: "DETAIL", Unit: report.UnitText, About: "what happened, in words"},
}

// aroundTable returns a table of what else happened at the time of each event.
func (sc *scan) aroundTable() report.Table {
	table := report.Table{
		Name: "around", Title: "what else happened then", Columns: aroundColumns, Secondary: true, Keys: []string{},
	}
	for number, e := range sc.events {
		for _, o := range sc.occurrencesOf(e) {
			row := table.Add(report.Values{
				"event": int64(number + 1), "at_ns": o.atNs - sc.startNs(), "what": o.kind, "detail": o.detail,
			})
			row.StackID, row.Brief = o.stack, true
		}
	}
	return table
}

// driftColumns are the columns of driftTable.
var driftColumns = []report.Column{
	seriesColumn,
	{
		Key: "from", Title: "FROM", Unit: report.UnitRatio,
		About: "median of the first third of the series, in the unit of METRIC",
	},
	{Key: "to", Title: "TO", Unit: report.UnitRatio, About: "median of the last third, without changes of the level"},
	shareColumn, whereColumn, metricColumn,
}

// driftTable returns a table with one row for each series that moved slowly.
func (sc *scan) driftTable() report.Table {
	table := report.Table{
		Name: "drifts", Title: "slow drifts", Columns: driftColumns, Secondary: true, Keys: []string{"series", "where"},
	}
	for _, f := range sc.findings {
		if f.Drift != nil {
			table.Add(sc.levelValues(f, f.Drift.From, f.Drift.To))
		}
	}
	return table
}

// outlierColumns are the columns of outlierTable.
var outlierColumns = []report.Column{
	{
		Key: "outliers", Title: "OUTLIERS", Unit: report.UnitCount,
		About: "samples that differ from the median of their 14 neighbors by more than six standard deviations, and " +
			"by more than is usual in a steady job (Hampel identifier)",
	},
	seriesColumn,
	{Key: "worst", Title: "WORST", Unit: report.UnitRatio, About: "value of the sample that differs most"},
	{Key: "usual", Title: "USUAL", Unit: report.UnitRatio, About: "median of its neighbors"},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "time of WORST, from the start of the recording"},
	{
		Key: "period_ns", Title: "EVERY", Unit: report.UnitNs,
		About: "time from one outlier to the next if most times are alike, as with checkpoints; else absent",
	},
	whereColumn, metricColumn,
}

// outlierTable returns a table with one row for each series with outliers.
func (sc *scan) outlierTable() report.Table {
	table := report.Table{
		Name:      "outliers",
		Title:     "outliers",
		Columns:   outlierColumns,
		Secondary: true,
		Keys:      []string{"series", "where"},
		HideFirst: []string{"where", "period_ns"},
	}
	for _, f := range sc.findings {
		o := &f.Outliers
		if o.Count == 0 {
			continue
		}
		table.Add(report.Values{
			"outliers": int64(o.Count), "series": f.Title, "where": Where(sc.t, f.Subject), "metric": f.Metric,
			"worst": valueOf(f.Series, o.Worst), "usual": valueOf(f.Series, o.Usual),
			"at_ns": o.WorstNs - sc.startNs(), "period_ns": nsOrNil(o.PeriodNs),
		})
	}
	return table
}

func nsOrNil(ns int64) any {
	if ns == 0 {
		return nil
	}
	return ns
}

// seriesColumns are the columns of seriesTable.
var seriesColumns = []report.Column{
	seriesColumn, whereColumn,
	{Key: "samples", Title: "SAMPLES", Unit: report.UnitCount, About: "number of values, while the job works"},
	{
		Key: "verdict", Title: "VERDICT", Unit: report.UnitText,
		About: "changed: it has rows in the table changes. Drifts: it moves slowly. Repeats: its changes are a " +
			"pattern. Too short: it has too few samples. Steady: none of these",
	},
	{
		Key: "noise", Title: "NOISE", Unit: report.UnitRatio,
		About: "standard deviation around the levels, in the unit of METRIC, by medians of differences; absent for " +
			"series without differences that matter",
	},
	{
		Key: "period_ns", Title: "EVERY", Unit: report.UnitNs,
		About: "length of a pattern that repeats, such as an epoch; absent without one",
	},
	{
		Key: "warm_up", Title: "WARM-UP", Unit: report.UnitRatio,
		About: "median of the first half of the warm-up if it differs from that of the time after it. Warm-up is the " +
			"first fifth of the job, at most 30 s, unless gpurec attached later. It is not searched",
	},
	{Key: "recurring", Title: "", Unit: report.UnitCount, About: "changes that are part of a pattern"},
	metricColumn,
}

// seriesTable returns a table with one row for each series.
func (sc *scan) seriesTable() report.Table {
	table := report.Table{
		Name: "series", Title: "series", Columns: seriesColumns, Secondary: true,
		Keys:      []string{"series", "where", "verdict"},
		HideFirst: []string{"noise", "period_ns", "where"},
	}
	for _, f := range sc.findings {
		var noise, warmUp any
		if f.WarmUp != nil {
			warmUp = valueOf(f.Series, f.WarmUp.From)
		}
		if f.Noise > 0 {
			noise = valueOf(f.Series, f.Noise)
		}
		table.Add(report.Values{
			"series": f.Title, "where": Where(sc.t, f.Subject), "samples": int64(len(f.AtNs)), "verdict": verdictOf(f),
			"noise": noise, "period_ns": nsOrNil(f.PeriodNs), "metric": f.Metric,
			"warm_up": warmUp, "recurring": int64(countKind(f, changepoint.Recurring)),
		})
	}
	return table
}

func countKind(f *change.Finding, kind changepoint.Kind) (n int) {
	for i := range f.Changes {
		if f.Changes[i].Kind == kind {
			n++
		}
	}
	return n
}

// verdictOf returns the verdict about a series.
func verdictOf(f *change.Finding) string {
	switch {
	case f.IsTooShort:
		return "too short"
	case countKind(f, changepoint.Step) > 0:
		return "changed"
	case f.Drift != nil:
		return "drifts"
	case countKind(f, changepoint.Recurring) > 0 || f.PeriodNs > 0:
		return "repeats"
	}
	return "steady"
}
