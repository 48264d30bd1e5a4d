package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/streams"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["streams"] = newStreamsCommand }

func newStreamsCommand() *cobra.Command {
	f := &reportFlags{command: "streams"}
	cmd := &cobra.Command{
		Use:   "streams [FILE]",
		Short: "Show the work of each CUDA stream, and causes that prevent overlap",
		Long: `streams shows the kernel launches, copies and fills of each CUDA stream, the threads that
submit them, and the time that threads wait for the stream. It reports two causes that
prevent overlap. Either all work of a process goes to one stream, or a process uses the
legacy default stream next to other streams. A recording does not contain the time at
which the GPU executed an operation.`,
		Example: `  gpurec analyze streams run.parquet
  gpurec analyze streams --pid 4711 --from 10s --to 20s run.parquet
  gpurec analyze streams --fail-on 'may_hold_up>0' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.runReport(args, streams.Run) },
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addReportFlags(flags)
	flags.StringVar(&f.opt.Sort, "sort", "", "sort by `COLUMN` (default: operations)")
	return cmd
}
