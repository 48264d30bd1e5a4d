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
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/cmd/gpurec/size"
	"github.com/gpurec/gpurec/cmd/gpurec/terminal"
	"github.com/spf13/pflag"
)

// reportFlags holds the flags of "gpurec analyze" and its subcommands as typed, and the options
// that they set.
type reportFlags struct {
	command  string           // name of the subcommand
	values   []report.Section // --explain texts
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

	recordings  report.Recordings         // recordings that a report reads
	unsupported []report.UnsupportedFlags // flags that a report rejects
	registered  *pflag.FlagSet            // the flags of a report

	failIf *report.Condition   // parsed --fail-on; nil without the flag
	before comparisonFlagValue // set by diff
}

// addFilterFlags adds the flags of all reports about calls.
func (f *reportFlags) addFilterFlags(flags *pflag.FlagSet) {
	f.addScopeFlags(flags)
	flags.Int32SliceVar(&f.opt.Tids, "tid", nil, "only thread `TID`")
	flags.StringSliceVar(&f.streams, "stream", nil, "only stream `HANDLE`")
	flags.StringVar(&f.minBytes, "min-bytes", "0", "ignore allocations and copies below `SIZE`")
}

// addScopeFlags adds the flags of all reports and exports: the time window, the selection of
// processes and devices, --fail-on and --explain.
func (f *reportFlags) addScopeFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.from, "from", "", "start of the time window: `TIME` is an offset such as 12s, or RFC 3339")
	flags.StringVar(&f.to, "to", "", "end of the time window: `TIME` as in --from")
	flags.Int32SliceVarP(&f.opt.Pids, "pid", "p", nil, "only process `PID`; repeatable")
	flags.Int32SliceVar(
		&f.only.Ranks,
		"rank",
		nil,
		"only processes with rank `N` in their job; repeatable",
	)
	flags.StringSliceVar(&f.only.Jobs, "job", nil, "only processes of job `NAME` (for Slurm also the job number)")
	flags.StringSliceVar(&f.only.Containers, "container", nil, "only processes in the container whose ID starts "+
		"with `ID`")
	flags.Int32SliceVar(&f.opt.Devices, "device", nil, "only CUDA device `N`")
	flags.StringVar(&f.failOn, "fail-on", "", "exit with status 3 if `EXPR` holds, e.g. 'growing>0 || "+
		"lost_events>0'")
	flags.BoolVar(&f.explain, "explain", false, "only print how each value is computed")
}

// addSuppressionsFlag adds --suppressions.
func (f *reportFlags) addSuppressionsFlag(flags *pflag.FlagSet) {
	flags.StringVar(&f.suppressions, "suppressions", "", "ignore memory that matches a line leak:PATTERN of `FILE` "+
		"(LeakSanitizer)")
}

// parseSuppressions parses the file of --suppressions. It does nothing without the flag.
func (f *reportFlags) parseSuppressions() error {
	if f.suppressions == "" {
		return nil
	}
	file, err := os.Open(f.suppressions)
	if err != nil {
		return message.Usagef(f.helpCommand(), "--suppressions: %w", err)
	}
	defer file.Close()
	if f.opt.Suppressions, err = query.ParseSuppressions(f.suppressions, file); err != nil {
		return message.Usagef(f.helpCommand(), "--suppressions: %w", err)
	}
	return nil
}

// addKernelFlag adds --kernel.
func (f *reportFlags) addKernelFlag(flags *pflag.FlagSet) {
	flags.StringVar(&f.kernel, "kernel", "", "only launches of kernels whose name matches `REGEX`")
}

// addReportFlags adds the flags of reports that print tables.
func (f *reportFlags) addReportFlags(flags *pflag.FlagSet) {
	flags.StringVar(
		&f.render.Format,
		"format",
		render.ListFormats()[0],
		"output format: "+strings.Join(render.ListFormats(), ", "),
	)
	flags.BoolVar(&f.render.NoHeader, "no-header", false, "print no table headings")
	flags.StringVar(&f.color, "color", terminal.ColorAuto, "color verdicts `WHEN`: auto (on a terminal without "+
		"NO_COLOR), always, never")
	flags.IntVar(&f.opt.Top, "top", 20, "maximum number of rows in a table; 0: all")
	flags.Var(&f.before, comparisonFlagName, "compare with the recording `FILE`, as diff does")
	_ = flags.MarkHidden(comparisonFlagName) // MarkHidden fails only for an unknown flag
}

// helpCommand returns the command that prints the help of the subcommand.
func (f *reportFlags) helpCommand() string {
	if f.command == "summary" {
		return "gpurec analyze --help"
	}
	return "gpurec analyze " + f.command + " --help"
}

