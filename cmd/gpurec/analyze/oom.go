package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/spf13/cobra"
)

func init() { subcommands["oom"] = newOOM }

func newOOM() *cobra.Command {
	f := &reportFlags{command: "oom"}
	cmd := &cobra.Command{
		Use:   "oom [FILE]",
		Short: "Show why allocations failed, who held the memory, and what became of the program",
		Long: `oom shows every allocation that failed, of PyTorch's allocator and of the driver: how
much was asked for and how much was free, whether memory was missing (capacity), lay in
pieces that were too small (fragmentation) or in a cache, a limit said no or another
process had it, who held memory at that moment, and whether the program recovered. What
PyTorch asked for again and then got is shown as retried: it costs time and is no crash.
A request under a limit that unused memory in one piece would have served too is shown as
fragmentation in the column ALSO: expandable segments, or a higher limit, would help.`,
		Example: `  gpurec analyze oom run.parquet
  gpurec analyze oom --pid 4242 --top 3 run.parquet
  gpurec analyze oom --fail-on 'fatal>0 || fragmentation>0' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.report(args, oom.Run) },
	}
	flags := cmd.Flags()
	f.addFilter(flags)
	f.addReport(flags)
	flags.StringVar(&f.opt.Sort, "sort", "", "sort failures by `COLUMN` (default: time)")
	f.addFrames(flags)
	flags.BoolVar(&f.opt.AllFrames, "all-frames", false, "fold nothing and show all frames")
	return cmd
}
