package objects

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/objects"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// usedClasses are the classes of calls that create and destroy objects. The report does without any of
// them.
var usedClasses = []string{format.RecordGraph, format.RecordStream, format.RecordModule, format.RecordMemory}

// factColumns are the facts of the report.
var factColumns = []report.Column{
	{
		Key: "result", Title: "result", Unit: report.UnitText,
		About: "kinds of objects whose number grows, and the call site of the fastest growth; absent if none grows",
	},
}

// siteColumns are the columns of Scan.siteTable. It adds a column with the name of the group.
var siteColumns = []report.Column{
	{
		Key: "verdict", Title: "VERDICT", Unit: report.UnitText,
		About: "classification of the row. Growing: the floor of the number of live objects rises until the end. " +
			"The floor is the lowest number between two of 20 checkpoints after a warm-up of 10%. The rise must be " +
			"steady (tau >= 0.8, at least 5 rises), still present in the last quarter, and its second half at least " +
			"half as steep as its first. It must be at least 10 objects (5 contexts) and 1% of the live ones, per " +
			"window or per minute if the window is shorter. It must exceed chance, and twice what lost calls would " +
			"explain. Balanced: no object is live, or 90% ended and the rest is young. Retained: all other live " +
			"objects",
	},
	{Key: "kind", Title: "KIND", Unit: report.UnitText, About: "kind of the objects"},
	{
		Key: "live", Title: "LIVE", Unit: report.UnitCount,
		About: "objects created in the window and not destroyed at its end, or not destroyed by the program when its " +
			"process or last CUDA context ended",
	},
	{Key: "created", Title: "MADE", Unit: report.UnitCount, About: "objects created in the window"},
	{
		Key: "destroyed", Title: "DESTROYED", Unit: report.UnitCount,
		About: "objects of MADE that a call destroyed, including calls that must have happened but were not recorded",
	},
	{
		Key: "with_context", Title: "", Unit: report.UnitCount,
		About: "objects of MADE that ended with their context, while the process continued",
	},
	{Key: "peak", Title: "PEAK", Unit: report.UnitCount, About: "most live objects at any time in the window"},
	{
		Key: "growth_per_hour", Title: "GROWTH/h", Unit: report.UnitCount,
		About: "Theil-Sen slope of the lowest number of live objects between checkpoints, per hour, from the " +
			"checkpoint on at which the rise began. Absent unless the verdict is growing",
	},
	{
		Key: "age_median_ns", Title: "AGE(med)", Unit: report.UnitNs,
		About: "median age of the live objects at the end of the window; absent if no object is live",
	},
	{
		Key: "tau", Title: "", Unit: report.UnitRatio,
		About: "Mann-Kendall tau of the lowest number of live objects between checkpoints: 1 if it only rises, -1 if " +
			"it only falls",
	},
	{
		Key: "confidence", Title: "", Unit: report.UnitText,
		About: "confidence in the verdict: high, medium or low; see confidence_reasons",
	},
	{
		Key: "confidence_reasons", Title: "", Unit: report.UnitText,
		About: "reasons that lower the confidence: lost calls, unknown handles, older objects, a short window",
	},
}

// floorColumn draws the floors over time, on which the verdict is based.
var floorColumn = report.Column{
	Key: "floor_course", Title: "OVER TIME", Unit: report.UnitSeries,
	About: "lowest number of live objects between checkpoints after the warm-up, over time. A leak rises to the " +
		"end, a full pool levels off. Absent if no object stayed live",
}

// siteTable returns a table with one row per finding. allStacks prints the stacks of balanced rows, too.
func (s *Scan) siteTable(findings []Finding, q *report.Quality, allStacks bool) report.Table {
	label := report.Column{
		Key: s.Grouping.By, Title: group.ColumnTitle(s.Grouping.By), Unit: report.UnitText,
		About: "call site that created the objects, or the group of --group-by",
	}
	table := report.Table{
		Name:      "sites",
		Title:     "objects by kind and call site",
		Columns:   append(slices.Clone(siteColumns), floorColumn, label),
		HideFirst: []string{"age_median_ns", floorColumn.Key, "peak"},
		Keys:      []string{"kind", s.Grouping.By},
		Verdicts:  verdictNames(),
	}
	for i := range findings {
		f := &findings[i]
		level, reasons := s.Confidence(f, q)
		var age, growth any
		if f.live > 0 {
			age = f.medianAge
		}
		if f.Verdict == VerdictGrowing {
			growth = units.RoundInt(f.PerHour)
		}
		row := table.Add(report.Values{
			"verdict":            f.Verdict.String(),
			"kind":               f.kind.String(),
			"live":               f.live,
			"created":            f.created,
			"destroyed":          f.destroyed,
			"with_context":       f.withContext,
			"peak":               f.peak,
			"growth_per_hour":    growth,
			"age_median_ns":      age,
			"tau":                f.trend.Tau,
			"confidence":         level,
			"confidence_reasons": reasons,
			floorColumn.Key:      s.floorSeries(f.siteStats),
			s.Grouping.By:        f.Label,
		})
		row.Evidence = f.Evidence() + "; " + report.ConfidenceText(level, reasons)
		row.Brief = !allStacks && f.Verdict != VerdictGrowing
		row.StackID = f.StackID()
	}
	return table
}

