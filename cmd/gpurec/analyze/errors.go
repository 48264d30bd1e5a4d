package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["errors"] = newErrorsCommand }

func newErrorsCommand() *cobra.Command {
	f := &reportFlags{command: "errors", byRank: true}
	cmd := &cobra.Command{
		Use:   "errors [FILE|FOLDER]...",
		Short: "Show failed CUDA calls, their call sites, and what the errors mean",
		Long: `errors shows the calls that returned an error, by function, error and call site. Some
errors, such as 700 and 719, come from earlier work on the GPU: a later call returns them.
For these, errors lists the kernel launches that may be the cause, and the driver's Xid.

The table of invalid frees shows why frees failed. A double free is shown with the call
sites of the allocation and of both frees. The other causes are a pointer into the middle
of a block, the wrong function, memory whose context was destroyed, and a pointer that no
recorded call returned.

` + byRankHelp,
		Example: `  gpurec analyze errors run.parquet
  gpurec analyze errors --pid 4242 --sort first_ns run.parquet
  gpurec analyze errors --fail-on 'asynchronous_errors>0 || double_frees>0' run.parquet`,
		RunE: func(_ *cobra.Command, args []string) error { return f.runReport(args, cudaerrors.Run) },
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addKernelFlag(flags)
	f.addReportFlags(flags)
	flags.StringVar(&f.opt.Sort, "sort", "", "sort by `COLUMN` (default: class, then calls)")
	f.addFrameFlags(flags)
	return cmd
}
