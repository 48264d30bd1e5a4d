package analyze

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/diff"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// comparisonFlagValue is the value of the hidden flag --before, which every printed report has.
// "gpurec analyze diff" sets the flag to make a report compare two recordings.
type comparisonFlagValue struct {
	path string // the earlier recording; "" for no comparison
	per  diff.Divisor
	sort string
	top  int
}

const comparisonFlagName = "before"

func (c *comparisonFlagValue) Set(path string) error { c.path = path; return nil }
func (c *comparisonFlagValue) String() string        { return c.path }
func (c *comparisonFlagValue) Type() string          { return "FILE" }

// compareRecordings prints the differences of one report on two recordings. The first recording is
// that of --before, the second that of args. compare reads both at the same time to use all cores.
func (f *reportFlags) compareRecordings(args []string, make report.RunFunc) error {
	var before, after *diff.Side
	err := f.openRecording([]string{f.before.path}, func(path string, t *timeline.Timeline) error {
		opt := f.opt // f.read sets the times of f.opt for the second recording
		done := runInBackground(func() (err error) {
			before, err = f.reportForComparison(path, t, make, opt)
			return err
		})
		err := f.readRecording(args, func(path string, t *timeline.Timeline) (err error) {
			after, err = f.reportForComparison(path, t, make, f.opt)
			return err
		})
		return cmp.Or(<-done, err)
	})
	if err != nil {
		return err
	}
	r, err := diff.Run(before, after, query.Options{Sort: f.before.sort, Top: f.before.top})
	if err != nil {
		return f.explainError(f.before.path, err)
	}
	return f.printReport(r)
}

// reportForComparison computes the report on one recording, as one side of a comparison.
func (f *reportFlags) reportForComparison(
	path string,
	t *timeline.Timeline,
	make report.RunFunc,
	opt query.Options,
) (*diff.Side, error) {
	s, err := diff.NewSide(t, make, opt, f.before.per)
	var noSteps *diff.NoStepLaunchError
	if errors.As(err, &noSteps) {
		return nil, message.Usagef("gpurec analyze summary "+path, "--per: %s: %w", path, err)
	}
	return s, f.explainError(path, err)
}

// runInBackground runs do in a goroutine and sends its error on the returned channel.
func runInBackground(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return done
}

func newDiffCommand() *cobra.Command {
	var name, per string
	var c comparisonFlagValue
	cmd := &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Compare a report on two recordings: changed, new and gone rows",
		Long: `diff computes one report on two recordings and pairs the rows of its tables. For each
pair it shows the values before and after, and the change. The rows with the largest
change come first; new and gone rows are marked. diff first prints differences between
the recordings, such as the driver version and the GPUs. It accepts the flags of the
report too.

--per makes recordings of different lengths comparable. It divides values by seconds or
by steps. A step is one launch of the kernel that matches REGEX.`,
		Example: `  gpurec analyze diff before.parquet after.parquet
  gpurec analyze diff --report kernels --per 'step=adam' before.parquet after.parquet
  gpurec analyze diff --fail-on 'new_growing>0 || growth_bytes_per_min_change>1MiB' before.parquet after.parquet`,
		Args: cobra.MaximumNArgs(2),
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "report", "leaks", "compare the report `NAME`")
	flags.StringVar(
		&per,
		"per",
		"",
		"divide counts, bytes and times by `UNIT`: second, or step=REGEX of a kernel name",
	)
	flags.StringVar(&c.sort, "sort", "", "sort by `COLUMN`: change, change% or a key of --format json (default: "+
		"size of change)")
	flags.IntVar(&c.top, "top", 20, "maximum number of rows in a table; 0: all")
	given := make(map[string]*forwardedFlagValue)
	for _, d := range analyze.Reports {
		addForwardedFlags(flags, newReportCommand(d).Flags(), given)
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		sub, err := newReportCommandNamed(name)
		if err != nil {
			return err
		}
		if explain := given["explain"]; explain != nil && len(explain.values) > 0 {
			return errors.Join(
				analyze.ExplainSections(os.Stdout, diff.Sections),
				analyze.ExplainSections(os.Stdout, analyze.FindReport(name).Sections),
			)
		}
		if len(args) != 2 {
			return message.Usagef("gpurec analyze diff --help", "diff needs two recordings, got %d", len(args))
		}
		if c.top < 0 {
			return message.Usagef("gpurec analyze diff --help", "--top must not be negative")
		}
		if c.per, err = diff.ParseDivisor(per); err != nil {
			return message.Usagef("gpurec analyze diff --help", "--per: %w", err)
		}
		if err := setForwardedFlags(sub, given); err != nil {
			return err
		}
		c.path = args[0]
		*sub.Flags().Lookup(comparisonFlagName).Value.(*comparisonFlagValue) = c
		return sub.RunE(sub, args[1:])
	}
	// RegisterFlagCompletionFunc fails only for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc(
		"report",
		cobra.FixedCompletions(reportNames(), cobra.ShellCompDirectiveNoFileComp),
	)
	return cmd
}

// newReportCommandNamed returns a new subcommand for the report with a name, or a usage error that
// lists the reports.
func newReportCommandNamed(name string) (*cobra.Command, error) {
	if d := analyze.FindReport(name); d != nil {
		return newReportCommand(d), nil
	}
	return nil, message.Usagef(
		"gpurec analyze diff --help",
		"--report: unknown report %q; the reports are %s",
		name,
		strings.Join(reportNames(), ", "),
	)
}

// reportNames returns the names of all reports.
func reportNames() (names []string) {
	for _, d := range analyze.Reports {
		names = append(names, d.Name)
	}
	return names
}

// forwardedFlagValue is the value of a diff flag that diff passes on to the report.
type forwardedFlagValue struct {
	target *pflag.Flag // the flag of the report
	values []string    // the values from the command line, in order
}

func (v *forwardedFlagValue) Set(text string) error { v.values = append(v.values, text); return nil }
func (v *forwardedFlagValue) String() string        { return "" }
func (v *forwardedFlagValue) Type() string          { return v.target.Value.Type() }

// addForwardedFlags adds the flags of a report to those of diff and records their values in given.
// It skips flags that diff already has.
func addForwardedFlags(to, from *pflag.FlagSet, given map[string]*forwardedFlagValue) {
	from.VisitAll(func(flag *pflag.Flag) {
		if to.Lookup(flag.Name) != nil || flag.Name == comparisonFlagName {
			return
		}
		v := &forwardedFlagValue{target: flag}
		given[flag.Name] = v
		added := to.VarPF(v, flag.Name, flag.Shorthand, flag.Usage)
		added.NoOptDefVal, added.DefValue, added.Hidden = flag.NoOptDefVal, flag.DefValue, flag.Hidden
	})
}

// setForwardedFlags sets the flags of the report to the values from the command line of diff. It
// returns a usage error for a flag that the report does not have.
func setForwardedFlags(sub *cobra.Command, given map[string]*forwardedFlagValue) error {
	for name, v := range given {
		for _, text := range v.values {
			if sub.Flags().Lookup(name) == nil {
				return message.Usagef("gpurec analyze "+sub.Name()+" --help", "%s has no --%s", sub.Name(), name)
			}
			if err := sub.Flags().Set(name, text); err != nil {
				return message.Usagef("gpurec analyze "+sub.Name()+" --help", "%w", fmt.Errorf("--%s: %w", name, err))
			}
		}
	}
	return nil
}
