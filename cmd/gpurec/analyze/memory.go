package analyze

import (
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["memory"] = newMemoryCommand }

func newMemoryCommand() *cobra.Command {
	f := &reportFlags{command: "memory", byRank: true}
	var at string
	var reconcile bool
	cmd := &cobra.Command{
		Use:   "memory [FILE|FOLDER]...",
		Short: "Show live memory at the peak or another time, by kind, library and call site",
		Long: `memory shows live memory by kind and by the library that allocated it. It lists the call
sites that held it at the peak, at the end or at another time.

--reconcile compares live memory with the driver's count for each process. It splits that
count into memory of recorded calls, recorded growth of contexts and modules, and
unattributed memory.

` + byRankHelp,
		Example: `  gpurec analyze memory run.parquet
  gpurec analyze memory --at 12s --top 5 run.parquet
  gpurec analyze memory --reconcile --at end run.parquet`,
		RunE: func(_ *cobra.Command, args []string) error {
			return f.runReport(args, func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
				m := memory.Options{Options: opt, Reconcile: reconcile}
				switch at {
				case "peak":
				case "end":
					m.At = query.MomentEnd
				default:
					m.At = query.MomentGivenTime
					var err error
					if m.AtNs, err = query.ParseTime(at, t.RecordingWindow()); err != nil {
						return nil, message.Usagef(f.helpCommand(), "--at: %w", err)
					}
				}
				return memory.RunWithOptions(t, m)
			})
		},
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addReportFlags(flags)
	flags.StringVar(&at, "at", "peak", "report the memory at `TIME`: peak, end, an offset such as 12s, or RFC 3339")
	flags.BoolVar(&reconcile, "reconcile", false, "compare with the driver's counts per process and device")
	flags.StringVar(&f.opt.Sort, "sort", "", "sort call sites by `COLUMN` (default: live bytes)")
	f.addFrameFlags(flags)
	flags.BoolVar(&f.opt.AllFrames, "all-frames", false, "show all frames, and the stacks of all rows")
	flags.BoolVar(&f.opt.AllStacks, "all-stacks", false, "show the stacks of all rows")
	// RegisterFlagCompletionFunc fails only for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc(
		"at",
		cobra.FixedCompletions([]string{"peak", "end"}, cobra.ShellCompDirectiveNoFileComp),
	)
	return cmd
}
