package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/stacks"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["stacks"] = newStacksCommand }

func newStacksCommand() *cobra.Command {
	f := &reportFlags{command: "stacks"}
	cmd := &cobra.Command{
		Use:   "stacks [FILE]",
		Short: "Show the stacks of CUDA driver calls, their frequency and completeness",
		Long: `stacks shows the distinct stacks of CUDA driver calls, with the number of calls of each.
It first shows the number of calls with a complete, inferred, truncated or missing stack.
An inferred stack is that of an equal-looking call; stacks shows how often such a stack
was wrong. For truncated stacks it shows the reason and the last frame.`,
		Example: `  gpurec analyze stacks run.parquet
  gpurec analyze stacks --kernel gemm --top 5 --max-frames 0
  gpurec analyze stacks --fail-on 'stacks_truncated_pct>5' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.runReport(args, stacks.Run) },
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addKernelFlag(flags)
	f.addReportFlags(flags)
	flags.StringVar(&f.opt.Sort, "sort", "", "sort by `COLUMN` (default: calls)")
	f.addFrameFlags(flags)
	flags.BoolVar(&f.opt.AllFrames, "all-frames", false, "show all frames of every stack")
	return cmd
}
