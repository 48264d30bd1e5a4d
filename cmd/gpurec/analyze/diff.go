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
	"github.com/gpurec/gpurec/analyze/report/diff"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// comparison is what diff asks of a report: to be made of two recordings. Every report that is
// printed has it as the value of the hidden flag --before, so that what can be reported can be
// compared.
type comparison struct {
	path string // of the recording that is compared with; "": no comparison
	per  diff.Per
	sort string
	top  int
}

const comparisonFlag = "before"

func (c *comparison) Set(path string) error { c.path = path; return nil }
func (c *comparison) String() string        { return c.path }
func (c *comparison) Type() string          { return "FILE" }

// compare prints a report on two recordings; the second one is that of args. Both are made at a
// time: half of the cores would wait.
func (f *reportFlags) compare(args []string, make diff.ReportFunc) error {
	var before, after *diff.Side
	err := f.open([]string{f.against.path}, func(path string, t *timeline.Timeline) error {
		opt := f.opt // times are changed for the second recording
		ended := inBackground(func() (err error) {
			before, err = f.side(path, t, make, opt)
			return err
		})
		err := f.read(args, func(path string, t *timeline.Timeline) (err error) {
			after, err = f.side(path, t, make, f.opt)
			return err
		})
		return cmp.Or(<-ended, err)
	})
	if err != nil {
		return err
	}
	r, err := diff.Run(before, after, query.Options{Sort: f.against.sort, Top: f.against.top})
	if err != nil {
		return f.wrong(f.against.path, err)
	}
	return f.print(r)
}

// side makes the report on one recording.
func (f *reportFlags) side(
	path string,
	t *timeline.Timeline,
	make diff.ReportFunc,
	opt query.Options,
) (*diff.Side, error) {
	s, err := diff.NewSide(t, make, opt, f.against.per)
	var none *diff.NoStepsError
	if errors.As(err, &none) {
		return nil, message.Usagef("gpurec analyze summary "+path, "--per: %s has %w", path, err)
	}
	return s, f.wrong(path, err)
}

// inBackground runs a function and sends what it returns.
func inBackground(do func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	return ended
}

func init() { subcommands["diff"] = newDiff }

func newDiff() *cobra.Command {
	var report, per string
	var c comparison
	cmd := &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Compare any report on two recordings: what changed, what is new, what is gone",
		Long: `diff makes a report on two recordings and pairs the rows of its tables by what they are
about: before, after, change, new and gone rows, the most changed ones first. It takes the
flags of the report, too. What differs about the recordings, such as driver and GPU, comes
first. --per makes recordings of different lengths comparable: numbers a second, or a step,
which is a launch of a kernel.`,
		Example: `  gpurec analyze diff before.parquet after.parquet
  gpurec analyze diff --report kernels --per 'step=adam' before.parquet after.parquet
  gpurec analyze diff --fail-on 'new_growing>0 || growth_bytes_per_min_change>1MiB' before.parquet after.parquet`,
		Args: cobra.MaximumNArgs(2),
	}
	flags := cmd.Flags()
	flags.StringVar(&report, "report", "leaks", "compare report `NAME`")
	flags.StringVar(
		&per,
		"per",
		"",
		"divide counts, bytes and times by `WHAT`: second, or step=REGEX of a kernel's name",
	)
	flags.StringVar(&c.sort, "sort", "", "sort by `COLUMN`: change, change%, or a key of --format json (default: "+
		"the size of the change)")
	flags.IntVar(&c.top, "top", 20, "rows of a table; 0: all")
	given := make(map[string]*forwarded)
	for _, sub := range reportCommands() {
		forwardFlags(flags, sub.Flags(), given)
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		sub, err := reportNamed(report)
		if err != nil {
			return err
		}
		if explain := given["explain"]; explain != nil && len(explain.values) > 0 {
			return errors.Join(
				analyze.Explain(os.Stdout, diff.Sections),
				analyze.Explain(os.Stdout, analyze.Named(report).Sections),
			)
		}
		if len(args) != 2 {
			return message.Usagef("gpurec analyze diff --help", "diff compares two recordings, %d given", len(args))
		}
		if c.top < 0 {
			return message.Usagef("gpurec analyze diff --help", "--top cannot be negative")
		}
		if c.per, err = diff.ParsePer(per); err != nil {
			return message.Usagef("gpurec analyze diff --help", "--per: %w", err)
		}
		if err := forward(sub, given); err != nil {
			return err
		}
		c.path = args[0]
		*sub.Flags().Lookup(comparisonFlag).Value.(*comparison) = c
		return sub.RunE(sub, args[1:])
	}
	var names []string
	for _, sub := range reportCommands() {
		names = append(names, sub.Name())
	}
	// the flag exists
	_ = cmd.RegisterFlagCompletionFunc("report", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// reportCommands are new commands for all reports: those can be compared.
func reportCommands() (list []*cobra.Command) {
	for _, r := range analyze.Reports {
		list = append(list, subcommands[r.Name]())
	}
	return list
}

func reportNamed(name string) (*cobra.Command, error) {
	var names []string
	for _, c := range reportCommands() {
		if c.Name() == name {
			return c, nil
		}
		names = append(names, c.Name())
	}
	return nil, message.Usagef(
		"gpurec analyze diff --help",
		"--report: there is no report %q to compare; there are %s",
		name,
		strings.Join(names, ", "),
	)
}

// forwarded is a flag of diff that is meant for the report.
type forwarded struct {
	like   *pflag.Flag
	values []string
}

func (v *forwarded) Set(text string) error { v.values = append(v.values, text); return nil }
func (v *forwarded) String() string        { return "" }
func (v *forwarded) Type() string          { return v.like.Value.Type() }

// forwardFlags adds the flags of a report to those of diff. What only some reports have is hidden, and taken.
func forwardFlags(to, from *pflag.FlagSet, given map[string]*forwarded) {
	from.VisitAll(func(flag *pflag.Flag) {
		if to.Lookup(flag.Name) != nil || flag.Name == comparisonFlag {
			return
		}
		v := &forwarded{like: flag}
		given[flag.Name] = v
		added := to.VarPF(v, flag.Name, flag.Shorthand, flag.Usage)
		added.NoOptDefVal, added.DefValue, added.Hidden = flag.NoOptDefVal, flag.DefValue, flag.Hidden
	})
}

// forward gives the report the flags that diff was given.
func forward(sub *cobra.Command, given map[string]*forwarded) error {
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
