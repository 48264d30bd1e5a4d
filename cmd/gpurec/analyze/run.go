package analyze

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/cmd/gpurec/terminal"
	"github.com/gpurec/gpurec/format"
)

// openRecording checks the flags, opens the recording of args and calls use with its path. Without
// args it opens the newest recording in the current folder. With --explain it only prints
// explanations.
func (f *reportFlags) openRecording(args []string, use func(path string, t *timeline.Timeline) error) error {
	if f.explain {
		return analyze.ExplainSections(os.Stdout, f.values)
	}
	if err := f.checkFlags(); err != nil {
		return err
	}
	return f.readRecording(args, use)
}

// readRecording opens the recording of args and calls use with its path. The caller has checked the
// flags.
func (f *reportFlags) readRecording(args []string, use func(path string, t *timeline.Timeline) error) error {
	var path string
	if len(args) > 0 {
		path = filepath.Clean(args[0])
	} else {
		newest, err := findNewestRecording(".")
		if err != nil {
			return err
		}
		message.Notef("reading %s", newest)
		path = newest
	}
	rec, err := openRecordingFile(path)
	if err != nil {
		return err
	}
	defer rec.Close()
	t, err := timeline.Open(rec)
	if err != nil {
		return message.ExplainOpen(path, err)
	}
	collectEarlier(t)
	if err := f.parseTimeWindow(t.RecordingWindow()); err != nil {
		return err
	}
	t.RestrictProcesses(&f.opt.Filter, f.only)
	f.source.addSourceLines(t)
	return use(path, t)
}

// collectEarlier makes the garbage collector run more often if a recording has GPU times: their reports keep more
// in memory than others. The variable GOGC has precedence.
func collectEarlier(t *timeline.Timeline) {
	const percent = 50
	if len(t.Facts.Channels) > 0 && os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// openRecordingFile opens a recording, and warns about missing parts of it.
func openRecordingFile(path string) (*format.Recording, error) {
	rec, err := format.Open(path)
	if err != nil {
		return nil, message.ExplainOpen(path, err)
	}
	for _, d := range rec.Damaged {
		message.Warningf("skipped a damaged segment: %v", d)
	}
	switch rec.Meta.Complete {
	case format.CompleteRecovered:
		message.Warningf("%s was interrupted and recovered: its last seconds may be missing", path)
	case format.CompleteNo:
		message.Warningf("%s is not finished: calls after its last segment are missing", path)
	}
	return rec, nil
}

// findNewestRecording returns the path of the newest recording in dir by modification time. It
// returns an error if dir has no recording.
func findNewestRecording(dir string) (string, error) {
	var newest string
	var at time.Time
	for _, pattern := range []string{"gpurec-*.parquet", "gpurec-*.parquet" + format.SegmentSuffix} {
		names, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return "", err
		}
		for _, name := range names {
			if info, err := os.Stat(name); err == nil && (newest == "" || info.ModTime().After(at)) {
				newest, at = name, info.ModTime()
			}
		}
	}
	if newest == "" {
		return "", message.WithHint(
			errors.New("no recording: the command line has no FILE, and this folder has no gpurec-*.parquet"),
			"sudo gpurec record -p PID -d 10s",
		)
	}
	return newest, nil
}

// runReport opens the recording of args, computes a report with run, prints it and applies
// --fail-on. Several recordings are those of a job. If --before is set, it compares the report on two
// recordings.
func (f *reportFlags) runReport(args []string, run report.Runner) error {
	if f.recordings == report.WholeJob {
		paths, err := expandArguments(args)
		if err != nil {
			return err
		}
		if len(paths) > 1 && !f.explain {
			return f.runOnJob(paths, run.RunJob)
		}
		args = paths
	}
	if f.before.path != "" && !f.explain {
		return f.compareRecordings(args, run.Run)
	}
	if (f.recordings == report.EachRank || f.recordings == report.EachRecording) && !f.explain {
		paths, err := expandArguments(args)
		if err != nil {
			return err
		}
		if len(paths) > 1 {
			return f.runByRank(paths, run.Run)
		}
		args = paths
	}
	return f.openRecording(args, func(path string, t *timeline.Timeline) error {
		r, err := run.Run(t, f.opt)
		if err == nil {
			err = writeReportFiles(r)
		}
		if err != nil {
			return f.explainError(path, err)
		}
		return f.printReport(r)
	})
}

