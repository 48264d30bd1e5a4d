package analyze

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/byrank"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
)

// byRankHelp is the part of the help about several recordings.
const byRankHelp = `With several recordings of one job, or a folder with them, tables have a column of ranks.
Ranks with similar values are one row, and ranks that differ come first. --format json and
csv have all rows. --fail-on holds if it holds for any rank.`

// expandArguments returns the recordings that the arguments of a report on a job name: files, folders and patterns.
// Without arguments it returns none.
func expandArguments(args []string) ([]string, error) {
	paths, err := job.Expand(args)
	var none *job.NoRecordingError
	if errors.As(err, &none) {
		return nil, message.WithHint(err, "sudo gpurec record -p PID -d 10s -o rank0.parquet")
	}
	return paths, err
}

// openJob opens the job of several recordings. It warns about recordings without a rank.
func (f *reportFlags) openJob(paths []string) (*job.Job, error) {
	progress := newProgressPrinter()
	opt := job.Options{Jobs: f.only.Jobs}
	if progress != nil {
		opt.Progress = func(done, of int) { progress(fmt.Sprintf("%d of %d recordings", done, of)) }
	}
	j, err := job.Open(paths, opt)
	if err != nil {
		return nil, f.explainJobError(err)
	}
	if n := len(j.WithoutRank); n > 0 {
		message.Warningf("%s no process with a rank: %s", units.CountWithNoun(int64(n), "recording")+verbHave(n),
			j.Paths[j.WithoutRank[0]]+moreText(n-1))
	}
	return j, nil
}

// verbHave returns " has" or " have".
func verbHave(n int) string {
	if n == 1 {
		return " has"
	}
	return " have"
}

// moreText returns " and N more", or "".
func moreText(n int) string {
	if n < 1 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// explainJobError adds a hint to an error about the recordings of a job.
func (f *reportFlags) explainJobError(err error) error {
	var path *job.PathError
	var duplicate *job.DuplicateError
	var mixed *job.MixedError
	var none *job.NoRankError
	command := "gpurec analyze " + f.command
	switch {
	case errors.As(err, &path):
		return message.ExplainOpen(path.Path, path.Err)
	case errors.As(err, &duplicate):
		return message.WithHint(err, "give each recording once: "+command+" rank0.parquet rank1.parquet")
	case errors.As(err, &mixed):
		return message.WithHint(err, command+" --job "+mixed.Job+" …")
	case errors.As(err, &none):
		return message.WithHint(err, command+" "+none.Path)
	}
	return err
}

// runOnJob prints a report on several recordings of a job.
func (f *reportFlags) runOnJob(paths []string, run report.RunJobFunc) error {
	if err := f.checkFlags(); err != nil {
		return err
	}
	if err := f.checkSupported(report.InJob); err != nil {
		return err
	}
	j, err := f.openJob(paths)
	if err != nil {
		return err
	}
	r, err := run(j, f.opt)
	if err != nil {
		return f.explainJobError(err)
	}
	return f.printReport(r)
}

// runByRank prints one report on the ranks of several recordings, and applies --fail-on to each rank.
func (f *reportFlags) runByRank(paths []string, run report.RunFunc) error {
	if err := f.checkFlags(); err != nil {
		return err
	}
	j, err := f.openJob(paths)
	if err != nil {
		return err
	}
	fold, top, pids := f.render.Format != "json" && f.render.Format != "csv", f.opt.Top, f.opt.Pids
	if fold && top > 0 { // ranks must not differ because --top cut their tables at different rows
		f.opt.Top = max(minFoldedRows, 4*top)
	}
	parts, err := byrank.Read(j, byrank.Options{
		WholeRecordings: f.recordings == report.EachRecording,
		Selects:         func(m *job.Member) bool { return f.selectsMember(m, pids) },
		Prepare:         f.prepareRecording,
		Progress:        newProgressPrinter(),
	}, run)
	if err != nil {
		return f.explainPartError(paths[0], err)
	}
	if len(parts) == 0 {
		return message.Usagef(f.helpCommand(), "no rank passes the filter; the job has the ranks %s", byrank.Ranks(j))
	}
	return f.printParts(byrank.Merge(parts, fold, top), parts)
}

// minFoldedRows is the least number of rows of each rank that are compared.
const minFoldedRows = 200

// selectsMember reports whether --rank, --container and --pid select a member. openJob has applied --job.
func (f *reportFlags) selectsMember(m *job.Member, pids []int32) bool {
	return (len(f.only.Ranks) == 0 || slices.Contains(f.only.Ranks, int32(m.Rank))) &&
		(len(pids) == 0 || slices.Contains(pids, m.Pid)) &&
		(len(f.only.Containers) == 0 || slices.ContainsFunc(f.only.Containers, func(id string) bool {
			return id != "" && strings.HasPrefix(m.ContainerID, strings.ToLower(id))
		}))
}

// prepareRecording applies the flags that depend on a recording, and returns the options.
func (f *reportFlags) prepareRecording(t *timeline.Timeline) (query.Options, error) {
	if err := f.parseTimeWindow(t.RecordingWindow()); err != nil {
		return query.Options{}, err
	}
	f.source.addSourceLines(t)
	return f.opt, nil
}

// explainPartError explains an error of the report on one recording.
func (f *reportFlags) explainPartError(path string, err error) error {
	var of *job.PathError
	if errors.As(err, &of) {
		return f.explainJobError(err)
	}
	return f.explainError(path, err)
}

// printParts prints a report, and applies --fail-on to the report of each rank.
func (f *reportFlags) printParts(r *report.Report, parts []byrank.Part) error {
	failed := ""
	for i := range parts {
		because, err := f.evaluateFailOn(parts[i].Report)
		if err != nil {
			return err
		}
		if because != "" && failed == "" {
			failed = fmt.Sprintf("rank %s: %s", parts[i].Label(), because)
		}
	}
	condition := f.failIf
	f.failIf = nil // the merged report has no totals
	defer func() { f.failIf = condition }()
	if err := f.printReport(r); err != nil {
		return err
	}
	return f.finishReport(&report.Report{}, failed)
}
