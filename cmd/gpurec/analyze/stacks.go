package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/stacks"
	"github.com/spf13/cobra"
)

func init() { subcommands["stacks"] = newStacks }

func newStacks() *cobra.Command {
	f := &reportFlags{command: "stacks"}
	cmd := &cobra.Command{
		Use:   "stacks [FILE]",
		Short: "Show from where the CUDA driver is called, how often, and how well that is known",
		Long: `stacks shows the distinct stacks that calls came from and how many calls each made.
Before them it tells how many calls have a complete stack, an inferred one (that of an
equal-looking call), a truncated one (why, and where such stacks end) or none, and how
often an inferred stack was wrong.`,
		Example: `  gpurec analyze stacks run.parquet
  gpurec analyze stacks --kernel gemm --top 5 --max-frames 0
  gpurec analyze stacks --fail-on 'stacks_truncated_pct>5' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.report(args, stacks.Run) },
	}
	flags := cmd.Flags()
	f.addFilter(flags)
	f.addKernel(flags)
	f.addReport(flags)
	flags.StringVar(&f.opt.Sort, "sort", "", "sort by `COLUMN` (default: calls)")
	f.addFrames(flags)
	flags.BoolVar(&f.opt.AllFrames, "all-frames", false, "fold nothing and show all frames")
	return cmd
}
