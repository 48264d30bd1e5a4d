package hang

import (
	"time"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	processespkg "github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Options shape the report on hangs.
type Options struct {
	query.Options
	// LongNs is from when on a call, or a silence, is long, ns; 0 is DefaultLongNs.
	LongNs int64
}

// DefaultLongNs is what HangOptions.LongNs is if it is not set.
const DefaultLongNs = int64(time.Second)

// Run is RunWith without options of its own.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return RunWith(t, Options{Options: opt})
}

// RunWith reports what processes and threads were doing at the end of the window: whether they hang, in what, and what led to it. It
// returns a *SortError for a column that there is not.
func RunWith(t *timeline.Timeline, opt Options) (*report.Report, error) {
	t = t.View()
	if err := quality.Needs(t, "hang"); err != nil {
		return nil, err
	}
	if opt.LongNs <= 0 {
		opt.LongNs = DefaultLongNs
	}
	counts, err := calls.CountsWhile(t, func() error { return nil }) // for the quality block
	if err != nil {
		return nil, err
	}
	s := NewScan(t, &opt)
	if err := s.read(); err != nil {
		return nil, err
	}
	s.WantAll()
	if err := s.ReadDetails(); err != nil {
		return nil, err
	}
	polls, err := s.ReadPolls()
	if err != nil {
		return nil, err
	}
	states := s.Judge(polls)
	r := &report.Report{Command: "hang", Window: s.Window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes, Sentences: []string{"result", "advice", "look_at"}}
	silent := s.withoutCalls()
	if len(s.Processes)+len(silent) == 0 && t.Scan.Events > 0 {
		r.NoMatch = s.Seen.Explain(&opt.Filter)
	}
	long := s.longTable()
	result, advice := s.silence(silent, polls)
	if len(states) > 0 {
		result, advice = s.sentence(states), ""
	}
	r.Facts = report.Fill(factColumns, result, advice, lookAt(t, states), s.EndNs-t.Recording().FromNs, s.pidLabels(silent))
	r.Totals = s.totals(states, len(silent), len(long.Rows))
	processes, threads := s.processTable(states), s.threadTable(states)
	launches := s.launchTable(states)
	identities := processespkg.NewTable(t, &opt.Filter)
	identities.Name, identities.Title = "identities", "identities of processes"
	r.Tables = []report.Table{processes, threads, launches, long, polls.table()}
	if len(identities.Rows) > 0 {
		r.Tables = append(r.Tables, identities)
	}
	for i := range r.Tables {
		table, sort := &r.Tables[i], ""
		if table.Name == "threads" {
			sort = opt.Sort
		}
		processespkg.AddRanks(t, table)
		if err := table.Arrange(sort, opt.Top); err != nil {
			return nil, err
		}
		frames.Fill(t, table, &opt.Options)
	}
	return r, nil
}
