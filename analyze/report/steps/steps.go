package steps

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	model "github.com/gpurec/gpurec/analyze/model/steps"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Options are options of RunWithOptions.
type Options struct {
	query.Options
	// Marker, if not "", is a part of the name of kernels or call sites. A step begins at the first such
	// launch after others.
	Marker string
}

// Run is RunWithOptions without a marker.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return RunWithOptions(t, Options{Options: opt})
}

// RunWithOptions reports the steps of each process, the outliers and their causes, and the phases of
// a step. It returns a *quality.MissingClassError if the recording lacks necessary classes of calls,
// and a *report.SortError for an unknown opt.Sort.
func RunWithOptions(t *timeline.Timeline, opt Options) (*report.Report, error) {
	r, _, err := RunForChart(t, opt)
	return r, err
}

// RunForChart is RunWithOptions. It also returns the steps of each process with steps, for a chart.
func RunForChart(t *timeline.Timeline, opt Options) (*report.Report, []ProcessSteps, error) {
	t = t.NewView()
	if err := quality.CheckClasses(t, "steps", NeededCallClasses); err != nil {
		return nil, nil, err
	}
	reader := model.NewReader(t, &opt.Filter)
	var sc *scan
	var counts *livemem.ReplayCounts
	err := timeline.RunParallel(func() (err error) {
		// The scan reads the row groups of memory calls too, so it follows the replay.
		if counts, err = calls.CountReplayWhile(t, func() error { return nil }); err != nil {
			return err
		}
		sc, err = newScan(reader, model.Options{Marker: opt.Marker})
		return err
	}, func() error { // addGPUTimes needs it
		_, err := activity.OfPart(t, reader.Window, opt.MaxTimedCalls)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if err := sc.addGPUTimes(&opt.Filter, opt.MaxTimedCalls); err != nil {
		return nil, nil, err
	}
	if err := sc.addHostTime(); err != nil {
		return nil, nil, err
	}
	sc.explainOutliers()
	r, err := sc.newReport(&opt, quality.OfRecording(t, counts))
	return r, sc.processSteps(), err
}

// newReport returns the report of a complete scan.
func (sc *scan) newReport(opt *Options, q report.Quality) (*report.Report, error) {
	r := &report.Report{
		Command:   "steps",
		Window:    sc.reader.Window,
		Quality:   q,
		Notes:     sc.t.Facts.Notes,
		Sentences: []string{"result"},
	}
	if len(sc.processes) == 0 && len(sc.reader.Seen.Pids) > 0 {
		r.NoMatch = sc.reader.Seen.ExplainNoMatch(&opt.Filter)
	}
	r.Facts, r.Totals = sc.facts(), sc.totals()
	tables := []report.Table{sc.processTable(), sc.outlierTable(), sc.phaseTable(), sc.slowTable()}
	if err := tables[1].SortAndCut(opt.Sort, cmp.Or(opt.Top, defaultOutliers)); err != nil {
		return nil, err
	}
	for _, i := range []int{0, 2, 3} {
		if err := tables[i].SortAndCut("", cmp.Or(opt.Top, defaultRows)); err != nil {
			return nil, err
		}
	}
	if hosttime.HasRows(sc.t) {
		host := sc.hostTable()
		if err := host.SortAndCut("", cmp.Or(opt.Top, defaultRows)); err != nil {
			return nil, err
		}
		tables = slices.Insert(tables, 2, host)
	}
	for i := range tables {
		processes.AddRankColumn(sc.t, &tables[i])
	}
	r.Tables = tables
	return r, nil
}

// Maximum numbers of rows without --top.
const (
	defaultOutliers = 50
	defaultRows     = 100
)
