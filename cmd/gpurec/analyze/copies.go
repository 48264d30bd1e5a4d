package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/copies"
	"github.com/spf13/cobra"
)

func init() { subcommands["copies"] = newCopies }

func newCopies() *cobra.Command {
	f := &reportFlags{command: "copies"}
	cmd := &cobra.Command{
		Use:   "copies [FILE]",
		Short: "Show copies by direction, size and host memory, and bursts of small ones",
		Long: `copies shows copies by direction, size, way of calling (blocking or async) and kind of
host memory, as far as the recording saw it being pinned. Bandwidth is only told where
the time of the call is that of the copy. Bursts are 50 copies below 4 KiB, or more,
within 10 ms by one thread.`,
		Example: `  gpurec analyze copies run.parquet
  gpurec analyze copies --min-bytes 1MiB --sort bytes run.parquet
  gpurec analyze copies --fail-on 'bursts>0' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.report(args, copies.Run) },
	}
	flags := cmd.Flags()
	f.addFilter(flags)
	f.addReport(flags)
	flags.Lookup("min-bytes").Usage = "leave out copies below `SIZE`"
	flags.StringVar(&f.opt.Sort, "sort", "", "sort copies by `COLUMN` (default: time)")
	f.addFrames(flags)
	return cmd
}
