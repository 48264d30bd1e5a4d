package ranks

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/model/ranksteps"
	"github.com/gpurec/gpurec/analyze/model/straggler"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
)

// Run reports on the ranks of one recording.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	s, err := FindIn(t, opt)
	if err != nil {
		return nil, err
	}
	r := newReport(s, opt)
	addQuality(r, t, &opt)
	return r, cutTables(r, opt)
}

// RunJob reports on the ranks of all recordings of a job. It opens the recordings one after the other, and those of
// late ranks again. It returns errors of reading the recordings.
func RunJob(j *job.Job, opt query.Options) (*report.Report, error) {
	reader := ranksteps.NewReader(j, opt)
	quality := new(report.Report)
	for i := range j.Paths {
		if err := withRecording(j, i, func(t *timeline.Timeline) error {
			addQuality(quality, t, &opt)
			return reader.Add(t, i)
		}); err != nil {
			return nil, err
		}
	}
	s := find(reader.Finish())
	err := s.explain(func(i int, read func(t *timeline.Timeline) error) error { return withRecording(j, i, read) })
	if err != nil {
		return nil, err
	}
	r := newReport(s, opt)
	r.Window, r.Quality, r.Notes = quality.Window, quality.Quality, quality.Notes
	return r, cutTables(r, opt)
}

// stateOf is the key of a State in the memo of a Timeline. callers has the parts of the filter that select callers.
type stateOf struct {
	fromNs, toNs int64
	callers      string
}

// FindIn returns the state of the ranks of one recording. It computes the state of a filter once for all views of the
// Timeline. Callers must not change it.
func FindIn(t *timeline.Timeline, opt query.Options) (*State, error) {
	key := stateOf{opt.FromNs, opt.ToNs, fmt.Sprint(opt.Pids, opt.Tids, opt.Devices, opt.Streams, opt.Kernel)}
	return timeline.Remember(t, key, func() (*State, error) {
		return findIn(t.NewView(), query.Options{Filter: opt.Filter})
	})
}

func findIn(t *timeline.Timeline, opt query.Options) (*State, error) {
	j, err := job.Of(t)
	if err != nil {
		return nil, err
	}
	reader := ranksteps.NewReader(j, opt)
	if err := reader.Add(t, 0); err != nil {
		return nil, err
	}
	s := find(reader.Finish())
	return s, s.explain(func(_ int, read func(t *timeline.Timeline) error) error { return read(t) })
}

// State says which ranks of a job are late, and why.
type State struct {
	*ranksteps.Survey
	Found    *straggler.Result
	Verdicts []Verdict // the latest rank first
	Network  []ranksteps.SlowNetwork
	Steps    int     // compared steps of the rank with the most
	StepNs   float64 // median of that rank
}

// find compares the ranks of a job.
func find(survey *ranksteps.Survey) *State {
	s := &State{Survey: survey, Found: straggler.Find(survey.Series)}
	if len(s.Found.Verdicts) == 0 && survey.HostSeries != nil {
		if found := straggler.Find(survey.HostSeries); len(found.Verdicts) > 0 {
			s.Series, s.Found = survey.HostSeries, found
		}
	}
	for i := range s.Found.Figures {
		if f := &s.Found.Figures[i]; f.Steps > s.Steps {
			s.Steps, s.StepNs = f.Steps, f.StepNs
		}
	}
	for i := range s.Found.Verdicts {
		v := &s.Found.Verdicts[i]
		if s.isBehind(v) {
			continue
		}
		s.Verdicts = append(s.Verdicts, Verdict{Verdict: v, Other: s.otherThan(v)})
	}
	if len(s.Verdicts) == 0 {
		s.Network = slices.DeleteFunc(survey.FindSlowNetwork(s.StepNs), func(n ranksteps.SlowNetwork) bool {
			return !s.isFelt(&n)
		})
	}
	return s
}

// isFelt reports whether the steps became longer with a transfer, by some of what it costs. The ends of transfers are
// bounds, so other work on the GPU can make them look longer.
func (s *State) isFelt(n *ranksteps.SlowNetwork) bool {
	const leastFelt = 0.3 // of the cost
	if n.CostNs > s.StepNs {
		return false
	}
	if n.SinceNs == 0 {
		return true
	}
	_, before, after, ok := s.findRise()
	return ok && after-before >= leastFelt*n.CostNs
}

// isBehind reports whether a rank may only be late because it waits for a rank that is later. Waits in collectives are known on
// streams that run nothing else. Ranks with another communicator in common also wait for each other there.
func (s *State) isBehind(v *straggler.Verdict) bool {
	if v.Basis != straggler.BasisArrivals {
		return false
	}
	return slices.ContainsFunc(s.Verdicts, func(later Verdict) bool {
		return slices.ContainsFunc(s.Operations, func(o ranksteps.Operation) bool {
			return o.Communicator != s.Ranks[v.Series].Communicator && slices.Contains(o.Members, v.Series) &&
				slices.Contains(o.Members, later.Series)
		})
	})
}

// withRecording opens a recording while read runs.
func withRecording(j *job.Job, i int, read func(t *timeline.Timeline) error) error {
	t, err := j.Open(i)
	if err != nil {
		return err
	}
	defer t.Rec.Close()
	return read(t)
}

// addQuality adds a recording to the quality of the report.
func addQuality(r *report.Report, t *timeline.Timeline, opt *query.Options) {
	w := opt.NarrowWindow(t.RecordingWindow())
	if r.Window == (query.Window{}) {
		r.Window, r.Quality.GPUTiming = w, "none"
	}
	r.Window.FromNs, r.Window.ToNs = min(r.Window.FromNs, w.FromNs), max(r.Window.ToNs, w.ToNs)
	r.Notes = append(r.Notes, t.Facts.CommunicatorNotes...)
	q := &r.Quality
	q.Events += t.Scan.Events
	q.LostEvents += max(t.Rec.Meta.Totals().Lost, t.Facts.CountLostCalls(""))
	q.OpenCalls += t.Scan.Open
	q.DamagedSegments += int64(len(t.Rec.Damaged))
	if len(t.Progress) > 0 {
		q.GPUTiming = "channel"
	}
}

// newReport returns the report without its quality.
func newReport(s *State, opt query.Options) *report.Report {
	return &report.Report{
		Command: "ranks", Facts: s.facts(), Totals: s.totals(), Sentences: sentences,
		Tables: []report.Table{s.rankTable(), s.operationTable()},
	}
}

// cutTables sorts and cuts the tables.
func cutTables(r *report.Report, opt query.Options) error {
	for i := range r.Tables {
		if err := r.Tables[i].SortAndCut("", opt.Top); err != nil {
			return err
		}
	}
	return nil
}
