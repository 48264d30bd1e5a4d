package analyze

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	reportpkg "github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/cmd/gpurec/size"
	"github.com/gpurec/gpurec/cmd/gpurec/terminal"
	"github.com/spf13/pflag"
)

// reportFlags are the flags of analyze and its subcommands as they were typed.
type reportFlags struct {
	command  string
	values   []reportpkg.Section // what an export writes; those of a report are in analyze.Reports
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

// addFilter adds the flags that all reports of calls have.
func (f *reportFlags) addFilter(flags *pflag.FlagSet) {
	f.addScope(flags)
	flags.Int32SliceVar(&f.opt.Tids, "tid", nil, "only thread `TID`")
	flags.StringSliceVar(&f.streams, "stream", nil, "only stream `HANDLE`")
	flags.StringVar(&f.minBytes, "min-bytes", "0", "leave out allocations and copies below `SIZE`")
}

// addScope adds the flags that all reports have.
func (f *reportFlags) addScope(flags *pflag.FlagSet) {
	flags.StringVar(&f.from, "from", "", "leave out what was before `TIME`: an offset such as 12s, or RFC 3339")
	flags.StringVar(&f.to, "to", "", "leave out what was after `TIME`")
	flags.Int32SliceVarP(&f.opt.Pids, "pid", "p", nil, "only process `PID`; may be given several times")
	flags.Int32SliceVar(
		&f.only.Ranks,
		"rank",
		nil,
		"only processes of rank `N` in their job; may be given several times",
	)
	flags.StringSliceVar(&f.only.Jobs, "job", nil, "only processes of job `NAME`, or of the Slurm job of this number")
	flags.StringSliceVar(&f.only.Containers, "container", nil, "only processes in the container whose `ID` begins so")
	flags.Int32SliceVar(&f.opt.Devices, "device", nil, "only CUDA device `N`")
	flags.StringVar(&f.failOn, "fail-on", "", "exit with status 3 if `EXPR` holds, such as 'growing>0' or "+
		"'live_bytes>100MiB || lost_events>0'")
	flags.BoolVar(&f.explain, "explain", false, "print how each value is computed, and nothing else")
}

func (f *reportFlags) addSuppressions(flags *pflag.FlagSet) {
	flags.StringVar(&f.suppressions, "suppressions", "", "leave out memory that `FILE` names, in lines leak:PATTERN "+
		"as LeakSanitizer has them")
}

// readSuppressions reads the file of --suppressions.
func (f *reportFlags) readSuppressions() error {
	if f.suppressions == "" {
		return nil
	}
	file, err := os.Open(f.suppressions)
	if err != nil {
		return message.Usagef(f.help(), "--suppressions: %w", err)
	}
	defer file.Close()
	if f.opt.Suppressions, err = query.ParseSuppressions(f.suppressions, file); err != nil {
		return message.Usagef(f.help(), "--suppressions: %w", err)
	}
	return nil
}

func (f *reportFlags) addKernel(flags *pflag.FlagSet) {
	flags.StringVar(&f.kernel, "kernel", "", "leave out launches of kernels that do not match `REGEX`")
}

// addReport adds the flags of reports that are printed.
func (f *reportFlags) addReport(flags *pflag.FlagSet) {
	flags.StringVar(&f.render.Format, "format", render.Formats()[0], "print as "+strings.Join(render.Formats(), ", "))
	flags.BoolVar(&f.render.NoHeader, "no-header", false, "leave out headings")
	flags.StringVar(&f.color, "color", terminal.ColorAuto, "paint verdicts `WHEN`: auto (on a terminal, unless "+
		"NO_COLOR is set), always, never")
	flags.IntVar(&f.opt.Top, "top", 20, "rows of a table; 0: all")
	flags.Var(&f.against, comparisonFlag, "compare with `FILE`, as diff does")
	_ = flags.MarkHidden(comparisonFlag) // the flag exists
}

// help is the command that explains the flags.
func (f *reportFlags) help() string {
	if f.command == "summary" {
		return "gpurec analyze --help"
	}
	return "gpurec analyze " + f.command + " --help"
}

// check reads the flags that need no recording, or says which one is wrong.
func (f *reportFlags) check() error {
	if err := render.CheckFormat(f.render.Format); err != nil {
		if f.render.Format == "html" {
			return message.Usagef("gpurec analyze report", "--format html: a page has all reports together")
		}
		return message.Usagef(f.help(), "--format: %w", err)
	}
	if f.color != "" && !slices.Contains(terminal.ColorModes, f.color) {
		return message.Usagef(f.help(), "--color %s: there are %s", f.color, strings.Join(terminal.ColorModes, ", "))
	}
	var err error
	if f.minBytes != "" { // not every report has the flag
		if f.opt.MinBytes, err = size.Parse(f.minBytes); err != nil {
			return message.Usagef(f.help(), "--min-bytes: %w", err)
		}
	}
	if f.kernel != "" {
		if f.opt.Kernel, err = regexp.Compile(f.kernel); err != nil {
			return message.Usagef(f.help(), "--kernel: %w", err)
		}
	}
	f.opt.Streams = nil
	for _, text := range f.streams {
		stream, err := query.ParseStream(text)
		if err != nil {
			return message.Usagef(f.help(), "--stream: %w", err)
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
		return message.Usagef(f.help(), "%w", err)
	}
	if f.failOn != "" {
		if f.failIf, err = reportpkg.ParseCondition(f.failOn); err != nil {
			return message.Usagef(f.help(), "--fail-on: %w", err)
		}
	}
	for _, n := range []int{f.opt.Top, f.opt.MaxFrames} {
		if n < 0 {
			return message.Usagef(f.help(), "--top and --max-frames cannot be negative")
		}
	}
	return nil
}

// times reads --from and --to, which may count from the recording's start.
func (f *reportFlags) times(recording query.Window) error {
	for _, b := range []struct {
		flag, text string
		ns         *int64
	}{{"from", f.from, &f.opt.FromNs}, {"to", f.to, &f.opt.ToNs}} {
		if b.text == "" {
			continue
		}
		ns, err := query.ParseTime(b.text, recording)
		if err != nil {
			return message.Usagef(f.help(), "--%s: %w", b.flag, err)
		}
		if ns < recording.FromNs || ns > recording.ToNs {
			message.Warningf(
				"--%s %s is outside of the recording, which lasts %v",
				b.flag,
				b.text,
				time.Duration(recording.DurNs()),
			)
		}
		*b.ns = max(1, ns)
	}
	if f.opt.FromNs != 0 && f.opt.ToNs != 0 && f.opt.FromNs > f.opt.ToNs {
		return message.Usagef(f.help(), "--from %s is after --to %s", f.from, f.to)
	}
	return nil
}

// moment reads a flag that says peak, end or a time.
func (f *reportFlags) moment(text string, t *timeline.Timeline) (query.Moment, int64, error) {
	switch text {
	case "peak":
		return query.AtPeak, 0, nil
	case "end":
		return query.AtEnd, 0, nil
	}
	ns, err := query.ParseTime(text, t.Recording())
	if err != nil {
		return 0, 0, message.Usagef(f.help(), "--at: %w", err)
	}
	return query.AtTime, ns, nil
}

// addFrames adds the flags of reports that show stacks.
func (f *reportFlags) addFrames(flags *pflag.FlagSet) {
	flags.IntVar(&f.opt.MaxFrames, "max-frames", 12, "frames shown of a stack; 0: all")
	f.addHideFrames(flags, "fold frames whose function, module or file matches `REGEX`, besides those of CUDA, "+
		"CPython, libc and the inside of PyTorch; none: fold only what is named here; may be given several times")
	f.source.add(flags)
}

func (f *reportFlags) addHideFrames(flags *pflag.FlagSet, usage string) {
	flags.StringArrayVar(&f.hideFrames, "hide-frames", nil, usage)
}

// frameRules reads --hide-frames.
func (f *reportFlags) frameRules() error {
	if len(f.hideFrames) == 0 {
		return nil
	}
	rules, err := query.ParseFrameRules(f.hideFrames)
	var wrong *query.FrameRuleError
	if errors.As(err, &wrong) {
		return message.Usagef(f.help(), "--hide-frames: %w", err)
	}
	f.opt.Hide = rules
	return err
}
