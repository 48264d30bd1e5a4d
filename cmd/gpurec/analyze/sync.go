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
		Short: "Show where, how long and on which object threads wait for the GPU",
		Long: `sync shows the time that threads wait for streams, events and contexts, by function and
call site. It shows the share of the threads' time and of the time window. It also shows
waits in loops (20 or more a second at one call site) and the stacks of the longest waits.`,
		Example: `  gpurec analyze sync run.parquet
  gpurec analyze sync --tid 4242 --sort max_ns run.parquet
  gpurec analyze sync --fail-on 'loop_waits>1000' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.report(args, waits.Run) },
	}
	flags := cmd.Flags()
	f.addFilter(flags)
	f.addReport(flags)
	_ = flags.MarkHidden("min-bytes") // waits have no size
	flags.StringVar(&f.opt.Sort, "sort", "", "sort by `COLUMN` (default: time waited)")
	f.addFrames(flags)
	return cmd
}
