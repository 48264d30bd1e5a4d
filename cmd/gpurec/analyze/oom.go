package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["oom"] = newOOMCommand }

func newOOMCommand() *cobra.Command {
	f := &reportFlags{command: "oom"}
	cmd := &cobra.Command{
		Use:   "oom [FILE]",
		Short: "Show why allocations failed, what held the memory, and whether the program recovered",
		Long: `oom shows every failed allocation of PyTorch's allocator and of the driver. For each it
shows:

  - the requested size and the free memory
  - the cause: capacity (no memory left), fragmentation (free memory in pieces that are
    too small), cached memory, a limit, or memory of another process
  - the call sites that held the memory
  - whether the program recovered

An allocation that failed first and then succeeded is shown as retried: it costs time but
is not a crash. A request that failed because of a limit may also have failed because of
fragmentation. The column ALSO shows this: expandable segments or a higher limit would
help.`,
		Example: `  gpurec analyze oom run.parquet
  gpurec analyze oom --pid 4242 --top 3 run.parquet
  gpurec analyze oom --fail-on 'fatal>0 || fragmentation>0' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.runReport(args, oom.Run) },
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addReportFlags(flags)
	flags.StringVar(&f.opt.Sort, "sort", "", "sort failures by `COLUMN` (default: time)")
	f.addFrameFlags(flags)
	flags.BoolVar(&f.opt.AllFrames, "all-frames", false, "show all frames of every stack")
	return cmd
}
