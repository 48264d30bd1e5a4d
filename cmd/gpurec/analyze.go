package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	reportpkg "github.com/gpurec/gpurec/analyze/report"
	grouppkg "github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/format"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// analyzeFlags are the flags of analyze and its subcommands as they were typed.
type analyzeFlags struct {
	command  string
	from, to string
	streams  []string
	minBytes string
	kernel   string
	failOn   string
	color    string
	explain  bool

	hideFrames []string
	source     sourceFlags

	suppressions string

	opt    query.Options
	only   timeline.ProcessFilter
	render render.Options

	failIf  *reportpkg.Condition
	against comparison // of diff
}

func newAnalyze() *cobra.Command {
	f := &analyzeFlags{command: "summary"}
	cmd := &cobra.Command{
		Use:   "analyze [FILE]",
		Short: "Answer questions from a recording",
		Long: `analyze answers questions from a recording, on any machine: no GPU, no root. Without
a subcommand it prints a summary. FILE may be the folder of an unfinished recording;
without FILE it takes the newest gpurec-*.parquet of the current folder.

--rank, --job and --container choose processes by what torchrun, MPI, Slurm or Kubernetes
gave them. The summary lists them under processes.

Results go to standard output, everything else to standard error. Exit status 3
means that a --fail-on condition held.`,
		Example: `  gpurec analyze run.parquet
  gpurec analyze leaks run.parquet
  gpurec analyze leaks --fail-on 'growing>0' run.parquet`,
		Args: cobra.MaximumNArgs(1),
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 1 && !strings.ContainsAny(args[0], `./\`) {
			if _, err := os.Stat(args[0]); err != nil {
				return unknownReport(cmd, args[0])
			}
		}
		return f.report(args, summary.Run)
	}
	f.addSummary(cmd.Flags())
	cmd.AddCommand(append(subcommands(), newDiff())...)
	return cmd
}

// subcommands are all reports and exports. diff has the flags of those that are printed.
func subcommands() []*cobra.Command {
	return []*cobra.Command{newSummary(), newRules(), newLeaks(), newMemory(), newFrag(), newOOM(), newStacks(), newErrors(), newHang(), newGPU(), newXid(), newAllocator(), newAPI(), newKernels(), newCopies(), newSync(), newGaps(), newReport(), newPprof(), newFolded(), newPerfetto(), newTorchSnapshot()}
}

// newSummary is what analyze does without a subcommand, by its own name.
func newSummary() *cobra.Command {
	f := &analyzeFlags{command: "summary"}
	cmd := &cobra.Command{
		Use:     "summary [FILE]",
		Short:   "Tell what a recording holds and what stands out in it",
		Long:    `summary is what analyze prints without a subcommand.`,
		Example: `  gpurec analyze summary --from 10s --to 20s run.parquet`,
		Args:    cobra.MaximumNArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return f.report(args, summary.Run) },
	}
	f.addSummary(cmd.Flags())
	return cmd
}

func (f *analyzeFlags) addSummary(flags *pflag.FlagSet) {
	f.addFilter(flags)
	f.addKernel(flags)
	f.addReport(flags)
	f.addSuppressions(flags)
}

// unknownReport is the error for a word that is neither a report nor a file.
func unknownReport(cmd *cobra.Command, word string) error {
	hint := cmd.CommandPath() + " --help"
	cmd.SuggestionsMinimumDistance = 2
	if names := cmd.SuggestionsFor(word); len(names) > 0 {
		hint = cmd.CommandPath() + " " + names[0]
	}
	return usagef(hint, "%s is neither a report nor a file", word)
}

func newLeaks() *cobra.Command {
	f := &analyzeFlags{command: "leaks"}
	cmd := &cobra.Command{
		Use:   "leaks [FILE]",
		Short: "Show which places allocate memory that is not freed, and what that is",
		Long: `leaks shows for every place that allocated GPU or pinned host memory what became of
it: growing (a leak), exit leak (never freed before the process ended), retained,
startup (allocated at the start and kept, as weights are) or churn (freed again).

--suppressions leaves out memory that is known to stay: a file as LeakSanitizer reads it,
with lines leak:PATTERN. A pattern is looked for in function, source file and module of all
frames of the stack; * is anything, ^ the beginning, $ the end, # begins a comment.`,
		Example: `  gpurec analyze leaks run.parquet
  gpurec analyze leaks --suppressions known.supp --fail-on 'growing>0' run.parquet
  gpurec analyze leaks --group-by function --top 5
  gpurec analyze leaks --rank 3 run.parquet
  gpurec analyze leaks --format json run.parquet | jq '.leaks[0]'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.report(args, leaks.Run) },
	}
	flags := cmd.Flags()
	f.addFilter(flags)
	f.addReport(flags)
	groups := grouppkg.Names()
	flags.StringVar(&f.opt.GroupBy, "group-by", groups[0], "one row per `WHAT`: "+strings.Join(groups, ", "))
	flags.StringVar(&f.opt.Sort, "sort", "", "sort by `COLUMN` (default: verdict, then live bytes)")
	f.addSuppressions(flags)
	f.addFrames(flags)
	flags.BoolVar(&f.opt.AllFrames, "all-frames", false, "fold nothing, show all frames, and the stacks of all rows")
	flags.BoolVar(&f.opt.AllStacks, "all-stacks", false, "show stacks of rows that are startup or churn too")
	_ = cmd.RegisterFlagCompletionFunc("group-by", cobra.FixedCompletions(groups, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

// addFilter adds the flags that all reports of calls have.
func (f *analyzeFlags) addFilter(flags *pflag.FlagSet) {
	f.addScope(flags)
	flags.Int32SliceVar(&f.opt.Tids, "tid", nil, "only thread `TID`")
	flags.StringSliceVar(&f.streams, "stream", nil, "only stream `HANDLE`")
	flags.StringVar(&f.minBytes, "min-bytes", "0", "leave out allocations and copies below `SIZE`")
}

// addScope adds the flags that all reports have.
func (f *analyzeFlags) addScope(flags *pflag.FlagSet) {
	flags.StringVar(&f.from, "from", "", "leave out what was before `TIME`: an offset such as 12s, or RFC 3339")
	flags.StringVar(&f.to, "to", "", "leave out what was after `TIME`")
	flags.Int32SliceVarP(&f.opt.Pids, "pid", "p", nil, "only process `PID`; may be given several times")
	flags.Int32SliceVar(&f.only.Ranks, "rank", nil, "only processes of rank `N` in their job; may be given several times")
	flags.StringSliceVar(&f.only.Jobs, "job", nil, "only processes of job `NAME`, or of the Slurm job of this number")
	flags.StringSliceVar(&f.only.Containers, "container", nil, "only processes in the container whose `ID` begins so")
	flags.Int32SliceVar(&f.opt.Devices, "device", nil, "only CUDA device `N`")
	flags.StringVar(&f.failOn, "fail-on", "", "exit with status 3 if `EXPR` holds, such as 'growing>0' or 'live_bytes>100MiB || lost_events>0'")
	flags.BoolVar(&f.explain, "explain", false, "print how each value is computed, and nothing else")
}

func (f *analyzeFlags) addSuppressions(flags *pflag.FlagSet) {
	flags.StringVar(&f.suppressions, "suppressions", "", "leave out memory that `FILE` names, in lines leak:PATTERN as LeakSanitizer has them")
}

// readSuppressions reads the file of --suppressions.
func (f *analyzeFlags) readSuppressions() error {
	if f.suppressions == "" {
		return nil
	}
	file, err := os.Open(f.suppressions)
	if err != nil {
		return usagef(f.help(), "--suppressions: %w", err)
	}
	defer file.Close()
	if f.opt.Suppressions, err = query.ParseSuppressions(f.suppressions, file); err != nil {
		return usagef(f.help(), "--suppressions: %w", err)
	}
	return nil
}

func (f *analyzeFlags) addKernel(flags *pflag.FlagSet) {
	flags.StringVar(&f.kernel, "kernel", "", "leave out launches of kernels that do not match `REGEX`")
}

// addReport adds the flags of reports that are printed.
func (f *analyzeFlags) addReport(flags *pflag.FlagSet) {
	flags.StringVar(&f.render.Format, "format", render.Formats()[0], "print as "+strings.Join(render.Formats(), ", "))
	flags.BoolVar(&f.render.NoHeader, "no-header", false, "leave out headings")
	flags.StringVar(&f.color, "color", colorAuto, "paint verdicts `WHEN`: auto (on a terminal, unless NO_COLOR is set), always, never")
	flags.IntVar(&f.opt.Top, "top", 20, "rows of a table; 0: all")
	flags.Var(&f.against, comparisonFlag, "compare with `FILE`, as diff does")
	_ = flags.MarkHidden(comparisonFlag) // the flag exists
}

// help is the command that explains the flags.
func (f *analyzeFlags) help() string {
	if f.command == "summary" {
		return "gpurec analyze --help"
	}
	return "gpurec analyze " + f.command + " --help"
}

// check reads the flags that need no recording, or says which one is wrong.
func (f *analyzeFlags) check() error {
	if err := render.CheckFormat(f.render.Format); err != nil {
		if f.render.Format == "html" {
			return usagef("gpurec analyze report", "--format html: a page has all reports together")
		}
		return usagef(f.help(), "--format: %w", err)
	}
	if f.color != "" && !slices.Contains(colorModes, f.color) {
		return usagef(f.help(), "--color %s: there are %s", f.color, strings.Join(colorModes, ", "))
	}
	var err error
	if f.minBytes != "" { // not every report has the flag
		if f.opt.MinBytes, err = parseSize(f.minBytes); err != nil {
			return usagef(f.help(), "--min-bytes: %w", err)
		}
	}
	if f.kernel != "" {
		if f.opt.Kernel, err = regexp.Compile(f.kernel); err != nil {
			return usagef(f.help(), "--kernel: %w", err)
		}
	}
	f.opt.Streams = nil
	for _, text := range f.streams {
		stream, err := query.ParseStream(text)
		if err != nil {
			return usagef(f.help(), "--stream: %w", err)
		}
		f.opt.Streams = append(f.opt.Streams, stream)
	}
	if err := f.frameRules(); err != nil {
		return err
	}
	if err := f.readSuppressions(); err != nil {
		return err
	}
	if err := f.source.check(); err != nil {
		return usagef(f.help(), "%w", err)
	}
	if f.failOn != "" {
		if f.failIf, err = reportpkg.ParseCondition(f.failOn); err != nil {
			return usagef(f.help(), "--fail-on: %w", err)
		}
	}
	for _, n := range []int{f.opt.Top, f.opt.MaxFrames} {
		if n < 0 {
			return usagef(f.help(), "--top and --max-frames cannot be negative")
		}
	}
	return nil
}

// times reads --from and --to, which may count from the recording's start.
func (f *analyzeFlags) times(recording query.Window) error {
	for _, b := range []struct {
		flag, text string
		ns         *int64
	}{{"from", f.from, &f.opt.FromNs}, {"to", f.to, &f.opt.ToNs}} {
		if b.text == "" {
			continue
		}
		ns, err := query.ParseTime(b.text, recording)
		if err != nil {
			return usagef(f.help(), "--%s: %w", b.flag, err)
		}
		if ns < recording.FromNs || ns > recording.ToNs {
			warningf("--%s %s is outside of the recording, which lasts %v", b.flag, b.text, time.Duration(recording.DurNs()))
		}
		*b.ns = max(1, ns)
	}
	if f.opt.FromNs != 0 && f.opt.ToNs != 0 && f.opt.FromNs > f.opt.ToNs {
		return usagef(f.help(), "--from %s is after --to %s", f.from, f.to)
	}
	return nil
}

// open opens the recording that args name, or the newest one here, and calls use.
func (f *analyzeFlags) open(args []string, use func(path string, t *timeline.Timeline) error) error {
	if f.explain {
		_, err := analyze.Explain(os.Stdout, f.command)
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	return f.read(args, use)
}

// read is open with flags that were checked.
func (f *analyzeFlags) read(args []string, use func(path string, t *timeline.Timeline) error) error {
	var path string
	if len(args) > 0 {
		path = filepath.Clean(args[0])
	} else {
		newest, err := newestRecording(".")
		if err != nil {
			return err
		}
		notef("reading %s", newest)
		path = newest
	}
	rec, err := format.Open(path)
	if err != nil {
		return explainOpen(path, err)
	}
	defer rec.Close()
	for _, d := range rec.Damaged {
		warningf("left out: %v", d)
	}
	switch rec.Meta.Complete {
	case format.CompleteRecovered:
		warningf("%s was cut off and recovered: its last seconds may be missing", path)
	case format.CompleteNo:
		warningf("%s is not finished: what came after its last segment is missing", path)
	}
	t, err := timeline.Open(rec)
	if err != nil {
		return explainOpen(path, err)
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
		return "", &hintedError{errors.New("no FILE given, and no gpurec-*.parquet in this folder"), "sudo gpurec record -p PID -d 10s"}
	}
	return newest, nil
}

// report prints a report and applies --fail-on.
func (f *analyzeFlags) report(args []string, make func(*timeline.Timeline, query.Options) (*reportpkg.Report, error)) error {
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
func (f *analyzeFlags) wrong(path string, err error) error {
	var group *reportpkg.GroupError
	var sort *reportpkg.SortError
	var usage *usageError
	var class *quality.ClassError
	var hinted *hintedError // about an output
	switch {
	case err == nil:
		return nil
	case errors.As(err, &class):
		return &hintedError{fmt.Errorf("%s: %w", path, err), "record again without --record, or with --record " + strings.Join(class.Missing, ",")}
	case errors.As(err, &usage):
		return usage
	case errors.As(err, &hinted):
		return hinted
	case errors.As(err, &group):
		return usagef(f.help(), "--group-by: %w", err)
	case errors.As(err, &sort):
		return usagef(f.help(), "--sort: %w", err)
	}
	return explainOpen(path, err)
}

// print prints a report and applies --fail-on.
func (f *analyzeFlags) print(r *reportpkg.Report) error {
	f.render.Width, f.render.Color, f.render.ASCII = terminal(os.Stdout, f.color)
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
		notef("note of the recorder: %s", n)
	}
	if f.render.Format == "csv" {
		if r.Before != nil {
			notef("quality before: %s", r.Before)
		}
		notef("quality: %s", &r.Quality)
	}
	return f.finish(r, failed)
}

// failed applies --fail-on: it returns the part of the condition that holds, or "".
func (f *analyzeFlags) failed(r *reportpkg.Report) (because string, err error) {
	if f.failIf == nil {
		return "", nil
	}
	_, because, err = f.failIf.Holds(r)
	if err != nil {
		return "", usagef(f.help(), "--fail-on: %w", err)
	}
	return because, nil
}

// finish tells about a filter that matched nothing and about --fail-on.
func (f *analyzeFlags) finish(r *reportpkg.Report, failed string) error {
	if r.NoMatch != nil {
		warningf("%v", r.NoMatch)
	}
	if failed != "" {
		notef("failed on %s", failed)
		return &exitStatus{exitFailOn}
	}
	return nil
}
