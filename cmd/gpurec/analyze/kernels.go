package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["kernels"] = newKernelsCommand }

func newKernelsCommand() *cobra.Command {
	f := &reportFlags{command: "kernels"}
	cmd := &cobra.Command{
		Use:   "kernels [FILE]",
		Short: "Show kernel launches by kernel, size, stream and call site",
		Long: `kernels shows kernel launches by kernel, by size (grid, block, shared memory), by stream
and by graph. It shows their rate, the CPU time of the launch calls, and launches that are
too small to fill the GPU. With GPU times it shows how long kernels and graphs ran, also by
line, with the error of each value.`,
		Example: `  gpurec analyze kernels run.parquet
  gpurec analyze kernels --kernel gemm --from 10s --to 11s run.parquet
  gpurec analyze kernels --sort tiny_launches --fail-on 'tiny_pct>50' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.runReport(args, kernels.Run) },
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addKernelFlag(flags)
	f.addReportFlags(flags)
	flags.StringVar(&f.opt.Sort, "sort", "", "sort kernels by `COLUMN` (default: GPU time, else launches)")
	f.source.addFlags(flags)
	return cmd
}
