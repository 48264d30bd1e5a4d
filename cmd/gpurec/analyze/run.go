package analyze

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	reportpkg "github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/cmd/gpurec/terminal"
	"github.com/gpurec/gpurec/format"
)

// open opens the recording that args name, or the newest one here, and calls use.
func (f *reportFlags) open(args []string, use func(path string, t *timeline.Timeline) error) error {
	if f.explain {
		return analyze.Explain(os.Stdout, f.sections())
	}
	if err := f.check(); err != nil {
		return err
	}
	return f.read(args, use)
}

// sections are the tables and facts that --explain prints.
func (f *reportFlags) sections() []reportpkg.Section {
	if r := analyze.Named(f.command); r != nil {
		return r.Sections
	}
	return f.values
}

// read is open with flags that were checked.
func (f *reportFlags) read(args []string, use func(path string, t *timeline.Timeline) error) error {
	var path string
	if len(args) > 0 {
		path = filepath.Clean(args[0])
	} else {
		newest, err := newestRecording(".")
		if err != nil {
			return err
		}
		message.Notef("reading %s", newest)
		path = newest
	}
	rec, err := format.Open(path)
	if err != nil {
		return message.ExplainOpen(path, err)
	}
	defer rec.Close()
	for _, d := range rec.Damaged {
		message.Warningf("left out: %v", d)
	}
	switch rec.Meta.Complete {
	case format.CompleteRecovered:
		message.Warningf("%s was cut off and recovered: its last seconds may be missing", path)
	case format.CompleteNo:
		message.Warningf("%s is not finished: what came after its last segment is missing", path)
	}
	t, err := timeline.Open(rec)
	if err != nil {
		return message.ExplainOpen(path, err)
	}
	if err := f.times(t.Recording()); err != nil {
		return err
	}
	t.Restrict(&f.opt.Filter, f.only)
	f.source.apply(t)
	return use(path, t)
}

// newestRecording returns the recording in dir that was written last.
func newestRecording(dir string) (string, error) {
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
			errors.New("no FILE given, and no gpurec-*.parquet in this folder"),
			"sudo gpurec record -p PID -d 10s",
		)
	}
	return newest, nil
}

// report prints a report and applies --fail-on.
func (f *reportFlags) report(
	args []string,
	make func(*timeline.Timeline, query.Options) (*reportpkg.Report, error),
) error {
	if f.against.path != "" && !f.explain {
		return f.compare(args, make)
	}
	return f.open(args, func(path string, t *timeline.Timeline) error {
		r, err := make(t, f.opt)
		if err != nil {
			return f.wrong(path, err)
		}
		return f.print(r)
	})
}

// wrong says which flag, or what about the recording, an error of a report is about.
func (f *reportFlags) wrong(path string, err error) error {
	var group *reportpkg.GroupError
	var sort *reportpkg.SortError
	var usage *message.UsageError
	var class *quality.ClassError
	var hinted *message.HintedError // about an output
	switch {
	case err == nil:
		return nil
	case errors.As(err, &class):
		return message.WithHint(
			fmt.Errorf("%s: %w", path, err),
			"record again without --record, or with --record "+strings.Join(class.Missing, ","),
		)
	case errors.As(err, &usage):
		return usage
	case errors.As(err, &hinted):
		return hinted
	case errors.As(err, &group):
		return message.Usagef(f.help(), "--group-by: %w", err)
	case errors.As(err, &sort):
		return message.Usagef(f.help(), "--sort: %w", err)
	}
	return message.ExplainOpen(path, err)
}

// print prints a report and applies --fail-on.
func (f *reportFlags) print(r *reportpkg.Report) error {
	f.render.Width, f.render.Color, f.render.ASCII = terminal.Inspect(os.Stdout, f.color)
	var text bytes.Buffer
	if err := render.Write(&text, r, f.render); err != nil {
		return err
	}
	failed, err := f.failed(r) // before printing: the condition may be wrong
	if err != nil {
		return err
	}
	if _, err := os.Stdout.Write(text.Bytes()); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	for _, n := range r.Notes {
		message.Notef("note of the recorder: %s", n)
	}
	if f.render.Format == "csv" {
		if r.Before != nil {
			message.Notef("quality before: %s", r.Before)
		}
		message.Notef("quality: %s", &r.Quality)
	}
	return f.finish(r, failed)
}

// failed applies --fail-on: it returns the part of the condition that holds, or "".
func (f *reportFlags) failed(r *reportpkg.Report) (because string, err error) {
	if f.failIf == nil {
		return "", nil
	}
	_, because, err = f.failIf.Holds(r)
	if err != nil {
		return "", message.Usagef(f.help(), "--fail-on: %w", err)
	}
	return because, nil
}

// finish tells about a filter that matched nothing and about --fail-on.
func (f *reportFlags) finish(r *reportpkg.Report, failed string) error {
	if r.NoMatch != nil {
		message.Warningf("%v", r.NoMatch)
	}
	if failed != "" {
		message.Notef("failed on %s", failed)
		return &message.ExitStatus{Code: message.ExitFailOn}
	}
	return nil
}

// exported ends a command that wrote a file: --fail-on sees the recording's quality.
func (f *reportFlags) exported(r *reportpkg.Report) error {
	failed, err := f.failed(r)
	if err != nil {
		return err
	}
	return f.finish(r, failed)
}
