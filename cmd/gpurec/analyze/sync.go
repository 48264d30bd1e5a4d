package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/waits"
	"github.com/spf13/cobra"
)

func init() { subcommands["sync"] = newSync }

func newSync() *cobra.Command {
	f := &reportFlags{command: "sync"}
	cmd := &cobra.Command{
		Use:   "sync [FILE]",
		Short: "Show where threads wait for the GPU, for how long, and for what",
		Long: `sync shows the time that threads wait for streams, events and contexts, by call and
place, its share of the time of these threads and of the window, waits in loops (20 a
second and more at one place), and the longest waits with their stacks.`,
		Example: `  gpurec analyze sync run.parquet
  gpurec analyze sync --tid 4242 --sort max_ns run.parquet
  gpurec analyze sync --fail-on 'loop_waits>1000' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.report(args, waits.Run) },
	}
	flags := cmd.Flags()
	f.addFilter(flags)
	f.addReport(flags)
	_ = flags.MarkHidden("min-bytes") // the flag exists; waits have no size
	flags.StringVar(&f.opt.Sort, "sort", "", "sort by `COLUMN` (default: time waited)")
	f.addFrames(flags)
	return cmd
}
