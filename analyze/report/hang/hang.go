package hang

import (
	"slices"
	"time"

	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Options configure the hang report.
type Options struct {
	query.Options
	// LongNs is the shortest duration of a long call or silence, ns. 0 means DefaultLongCallNs.
	LongNs int64
}

// DefaultLongCallNs is the default of Options.LongNs: one second.
const DefaultLongCallNs = int64(time.Second)

// Run is RunWithOptions with DefaultLongCallNs.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return RunWithOptions(t, Options{Options: opt})
}

// RunWithOptions reports the state of processes and threads at the end of the window: whether they
// hang, in which call, and since when. It returns a *quality.MissingClassError if the recording
// lacks necessary classes of calls, and a *report.SortError for an unknown opt.Sort.
func RunWithOptions(t *timeline.Timeline, opt Options) (*report.Report, error) {
	return report.RunSurvey(t, opt.Options, func(sv *survey.Survey, _ query.Options) (report.FinishFunc, error) {
		return CollectWithOptions(sv, opt)
	})
}

// Collect is CollectWithOptions with the defaults of Run.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	return CollectWithOptions(sv, Options{Options: opt})
}

// CollectWithOptions adds the observers of the report to a survey. Its errors are those of RunWithOptions.
func CollectWithOptions(sv *survey.Survey, opt Options) (report.FinishFunc, error) {
	t := sv.Timeline
	if err := quality.CheckClasses(t, "hang", NeededCallClasses); err != nil {
		return nil, err
	}
	if opt.LongNs <= 0 {
		opt.LongNs = DefaultLongCallNs
	}
	s := NewScan(t, &opt)
	sv.Add(survey.Observer{CallGroup: s.ReadSpan, MemoryGroup: s.ReadSpan})
	return func() (*report.Report, error) { return s.report(sv, &opt) }, nil
}

// report returns the report after the survey.
func (s *Scan) report(sv *survey.Survey, opt *Options) (*report.Report, error) {
	t := sv.Timeline
	polls, err := s.finishReading()
	if err != nil {
		return nil, err
	}
	verdicts, silent := s.Classify(polls), s.processesWithoutCalls()
	if err := s.addGPUOperations(verdicts); err != nil {
		return nil, err
	}
	withoutCalls, err := s.ClassifySilent(verdicts)
	if err != nil {
		return nil, err
	}
	s.addThreadStates(verdicts)
	groups := s.groupProcesses(verdicts, silent)
	r := &report.Report{
		Command: "hang", Window: s.Window, Quality: quality.OfRecording(t, sv.Counts), Notes: t.Facts.Notes,
		Sentences: []string{"result", "gpu_operation", "advice", "look_at"},
	}
	if len(s.Processes)+len(silent) == 0 && t.Scan.Events > 0 {
		r.NoMatch = s.Seen.ExplainNoMatch(&opt.Filter)
	}
	long := s.longCallTable()
	r.Facts = s.computeFacts(verdicts, silent, withoutCalls, polls, groups)
	r.Totals = s.computeTotals(verdicts, withoutCalls, len(silent), len(long.Rows))
	r.Tables = []report.Table{
		s.processTable(verdicts), s.threadTable(verdicts), s.launchTable(verdicts), long, polls.pollTable(),
	}
	if len(s.T.Facts.Channels) > 0 {
		r.Tables = slices.Insert(r.Tables, 1, s.operationTable(verdicts))
	}
	if len(groups) > 0 {
		r.Tables = slices.Insert(r.Tables, 1, s.stackTable(groups))
	}
	if identities := processes.NewProcessTable(t, &opt.Filter); len(identities.Rows) > 0 {
		identities.Name, identities.Title = "identities", "identities of processes"
		r.Tables = append(r.Tables, identities)
	}
	if err := addRanks(r, t, opt); err != nil {
		return nil, err
	}
	for i := range r.Tables {
		table, sort := &r.Tables[i], ""
		if table.Name == "threads" {
			sort = opt.Sort
		}
		processes.AddRankColumn(t, table)
		if err := table.SortAndCut(sort, opt.Top); err != nil {
			return nil, err
		}
		frames.FillRowStacks(t, table, &opt.Options)
	}
	return r, nil
}

// finishReading reads the details of calls that the report may show, and the poll counters, after all calls.
func (s *Scan) finishReading() (*pollCounts, error) {
	s.markUnrecordedLaunches()
	s.RequestAllDetails()
	if err := s.ReadDetails(); err != nil {
		return nil, err
	}
	return s.ReadPolls()
}
