package analyze

import (
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
)

func init() { subcommands["memory"] = newMemory }

func newMemory() *cobra.Command {
	f := &reportFlags{command: "memory"}
	var at string
	var reconcile bool
	cmd := &cobra.Command{
		Use:   "memory [FILE]",
		Short: "Show who holds memory, at the peak or another time, and where the rest of it is",
		Long: `memory shows how much memory was live by kind and by the library that asked for it, and
who held it at the peak, at the end or at any time. With --reconcile it compares that with
what the driver counts for each process: memory of which calls are known, context and
modules as far as the recording saw them grow, and what is not attributed.`,
		Example: `  gpurec analyze memory run.parquet
  gpurec analyze memory --at 12s --top 5 run.parquet
  gpurec analyze memory --reconcile --at end run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return f.report(args, func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
				m := memory.Options{Options: opt, Reconcile: reconcile}
				switch at {
				case "peak":
				case "end":
					m.At = query.AtEnd
				default:
					m.At = query.AtTime
					var err error
					if m.AtNs, err = query.ParseTime(at, t.Recording()); err != nil {
						return nil, message.Usagef(f.help(), "--at: %w", err)
					}
				}
				return memory.RunWith(t, m)
			})
		},
	}
	flags := cmd.Flags()
	f.addFilter(flags)
	f.addReport(flags)
	flags.StringVar(&at, "at", "peak", "tell who held memory at `TIME`: peak, end, an offset such as 12s, or RFC 3339")
	flags.BoolVar(&reconcile, "reconcile", false, "compare with what the driver counts for the processes and devices")
	flags.StringVar(&f.opt.Sort, "sort", "", "sort holders by `COLUMN` (default: bytes held)")
	f.addFrames(flags)
	flags.BoolVar(&f.opt.AllFrames, "all-frames", false, "fold nothing, show all frames, and the stacks of all rows")
	flags.BoolVar(&f.opt.AllStacks, "all-stacks", false, "show the stacks of all rows")
	// the flag exists
	_ = cmd.RegisterFlagCompletionFunc(
		"at",
		cobra.FixedCompletions([]string{"peak", "end"}, cobra.ShellCompDirectiveNoFileComp),
	)
	return cmd
}
