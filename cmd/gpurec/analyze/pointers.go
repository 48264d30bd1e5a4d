package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/pointers"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["pointers"] = newPointersCommand }

func newPointersCommand() *cobra.Command {
	f := &reportFlags{command: "pointers", byRank: true}
	cmd := &cobra.Command{
		Use:   "pointers [FILE|FOLDER]...",
		Short: "Show double frees, foreign frees, and kernels that use freed memory",
		Long: `pointers shows errors in the use of memory. An address can cause errors of the GPU such
as 700. For these, pointers looks at the arguments of the launches before. It names those
that point into freed memory, with the call sites of allocation and free. It also names
those that point into no known memory. This needs a recording with --kernel-args.

The table of invalid frees shows why frees failed: the memory was freed before, no call
returned the pointer, or the pointer is inside of a block. It has the call sites of the
allocation and of both frees.

Memory from before the recording is not known. A free of such memory is no error.

` + byRankHelp,
		Example: `  sudo gpurec record --kernel-args -o run.parquet -- ./program
  gpurec analyze pointers run.parquet
  gpurec analyze pointers --fail-on 'uses_after_free>0 || double_frees>0' run.parquet`,
		RunE: func(_ *cobra.Command, args []string) error { return f.runReport(args, pointers.Run) },
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addKernelFlag(flags)
	f.addReportFlags(flags)
	f.addFrameFlags(flags)
	return cmd
}
