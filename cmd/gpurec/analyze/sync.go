package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/waits"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["sync"] = newSyncCommand }

func newSyncCommand() *cobra.Command {
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
		RunE: func(_ *cobra.Command, args []string) error { return f.runReport(args, waits.Run) },
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addReportFlags(flags)
	_ = flags.MarkHidden("min-bytes") // waits have no size
	flags.StringVar(&f.opt.Sort, "sort", "", "sort by `COLUMN` (default: time waited)")
	f.addFrameFlags(flags)
	return cmd
}
