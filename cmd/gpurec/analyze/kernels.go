package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["kernels"] = newKernelsCommand }

func newKernelsCommand() *cobra.Command {
	f := &reportFlags{command: "kernels", byRank: true}
	cmd := &cobra.Command{
		Use:   "kernels [FILE|FOLDER]...",
		Short: "Show kernel launches by kernel, size, stream and call site",
		Long: `kernels shows kernel launches by kernel, by size (grid, block, shared memory), by stream
and by graph. It shows their rate, the CPU time of the launch calls, and launches that are
too small to fill the GPU. With GPU times it shows how long kernels and graphs ran, also by
line, with the error of each value.

--group-by shows the launches of a PyTorch program by the frames of their stacks:

  operator    innermost operator, with its overload, such as aten::add_Tensor
  autograd    innermost node of the autograd graph, such as AddmmBackward0
  module      classes of the modules in the stack, outermost first
  phase       forward, backward, optimizer or other

` + byRankHelp,
		Example: `  gpurec analyze kernels run.parquet
  gpurec analyze kernels --group-by operator run.parquet
  gpurec analyze kernels --kernel gemm --from 10s --to 11s run.parquet
  gpurec analyze kernels --sort tiny_launches --fail-on 'tiny_pct>50' run.parquet`,
		RunE: func(_ *cobra.Command, args []string) error { return f.runReport(args, kernels.Run) },
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addKernelFlag(flags)
	f.addReportFlags(flags)
	flags.StringVar(&f.opt.Sort, "sort", "", "sort kernels by `COLUMN` (default: GPU time, else launches)")
	groups := kernels.GroupNames()
	flags.StringVar(&f.opt.GroupBy, "group-by", "", "one row per `KEY`: operator, autograd, module or phase")
	f.source.addFlags(flags)
	// RegisterFlagCompletionFunc fails only for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc("group-by", cobra.FixedCompletions(groups, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
