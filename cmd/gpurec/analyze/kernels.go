package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/spf13/cobra"
)

func init() { subcommands["kernels"] = newKernels }

func newKernels() *cobra.Command {
	f := &reportFlags{command: "kernels"}
	cmd := &cobra.Command{
		Use:   "kernels [FILE]",
		Short: "Show which kernels were launched, how often, in which sizes, and from where",
		Long: `kernels shows launches by kernel, by size (grid, block, shared memory), by stream and by
graph, with their rate, the CPU time of launching where it is known, and launches that
are too small for a GPU. How long kernels ran on the GPU a recording does not say.`,
		Example: `  gpurec analyze kernels run.parquet
  gpurec analyze kernels --kernel gemm --from 10s --to 11s run.parquet
  gpurec analyze kernels --sort tiny_launches --fail-on 'tiny_pct>50' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.report(args, kernels.Run) },
	}
	flags := cmd.Flags()
	f.addFilter(flags)
	f.addKernel(flags)
	f.addReport(flags)
	flags.StringVar(&f.opt.Sort, "sort", "", "sort kernels by `COLUMN` (default: launches)")
	f.source.add(flags)
	return cmd
}