// checkFlags parses the flags that do not depend on the recording. It returns a *message.UsageError
// for a wrong flag.
func (f *reportFlags) checkFlags() error {
	if err := render.CheckFormat(f.render.Format); err != nil {
		if f.render.Format == "html" {
			return message.Usagef(
				"gpurec analyze report",
				"--format html: use gpurec analyze report, which writes all reports as one page",
			)
		}
		return message.Usagef(f.helpCommand(), "--format: %w", err)
	}
	f.opt.ForText = f.render.Format == "table"
	if f.color != "" && !slices.Contains(terminal.ColorModes, f.color) {
		return message.Usagef(
			f.helpCommand(),
			"--color %s: must be one of %s",
			f.color,
			strings.Join(terminal.ColorModes, ", "),
		)
	}
	var err error
	if f.minBytes != "" { // "" for subcommands without --min-bytes
		if f.opt.MinBytes, err = size.Parse(f.minBytes); err != nil {
			return message.Usagef(f.helpCommand(), "--min-bytes: %w", err)
		}
	}
	if f.kernel != "" {
		if f.opt.Kernel, err = regexp.Compile(f.kernel); err != nil {
			return message.Usagef(f.helpCommand(), "--kernel: %w", err)
		}
	}
	f.opt.Streams = nil
	for _, text := range f.streams {
		stream, err := query.ParseStream(text)
		if err != nil {
			return message.Usagef(f.helpCommand(), "--stream: %w", err)
		}
		f.opt.Streams = append(f.opt.Streams, stream)
	}
	if err := f.parseHideFrames(); err != nil {
		return err
	}
	if err := f.parseSuppressions(); err != nil {
		return err
	}
	if err := f.source.checkFlags(); err != nil {
		return message.Usagef(f.helpCommand(), "%w", err)
	}
	if f.failOn != "" {
		if f.failIf, err = report.ParseCondition(f.failOn); err != nil {
			return message.Usagef(f.helpCommand(), "--fail-on: %w", err)
		}
	}
	for _, n := range []int{f.opt.Top, f.opt.MaxFrames} {
		if n < 0 {
			return message.Usagef(f.helpCommand(), "--top and --max-frames must not be negative")
		}
	}
	return nil
}

// parseTimeWindow parses --from and --to and sets the time window. Offsets count from the start of
// the recording.
func (f *reportFlags) parseTimeWindow(recording query.Window) error {
	for _, b := range []struct {
		flag, text string
		ns         *int64
	}{{"from", f.from, &f.opt.FromNs}, {"to", f.to, &f.opt.ToNs}} {
		if b.text == "" {
			continue
		}
		ns, err := query.ParseTime(b.text, recording)
		if err != nil {
			return message.Usagef(f.helpCommand(), "--%s: %w", b.flag, err)
		}
		if ns < recording.FromNs || ns > recording.ToNs {
			message.Warningf(
				"--%s %s is outside the recording, which lasts %v",
				b.flag,
				b.text,
				time.Duration(recording.DurNs()),
			)
		}
		*b.ns = max(1, ns)
	}
	if f.opt.FromNs != 0 && f.opt.ToNs != 0 && f.opt.FromNs > f.opt.ToNs {
		return message.Usagef(f.helpCommand(), "--from %s is after --to %s", f.from, f.to)
	}
	return nil
}

// parseMoment parses the text of --at: peak, end or a time. The returned nanoseconds are Unix time
// and are set for a time only.
func (f *reportFlags) parseMoment(text string, t *timeline.Timeline) (query.ReportMoment, int64, error) {
	at, ns, err := query.ParseMoment(text, t.RecordingWindow())
	if err != nil {
		return 0, 0, message.Usagef(f.helpCommand(), "--at: %w", err)
	}
	return at, ns, nil
}

// addFrameFlags adds the flags of reports that show stacks.
func (f *reportFlags) addFrameFlags(flags *pflag.FlagSet) {
	flags.IntVar(&f.opt.MaxFrames, "max-frames", 12, "maximum number of frames in a stack; 0: all")
	f.addHideFramesFlag(flags, "also fold frames that match `REGEX`; none: no default folding; repeatable")
	f.source.addFlags(flags)
}

// addHideFramesFlag adds --hide-frames with a usage text.
func (f *reportFlags) addHideFramesFlag(flags *pflag.FlagSet, usage string) {
	flags.StringArrayVar(&f.hideFrames, "hide-frames", nil, usage)
}

// parseHideFrames parses --hide-frames.
func (f *reportFlags) parseHideFrames() error {
	if len(f.hideFrames) == 0 {
		return nil
	}
	rules, err := query.ParseFrameRules(f.hideFrames)
	var wrong *query.FrameRuleError
	if errors.As(err, &wrong) {
		return message.Usagef(f.helpCommand(), "--hide-frames: %w", err)
	}
	f.opt.Hide = rules
	return err
}
