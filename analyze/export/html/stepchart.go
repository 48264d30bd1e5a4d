package html

import (
	"cmp"
	"fmt"
	"slices"

	model "github.com/gpurec/gpurec/analyze/model/steps"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/steps"
	"github.com/gpurec/gpurec/analyze/units"
)

// stepsData are the steps of a process. Its lists have one entry for each shown step that is no outlier,
// in order of time.
type stepsData struct {
	Title    string         `json:"title"`
	MedianNs int64          `json:"median"`
	T        []chartSeconds `json:"t"`  // begin
	Ns       []int64        `json:"ns"` // duration
	Numbers  []int          `json:"n"`  // number in the process, from 1
	Outliers []outlierData  `json:"outliers"`
}

// outlierData is a step that takes much longer than the median.
type outlierData struct {
	T      chartSeconds `json:"t"`
	Ns     int64        `json:"ns"`
	Number int          `json:"n"`
	Cause  int32        `json:"c"`
	Detail int32        `json:"d"`
}

// Limits of all charts of steps together, and of the number of charts.
const (
	maxChartSteps     = 3000
	maxChartOutliers  = 512
	maxChartProcesses = 16
)

// runSteps runs the report steps, and keeps its steps for the charts.
func (b *pageBuilder) runSteps(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	r, list, err := steps.RunForChart(t, steps.Options{Options: opt})
	b.steps = list
	return r, err
}

// chartedSteps returns the processes with a chart of their steps.
func (b *pageBuilder) chartedSteps() []steps.ProcessSteps {
	return b.steps[:min(maxChartProcesses, len(b.steps))]
}

// newStepsData returns the charts of the steps of all processes.
func (b *pageBuilder) newStepsData(all *textTable) (list []stepsData) {
	processes := b.chartedSteps()
	for i := range processes {
		p := &processes[i]
		d := stepsData{Title: shortenText(b.t.PidLabel(p.Pid)), MedianNs: p.MedianNs, Outliers: []outlierData{}}
		outliers := longestOutliers(p, maxChartOutliers/len(processes))
		isOutlier := make(map[int]bool)
		for _, o := range outliers {
			s := &p.Steps[o.Step]
			isOutlier[o.Step] = true
			d.Outliers = append(d.Outliers, outlierData{
				secondsSinceStart(b.t, s.BeginNs), s.DurNs(), o.Step + 1, all.addText(o.Cause), all.addText(o.Detail),
			})
		}
		for _, k := range selectSteps(p.Steps, isOutlier, maxChartSteps/len(processes)) {
			s := &p.Steps[k]
			d.T, d.Ns = append(d.T, secondsSinceStart(b.t, s.BeginNs)), append(d.Ns, s.DurNs())
			d.Numbers = append(d.Numbers, k+1)
		}
		list = append(list, d)
	}
	return list
}

// longestOutliers returns at most a number of outliers, in order of time.
func longestOutliers(p *steps.ProcessSteps, most int) []steps.Outlier {
	list := slices.Clone(p.Outliers)
	slices.SortStableFunc(list, func(a, b steps.Outlier) int {
		return cmp.Compare(p.Steps[b.Step].DurNs(), p.Steps[a.Step].DurNs())
	})
	list = list[:min(most, len(list))]
	slices.SortFunc(list, func(a, b steps.Outlier) int { return cmp.Compare(a.Step, b.Step) })
	return list
}

// selectSteps returns the indices of complete steps that are not in without, in order of time. If there are
// more than most, it divides the time into parts and returns the shortest and the longest step of each.
func selectSteps(all []model.Step, without map[int]bool, most int) (list []int) {
	for i := range all {
		if !all[i].IsCut && !without[i] {
			list = append(list, i)
		}
	}
	if len(list) <= most {
		return list
	}
	fromNs, spanNs := all[list[0]].BeginNs, all[list[len(list)-1]].BeginNs+1-all[list[0]].BeginNs
	partOf := func(i int) int {
		return int(float64(all[i].BeginNs-fromNs) / float64(spanNs) * float64(most/2))
	}
	var selected []int
	for from := 0; from < len(list); {
		to, shortest, longest := from, list[from], list[from]
		for ; to < len(list) && partOf(list[to]) == partOf(list[from]); to++ {
			if all[list[to]].DurNs() < all[shortest].DurNs() {
				shortest = list[to]
			}
			if all[list[to]].DurNs() > all[longest].DurNs() {
				longest = list[to]
			}
		}
		selected = append(selected, min(shortest, longest))
		if shortest != longest {
			selected = append(selected, max(shortest, longest))
		}
		from = to
	}
	return selected
}

// newStepsNotes returns sentences about what the charts of steps lack.
func (b *pageBuilder) newStepsNotes() (list []string) {
	var isReduced, isTimed bool
	var omitted int64
	processes := b.chartedSteps()
	for i := range processes {
		p := &processes[i]
		marked := min(len(p.Outliers), maxChartOutliers/len(processes))
		isReduced = isReduced || p.Complete-int64(marked) > int64(maxChartSteps/len(processes))
		isTimed = isTimed || p.HasGPUTimes
		omitted += p.OmittedOutliers + int64(len(p.Outliers)-marked)
	}
	if len(processes) > 0 && len(b.t.Facts.Channels) > 0 && !isTimed {
		list = append(list, fmt.Sprintf("The recording has more than %s calls, so this section has no GPU times, and "+
			"a slow kernel is not named as a cause. gpurec analyze steps reads all calls.",
			units.FormatCount(query.PageTimedCalls)))
	}
	if isReduced {
		list = append(list, "There are too many steps to draw all: the chart shows the shortest and the longest step "+
			"of each part of the time, and the outliers.")
	}
	if omitted > 0 {
		list = append(list, fmt.Sprintf("%s more are not marked as such.", units.CountWithNoun(omitted, "outlier")))
	}
	if more := len(b.steps) - len(processes); more > 0 {
		list = append(list, fmt.Sprintf("%s more: see gpurec analyze steps.",
			units.CountWithNoun(int64(more), "process")))
	}
	return list
}
