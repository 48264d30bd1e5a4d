package hang

import (
	"time"

	"github.com/gpurec/gpurec/analyze/model/calls"
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
	// LongNs is the shortest duration of a long call or silence, ns. 0 means DefaultLongNs.
	LongNs int64
}

// DefaultLongNs is the default of Options.LongNs: one second.
const DefaultLongNs = int64(time.Second)

// Run is RunWith with DefaultLongNs.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return RunWith(t, Options{Options: opt})
}

// RunWith reports the state of processes and threads at the end of the window: whether they hang,
// in which call, and since when. It returns a *quality.ClassError if the recording lacks necessary
// classes of calls, and a *report.SortError for an unknown opt.Sort.
func RunWith(t *timeline.Timeline, opt Options) (*report.Report, error) {
	t = t.NewView()
	if err := quality.Check(t, "hang", Needs); err != nil {
		return nil, err
	}
	if opt.LongNs <= 0 {
		opt.LongNs = DefaultLongNs
	}
	counts, err := calls.CountReplayWhile(t, func() error { return nil }) // the quality block needs them
	if err != nil {
		return nil, err
	}
	s := NewScan(t, &opt)
	polls, err := s.readAll()
	if err != nil {
		return nil, err
	}
	verdicts, silent := s.Classify(polls), s.processesWithoutCalls()
	r := &report.Report{
		Command: "hang", Window: s.Window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes,
		Sentences: []string{"result", "advice", "look_at"},
	}
	if len(s.Processes)+len(silent) == 0 && t.Scan.Events > 0 {
		r.NoMatch = s.Seen.ExplainNoMatch(&opt.Filter)
	}
	long := s.longTable()
	r.Facts = s.facts(verdicts, silent, polls)
	r.Totals = s.totals(verdicts, len(silent), len(long.Rows))
	r.Tables = []report.Table{
		s.processTable(verdicts), s.threadTable(verdicts), s.launchTable(verdicts), long, polls.table(),
	}
	if identities := processes.NewTable(t, &opt.Filter); len(identities.Rows) > 0 {
		identities.Name, identities.Title = "identities", "identities of processes"
		r.Tables = append(r.Tables, identities)
	}
	for i := range r.Tables {
		table, sort := &r.Tables[i], ""
		if table.Name == "threads" {
			sort = opt.Sort
		}
		processes.AddRanks(t, table)
		if err := table.Arrange(sort, opt.Top); err != nil {
			return nil, err
		}
		frames.Fill(t, table, &opt.Options)
	}
	return r, nil
}

// readAll reads the calls, the details of calls that the report may show, and the poll counters.
func (s *Scan) readAll() (*pollCounts, error) {
	if err := s.read(); err != nil {
		return nil, err
	}
	s.RequestAll()
	if err := s.ReadDetails(); err != nil {
		return nil, err
	}
	return s.ReadPolls()
}
