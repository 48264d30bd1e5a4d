package waits

import (
	"cmp"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/format"
)

// Run reports the call sites where threads wait for the GPU, the duration of the waits, and the
// objects that they wait for. Queries (cuStreamQuery, cuEventQuery) are not waits. Run returns a
// *quality.MissingClassError if the recording lacks necessary classes of calls, and a
// *report.SortError for an unknown opt.Sort.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return report.RunSurvey(t, opt, Collect)
}

// Collect adds the observers of the report to a survey. Its errors are those of Run.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	t := sv.Timeline
	if err := quality.CheckClasses(t, "sync", NeededCallClasses); err != nil {
		return nil, err
	}
	sc := NewScan(sv.Reader, cmp.Or(opt.Top, maxLongestWaits))
	if len(t.Facts.Channels) > 0 {
		sc.gpu = &gpuWaits{maxCalls: opt.MaxTimedCalls, queues: make(map[waitQueue][]*gpuWait)}
	}
	spans := threadSpans{window: sc.Window, spans: make(map[origin.Thread]*threadSpan)}
	sv.Add(survey.Observer{
		Kinds: []string{format.KindSync}, Call: sc.AddWait,
		CallGroup: spans.addRowGroup, MemoryGroup: spans.addRowGroup,
	})
	return func() (*report.Report, error) {
		if sc.gpu == nil && len(t.Facts.Channels) > 0 { // the recording has grown by GPU times
			return Run(t, opt)
		}
		sc.setThreadSpans(&spans)
		if sc.gpu != nil {
			if err := sc.gpu.read(t, sc); err != nil {
				return nil, err
			}
		}
		return sc.report(sv, &opt)
	}, nil
}

// report returns the report after the survey.
func (sc *Scan) report(sv *survey.Survey, opt *query.Options) (*report.Report, error) {
	t := sv.Timeline
	r := &report.Report{
		Command: "sync",
		Window:  sc.Window,
		Quality: quality.OfRecording(t, sv.Counts),
		Notes:   t.Facts.Notes,
	}
	result := ""
	if len(sc.Groups) == 0 {
		result = "no waits in the window"
		if len(sc.Seen.Pids) > 0 {
			r.NoMatch = sc.Seen.ExplainNoMatch(&opt.Filter)
		}
	}
	r.Facts, r.Totals = report.NewFacts(factColumns, report.Values{"result": result}), sc.computeTotals()
	sc.addGPUFacts(r)
	table := sc.waitTable()
	if err := table.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	threads, longest := sc.threadTable(), sc.longestWaitTable()
	if err := threads.SortAndCut("", opt.Top); err != nil {
		return nil, err
	}
	frames.FillRowStacks(t, &longest, opt)
	r.Tables = []report.Table{table, threads, longest}
	return r, nil
}
