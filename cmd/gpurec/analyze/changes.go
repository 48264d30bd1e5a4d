package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/changes"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["changes"] = newChangesCommand }

func newChangesCommand() *cobra.Command {
	f := &reportFlags{command: "changes", byRank: true}
	cmd := &cobra.Command{
		Use:   "changes [FILE|FOLDER]...",
		Short: "Show when step time, launch rate, memory, clocks or links changed, and what else happened then",
		Long: `changes finds the times at which measured values moved to another level. Values are the
duration of steps, the rate of launches, memory, samples of GPUs and links, and counters of
the host. Each change has its time, both levels and a confidence. The report also shows
what else happened then: clock reasons, Xids, allocator events, new kernels, stacks and
threads. Warm-up, slow drifts and patterns that repeat are no changes.

` + byRankHelp,
		Example: `  gpurec analyze changes run.parquet
  gpurec analyze changes --from 60s run.parquet
  gpurec analyze changes --fail-on 'changes>0' run.parquet`,
		RunE: func(_ *cobra.Command, args []string) error { return f.runReport(args, changes.Run) },
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addReportFlags(flags)
	_ = flags.MarkHidden("min-bytes") // MarkHidden fails only for an unknown flag
	flags.StringVar(&f.opt.Sort, "sort", "", "sort changes by `COLUMN` (default: time)")
	return cmd
}
