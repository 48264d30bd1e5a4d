package analyze

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/cmd/gpurec/size"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newReportCommand returns the subcommand of a report.
func newReportCommand(d *report.Definition) *cobra.Command { return newNamedCommand(d, d.Name) }

// newNamedCommand returns the subcommand of a report under one of its names. JSON has the name that was called.
func newNamedCommand(d *report.Definition, name string) *cobra.Command {
	f := newReportFlags(d)
	cmd := &cobra.Command{Use: name + " " + describeArguments(d), Short: d.Short, Long: d.Long, Example: d.Example}
	switch d.Recordings {
	case report.OneRecording:
		cmd.Args = cobra.MaximumNArgs(1)
	case report.EachRank, report.EachRecording:
		cmd.Long += "\n\n" + byRankHelp
	case report.WholeJob:
	}
	f.addDeclaredFlags(cmd.Flags(), &d.Flags)
	own := ownFlags{FlagSet: cmd.Flags()}
	run := report.Runner{Run: d.Run, RunJob: d.RunJob}
	if d.Configure != nil {
		run = d.Configure(&own)
	}
	completeValues(cmd, &d.Flags)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		for _, check := range own.checks {
			if err := check(); err != nil {
				return message.Usagef(f.helpCommand(), "%w", err)
			}
		}
		if err := f.checkSupported(report.Always); err != nil {
			return err
		}
		return f.runReport(args, report.Runner{Run: withName(name, d, run.Run), RunJob: run.RunJob})
	}
	return cmd
}

// withName returns run with a former name in its report, so that scripts that call it find the name that they expect.
func withName(name string, d *report.Definition, run report.RunFunc) report.RunFunc {
	if name == d.Name {
		return run
	}
	return func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
		r, err := run(t, opt)
		if r != nil {
			r.Command = name
		}
		return r, err
	}
}

// newAliasCommand returns the subcommand of a report under a former name, which help and completion leave out.
func newAliasCommand(d *report.Definition, name string) *cobra.Command {
	cmd := newNamedCommand(d, name)
	cmd.Hidden = true
	return cmd
}

// newReportFlags returns the flags of a report before they are registered.
func newReportFlags(d *report.Definition) *reportFlags {
	return &reportFlags{
		command: d.Name, values: d.Sections, recordings: d.Recordings, unsupported: d.Flags.Unsupported,
	}
}

// describeArguments returns the arguments of a report as its help shows them.
func describeArguments(d *report.Definition) string {
	switch {
	case d.Arguments != "":
		return d.Arguments
	case d.Recordings == report.OneRecording:
		return "[FILE]"
	}
	return "[FILE|FOLDER]..."
}

// addDeclaredFlags registers the flags that reports share and that a report declares.
func (f *reportFlags) addDeclaredFlags(flags *pflag.FlagSet, d *report.Flags) {
	f.registered = flags
	if d.Calls {
		f.addFilterFlags(flags)
	} else {
		f.addScopeFlags(flags)
	}
	f.addReportFlags(flags)
	if d.Kernel {
		f.addKernelFlag(flags)
	}
	if d.Suppressions {
		f.addSuppressionsFlag(flags)
	}
	switch {
	case d.Frames:
		f.addFrameFlags(flags)
	case d.Source:
		f.source.addFlags(flags)
	}
	if d.Sort != "" {
		flags.StringVar(&f.opt.Sort, "sort", "", d.Sort)
	}
	if d.AllFrames != "" {
		flags.BoolVar(&f.opt.AllFrames, "all-frames", false, d.AllFrames)
	}
	if d.AllStacks != "" {
		flags.BoolVar(&f.opt.AllStacks, "all-stacks", false, d.AllStacks)
	}
	if g := d.GroupBy; g != nil {
		flags.StringVar(&f.opt.GroupBy, "group-by", g.Default, g.Usage)
	}
	if d.AllRows {
		f.opt.Top = 0
		flags.Lookup("top").DefValue = "0"
	}
	for name, usage := range d.Usage {
		flags.Lookup(name).Usage = usage
	}
	for _, name := range d.Hidden {
		flags.Lookup(name).Hidden = true
	}
}

// completeValues makes the shell complete the values of flags that a report declares.
func completeValues(cmd *cobra.Command, d *report.Flags) {
	complete := func(name string, values []string) {
		// RegisterFlagCompletionFunc fails only for an unknown flag.
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	for name, values := range d.Values {
		complete(name, values)
	}
	if d.GroupBy != nil {
		complete("group-by", d.GroupBy.Names)
	}
}

// checkSupported returns a *message.UsageError if a flag is set that the report rejects always, in a comparison
// with another recording, or in a job.
func (f *reportFlags) checkSupported(when report.Situation) error {
	isSet := func(name string) bool {
		flag := f.registered.Lookup(name)
		return flag.Value.String() != flag.DefValue
	}
	for i := range f.unsupported {
		u := &f.unsupported[i]
		applies := u.When == when || u.When == report.InDiff && f.before.path != ""
		if applies && slices.ContainsFunc(u.Names, isSet) {
			return message.Usagef(f.helpCommand(), "%s", u.Error)
		}
	}
	return nil
}

// ownFlags registers the flags that only one report has. It implements report.FlagSet.
type ownFlags struct {
	*pflag.FlagSet
	checks []func() error
}

// Check adds a check of values, for the time when all flags are parsed.
func (o *ownFlags) Check(check func() error) { o.checks = append(o.checks, check) }

// SizeVar registers a flag for a number of bytes, which a check parses into *p.
func (o *ownFlags) SizeVar(p *int64, name, value, usage string) {
	text := o.String(name, value, usage)
	o.Check(func() (err error) {
		if *p, err = size.Parse(*text); err != nil {
			return fmt.Errorf("--%s: %w", name, err)
		}
		return nil
	})
}