// writeReportFiles writes the files of a report, and prints a note about each.
func writeReportFiles(r *report.Report) error {
	for i := range r.Files {
		file := &r.Files[i]
		out := outputFlags{path: file.Path, force: file.MayExist, flag: file.Flag}
		written, err := out.writeFile("", "", file.WriteFunc)
		if err != nil {
			return err
		}
		message.Notef("%s -> %s", file.Content, written)
	}
	return nil
}

// explainError converts an error of a report to a usage error that names the flag, or adds a hint.
// It returns nil for nil.
func (f *reportFlags) explainError(path string, err error) error {
	var group *report.GroupError
	var sort *report.SortError
	var flag *report.FlagError
	var usage *message.UsageError
	var class *quality.MissingClassError
	var hinted *message.HintedError // an error about the output file
	switch {
	case err == nil:
		return nil
	case errors.As(err, &class):
		return message.WithHint(
			fmt.Errorf("%s: %w", path, err),
			"record again without --record, or with --record "+strings.Join(class.Missing, ","),
		)
	case errors.As(err, &flag):
		return message.Usagef(f.helpCommand(), "%w", flag.Err)
	case errors.As(err, &usage):
		return usage
	case errors.As(err, &hinted):
		return hinted
	case errors.As(err, &group):
		return message.Usagef(f.helpCommand(), "--group-by: %w", err)
	case errors.As(err, &sort):
		return message.Usagef(f.helpCommand(), "--sort: %w", err)
	}
	return message.ExplainOpen(path, err)
}

// printReport prints a report and its notes and applies --fail-on. It returns a *message.ExitStatus
// if the condition holds.
func (f *reportFlags) printReport(r *report.Report) error {
	f.render.Width, f.render.Color, f.render.ASCII = terminal.Inspect(os.Stdout, f.color)
	var text bytes.Buffer
	if err := render.WriteReport(&text, r, f.render); err != nil {
		return err
	}
	failed, err := f.evaluateFailOn(r) // before printing: --fail-on may be a usage error
	if err != nil {
		return err
	}
	if _, err := os.Stdout.Write(text.Bytes()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	for _, n := range r.Notes {
		message.Notef("recorder: %s", n)
	}
	if f.render.Format == "csv" {
		if r.Before != nil {
			message.Notef("quality before: %s", r.Before)
		}
		message.Notef("quality: %s", &r.Quality)
	}
	return f.finishReport(r, failed)
}

// evaluateFailOn evaluates --fail-on. It returns the part of the condition that holds, or "".
func (f *reportFlags) evaluateFailOn(r *report.Report) (because string, err error) {
	if f.failIf == nil {
		return "", nil
	}
	_, because, err = f.failIf.Holds(r)
	if err != nil {
		return "", message.Usagef(f.helpCommand(), "--fail-on: %w", err)
	}
	return because, nil
}

// finishReport warns about a filter that matched no row. It returns a *message.ExitStatus if
// failed, the part of --fail-on that holds, is not "".
func (f *reportFlags) finishReport(r *report.Report, failed string) error {
	if r.NoMatch != nil {
		message.Warningf("%v", r.NoMatch)
	}
	if failed != "" {
		message.Notef("failed on %s", failed)
		return &message.ExitStatus{Code: message.ExitFailOn}
	}
	return nil
}

// finishExport finishes an export: it applies --fail-on to the recording's quality.
func (f *reportFlags) finishExport(r *report.Report) error {
	failed, err := f.evaluateFailOn(r)
	if err != nil {
		return err
	}
	return f.finishReport(r, failed)
}
