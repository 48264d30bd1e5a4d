package steps

import (
	"fmt"
	"strings"

	model "github.com/gpurec/gpurec/analyze/model/steps"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// factColumns are the facts of the report.
var factColumns = []report.Column{
	{
		Key:   "result",
		Title: "result",
		Unit:  report.UnitText,
		About: "steps of the process with the most steps: number, median, 95th percentile, longest, " +
			"outliers, and the place where a step begins",
	},
}

func (sc *scan) facts() []report.Fact {
	return report.NewFacts(factColumns, report.Values{"result": sc.resultSentence()})
}

// resultSentence describes the process with the most steps.
func (sc *scan) resultSentence() string {
	var best *processScan
	others := int64(-1)
	for _, s := range sc.processes {
		if s.complete == 0 {
			continue
		}
		others++
		if best == nil || s.complete > best.complete {
			best = s
		}
	}
	switch {
	case len(sc.processes) == 0:
		return "no launches in the window"
	case best == nil:
		return sc.noSteps()
	}
	text := fmt.Sprintf("%s of %s (p95 %s, longest %s)", units.CountWithNoun(best.complete, "step"),
		units.FormatDuration(best.medianNs()), units.FormatDuration(best.quantileNs(0.95)),
		units.FormatDuration(best.quantileNs(1)))
	if n := best.outlierCount(); n > 0 {
		text += "; " + units.CountWithNoun(n, "outlier")
	}
	if begin := best.beginSite(); begin != "" {
		text += "; a step begins at " + begin
	}
	if others > 0 {
		text += fmt.Sprintf("; %s more", units.CountWithNoun(others, "process"))
	}
	return text
}

// noSteps says why no process has steps.
func (sc *scan) noSteps() string {
	var loop *model.Loop
	for _, s := range sc.processes {
		if l := s.Loop; l != nil && (loop == nil || l.Iterations > loop.Iterations) {
			loop = l
		}
	}
	const hint = "name the begin of a step with --marker"
	if loop == nil {
		return "no repeating sequence of launches found; " + hint
	}
	text := fmt.Sprintf("no steps: only a loop inside of a step repeats, %s of %.0f launches at %s; ",
		units.CountWithNoun(int64(loop.Iterations), "iteration"), loop.Launches, loop.Site)
	if loop.Reason == model.LoopUpdates {
		text += "all of them update weights"
	} else {
		text += "other launches interrupt it too rarely to find their period"
	}
	return text + "; record longer, or " + hint
}

// beginSite returns the phase in which most steps begin.
func (s *processScan) beginSite() string {
	best, most := int32(-1), int64(0)
	for phase, n := range s.begins {
		if n > most || n == most && phase < best {
			best, most = phase, n
		}
	}
	if best < 0 {
		return ""
	}
	return s.Phases()[best].Name
}

// totalColumns are the totals of the report.
var totalColumns = []report.Column{
	{Key: "processes", Title: "processes", Unit: report.UnitCount, About: "processes with steps"},
	{Key: "steps", Title: "steps", Unit: report.UnitCount, About: "complete steps of all processes"},
	{
		Key: "cut_steps", Title: "cut", Unit: report.UnitCount,
		About: "steps that are not complete: at the ends of the recording, or where launches were lost or not recorded",
	},
	{Key: "outliers", Title: "outliers", Unit: report.UnitCount, About: "sum of the column OUTLIERS"},
	{
		Key: "slow_works", Title: "slow works", Unit: report.UnitCount,
		About: "sum of the column SLOW; absent without GPU times",
	},
}

func (sc *scan) totals() []report.Fact {
	var found, steps, cut, outliers, slow int64
	for _, s := range sc.processes {
		if s.complete > 0 {
			found++
		}
		steps += s.complete
		cut += int64(len(s.Steps)) - s.complete
		outliers += s.outlierCount()
		for _, l := range s.gpu.slow {
			slow += int64(len(l.list))
		}
	}
	values := report.Values{
		"processes": found, "steps": steps, "cut_steps": cut, "outliers": outliers, "slow_works": slow,
	}
	if sc.activity == nil {
		values["slow_works"] = nil
	}
	return report.NewFacts(totalColumns, values)
}

// stepNumbers lists steps by their numbers, from 1.
func stepNumbers(steps []int) string {
	const most = 8
	var list []string
	for _, s := range steps[:min(most, len(steps))] {
		list = append(list, fmt.Sprint(s+1))
	}
	text := strings.Join(list, ", ")
	if more := len(steps) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// gridText returns a grid as text.
func gridText(grid [3]int32) string {
	if grid[0] < 0 {
		return "other"
	}
	return fmt.Sprintf("%dx%dx%d", grid[0], grid[1], grid[2])
}
