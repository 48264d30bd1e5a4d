package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/streams"
	"github.com/spf13/cobra"
)

func init() { subcommands["streams"] = newStreams }

func newStreams() *cobra.Command {
	f := &reportFlags{command: "streams"}
	cmd := &cobra.Command{
		Use:   "streams [FILE]",
		Short: "Show what each stream was given to do, and what keeps work from overlapping",
		Long: `streams shows the launches, copies and fills of each CUDA stream, the threads that give
it work, and how long threads wait for it. Two findings keep work from overlapping: all
work of a process goes to one stream, or the legacy default stream has work beside others.
A recording does not say when the GPU ran an operation.`,
		Example: `  gpurec analyze streams run.parquet
  gpurec analyze streams --pid 4711 --from 10s --to 20s run.parquet
  gpurec analyze streams --fail-on 'may_hold_up>0' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.report(args, streams.Run) },
	}
	flags := cmd.Flags()
	f.addFilter(flags)
	f.addReport(flags)
	flags.StringVar(&f.opt.Sort, "sort", "", "sort by `COLUMN` (default: operations)")
	return cmd
}
