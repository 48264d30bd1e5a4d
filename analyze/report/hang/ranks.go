package hang

import (
	"github.com/gpurec/gpurec/analyze/model/clocks"
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/model/rankstate"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/model/waitgraph"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
)

// RunJob is RunJobWithOptions with DefaultLongCallNs.
func RunJob(j *job.Job, opt query.Options) (*report.Report, error) {
	return RunJobWithOptions(j, Options{Options: opt})
}

// RunJobWithOptions reports which ranks of a job hang, and for which rank they wait, from all recordings of the
// job. It opens them one after the other, and reads their last row groups only. It returns errors of reading the
// recordings.
func RunJobWithOptions(j *job.Job, opt Options) (*report.Report, error) {
	if opt.LongNs <= 0 {
		opt.LongNs = DefaultLongCallNs
	}
	r := &report.Report{Command: "hang", Sentences: rankSentences, Quality: report.Quality{GPUTiming: "none"}}
	bounds, err := clocks.Read(j)
	if err != nil {
		return nil, err
	}
	reader := rankstate.NewReader(j, opt.Options, opt.LongNs, bounds.Offset)
	for i := range j.Paths {
		if err := addRecording(r, reader, j, i, &opt); err != nil {
			return nil, err
		}
	}
	s := reader.Finish()
	s.ClockProblem = bounds.Problem()
	r.Facts = rankFacts(s)
	r.Totals = rankTotals(s)
	r.Tables = rankTables(s)
	for i := range r.Tables {
		if err := r.Tables[i].SortAndCut("", opt.Top); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// addRecording adds a recording to the state of the job and to the quality of the report.
func addRecording(r *report.Report, reader *rankstate.Reader, j *job.Job, i int, opt *Options) error {
	t, err := j.OpenEnd(i)
	if err != nil {
		return err
	}
	defer t.Rec.Close()
	w := opt.NarrowWindow(t.RecordingWindow())
	if r.Window == (query.Window{}) {
		r.Window = w
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
	return reader.Add(t, i)
}

// ReadRanks returns the states of the ranks of one recording. It returns nil if the recording has fewer
// than two ranks, or no communicator.
func ReadRanks(t *timeline.Timeline, opt *Options) (*rankstate.State, error) {
	s, err := readRankStates(t, opt)
	if err != nil || s == nil || len(s.Graph.Communicators) == 0 {
		return nil, err
	}
	return s, nil
}

// readRankStates is ReadRanks, also for ranks without a communicator.
func readRankStates(t *timeline.Timeline, opt *Options) (*rankstate.State, error) {
	j, err := job.Of(t)
	if err != nil || len(j.Members) < 2 {
		return nil, err
	}
	reader := rankstate.NewReader(j, opt.Options, opt.LongNs, new(clocks.Clocks).Offset) // one host
	if err := reader.Add(t, 0); err != nil {
		return nil, err
	}
	return reader.Finish(), nil
}

// DescribeFault returns what hangs, why the culprits of a fault are the cause, and the confidence with its
// reasons.
func DescribeFault(s *rankstate.State, f *waitgraph.Fault) (what, why, confidence string, reasons []string) {
	confidence, reasons = rankConfidence(s, f)
	what = hangText(s, f)
	if reason := reasonText(s, f); reason != "" {
		what += "; " + reason
	}
	return what, faultText(s, f), confidence, reasons
}

// addRanks adds the verdict on the ranks of one recording that has several.
func addRanks(r *report.Report, t *timeline.Timeline, opt *Options) error {
	s, err := ReadRanks(t, opt)
	if err != nil || s == nil {
		return err
	}
	r.Facts = append(rankFacts(s), r.Facts...)
	r.Sentences = append(r.Sentences, rankSentences...)
	r.Totals = append(r.Totals, rankTotals(s)...)
	r.Tables = append(rankTables(s), r.Tables...)
	return nil
}