// floorSeries returns the floors of a site over time, summed over its processes, as an []int64. It
// returns nil if all floors are 0.
func (s *Scan) floorSeries(g *siteStats) any {
	var sum []int64
	for i := range g.trackers {
		for step, floor := range s.floorsUntilExit(&g.trackers[i]) {
			if sum == nil {
				sum = make([]int64, stats.CheckpointCount)
			}
			sum[min(step, stats.CheckpointCount-1)] += floor
		}
	}
	if sum == nil || slices.Max(sum) == 0 {
		return nil
	}
	return sum
}

// kindColumns are the columns of Scan.kindTable.
var kindColumns = []report.Column{
	{Key: "verdict", Title: "VERDICT", Unit: report.UnitText, About: "worst verdict of the call sites"},
	{Key: "created", Title: "MADE", Unit: report.UnitCount, About: "objects created in the window"},
	{Key: "destroyed", Title: "DESTROYED", Unit: report.UnitCount, About: "objects of MADE that a call destroyed"},
	{
		Key: "with_context", Title: "WITH CONTEXT", Unit: report.UnitCount,
		About: "objects of MADE that ended with their context, while the process continued",
	},
	{Key: "live", Title: "LIVE", Unit: report.UnitCount, About: "objects of MADE that the program did not destroy"},
	{Key: "peak", Title: "PEAK", Unit: report.UnitCount, About: "most live objects at any time in the window"},
	{
		Key: "growth_per_hour", Title: "GROWTH/h", Unit: report.UnitCount,
		About: "sum of the growth of the call sites with verdict growing",
	},
	{
		Key: "object_bytes", Title: "EACH", Unit: report.UnitBytes,
		About: "estimated device memory per object: slope of NVML's memory of the process without recorded " +
			"allocations, over the number of live objects. It assumes that nothing else grows with them. Absent with " +
			"fewer than 12 samples, or with an error of more than half of the estimate",
	},
	{
		Key: "object_error_bytes", Title: "±", Unit: report.UnitBytes,
		About: "error of EACH, the largest of three numbers: two standard errors by Newey and West, half of the " +
			"difference between the halves of the recording, and what 2 MiB change",
	},
	{
		Key: "live_bytes", Title: "", Unit: report.UnitBytes,
		About: "estimated device memory of LIVE: EACH times LIVE",
	},
	{
		Key:   "older",
		Title: "OLDER",
		Unit:  report.UnitCount,
		About: "destroyed objects that no recorded call created: they are older than the recording, or their " +
			"creation was lost. They are in no other column",
	},
	{
		Key: "unknown", Title: "UNKNOWN", Unit: report.UnitCount,
		About: "created objects whose handle is not in the recording, because the call is open, abandoned or " +
			"unreadable. They are in no other column",
	},
	{Key: "kind", Title: "KIND", Unit: report.UnitText, About: "kind of the objects"},
}

// kindTable returns a table with one row per kind with recorded calls.
func (s *Scan) kindTable(findings []Finding, costs map[objects.Kind]memory.ObjectCost) report.Table {
	table := report.Table{
		Name:      "kinds",
		Title:     "objects by kind",
		Columns:   slices.Clone(kindColumns),
		HideFirst: []string{"with_context", "older", "unknown", "object_error_bytes"},
		Keys:      []string{"kind"},
		Verdicts:  verdictNames(),
	}
	for i, k := range s.kinds {
		counts := &s.Counts[i]
		if k.created+counts.Older+counts.Unknown == 0 {
			continue
		}
		var growth float64
		worst := VerdictBalanced
		for j := range findings {
			if f := &findings[j]; f.kind == objects.Kind(i) {
				worst = min(worst, f.Verdict)
				if f.Verdict == VerdictGrowing {
					growth += f.PerHour
				}
			}
		}
		values := report.Values{
			"kind":            objects.Kind(i).String(),
			"created":         k.created,
			"destroyed":       k.destroyed,
			"with_context":    k.withContext,
			"live":            k.live,
			"peak":            k.peak,
			"growth_per_hour": units.RoundInt(growth),
			"verdict":         worst.String(),
			"older":           counts.Older,
			"unknown":         counts.Unknown,
		}
		cost, known := costs[objects.Kind(i)]
		row := table.Add(report.JoinValues(values, costValues(&cost, known, k.live)))
		if known {
			row.Evidence = cost.String()
		}
	}
	if len(costs) == 0 {
		report.HideTitle(table.Columns, "object_bytes")
		report.HideTitle(table.Columns, "object_error_bytes")
	}
	return table
}

// costValues returns the cells of an estimate. They are nil if it is not known.
func costValues(cost *memory.ObjectCost, known bool, live int64) report.Values {
	if !known {
		return report.Values{"object_bytes": nil, "object_error_bytes": nil, "live_bytes": nil}
	}
	return report.Values{
		"object_bytes":       units.RoundInt(cost.Bytes),
		"object_error_bytes": units.RoundInt(cost.Error),
		"live_bytes":         units.RoundInt(cost.Bytes * float64(live)),
	}
}

// facts returns the growing kinds as one sentence.
func (s *Scan) facts(findings []Finding) []report.Fact {
	var parts []string
	for kind := range objects.NumKinds {
		if text := DescribeGrowth(findings, kind); text != "" {
			parts = append(parts, text)
		}
	}
	return report.NewFacts(factColumns, report.Values{"result": strings.Join(parts, "; ")})
}

// DescribeGrowth returns the growth of a kind, with the call site that grows fastest. It returns "" if
// no site grows.
func DescribeGrowth(findings []Finding, kind objects.Kind) string {
	var perHour float64
	var fastest *Finding
	sites := int64(0)
	for i := range findings {
		f := &findings[i]
		if f.kind != kind || f.Verdict != VerdictGrowing {
			continue
		}
		perHour += f.PerHour
		sites++
		if fastest == nil || f.PerHour > fastest.PerHour {
			fastest = f
		}
	}
	if fastest == nil {
		return ""
	}
	text := fmt.Sprintf(
		"%s grow by %s/h at %s",
		kind.Plural(),
		units.FormatCount(units.RoundInt(perHour)),
		fastest.Label,
	)
	if sites > 1 {
		text += " and " + units.CountWithNoun(sites-1, "other site")
	}
	return text
}

// totalColumns are the totals of the report.
var totalColumns = []report.Column{
	{Key: "created", Title: "made", Unit: report.UnitCount, About: "sum of MADE over all rows"},
	{Key: "live", Title: "live", Unit: report.UnitCount, About: "sum of LIVE over all rows"},
	{Key: "growing", Title: "growing", Unit: report.UnitCount, About: "rows with verdict growing"},
	{Key: "retained", Title: "retained", Unit: report.UnitCount, About: "rows with verdict retained"},
	{Key: "balanced", Title: "balanced", Unit: report.UnitCount, About: "rows with verdict balanced"},
	{Key: "older", Title: "older", Unit: report.UnitCount, About: "sum of OLDER over all kinds"},
	{Key: "unknown", Title: "identity unknown", Unit: report.UnitCount, About: "sum of UNKNOWN over all kinds"},
	{
		Key: "suppressed", Title: "suppressed", Unit: report.UnitCount,
		About: "objects live at the end that match --suppressions; all other numbers exclude them",
	},
}

// totals returns the sums over all findings.
func (s *Scan) totals(findings []Finding) []report.Fact {
	var created, live, older, unknown int64
	var verdicts [verdictCount]int64
	for i := range findings {
		created += findings[i].created
		live += findings[i].live
		verdicts[findings[i].Verdict]++
	}
	for _, c := range s.Counts {
		older += c.Older
		unknown += c.Unknown
	}
	return report.NewFacts(totalColumns, report.Values{
		"created":    created,
		"live":       live,
		"growing":    verdicts[VerdictGrowing],
		"retained":   verdicts[VerdictRetained],
		"balanced":   verdicts[VerdictBalanced],
		"older":      older,
		"unknown":    unknown,
		"suppressed": s.Grouping.Suppress.TotalHidden().Count,
	})
}
