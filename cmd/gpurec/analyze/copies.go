package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/copies"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["copies"] = newCopiesCommand }

func newCopiesCommand() *cobra.Command {
	f := &reportFlags{command: "copies"}
	cmd := &cobra.Command{
		Use:   "copies [FILE]",
		Short: "Show copies by direction, size and kind of host memory, and bursts of small copies",
		Long: `copies shows memory copies by direction, size, mode (blocking or async) and kind of host
memory. Host memory counts as pinned if the recording contains the call that pinned it.
The bandwidth is shown only for calls that last as long as their copy. A burst is 50 or
more copies below 4 KiB by one thread within 10 ms.`,
		Example: `  gpurec analyze copies run.parquet
  gpurec analyze copies --min-bytes 1MiB --sort bytes run.parquet
  gpurec analyze copies --fail-on 'bursts>0' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.runReport(args, copies.Run) },
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addReportFlags(flags)
	flags.Lookup("min-bytes").Usage = "leave out copies below `SIZE`"
	flags.StringVar(&f.opt.Sort, "sort", "", "sort copies by `COLUMN` (default: time)")
	f.addFrameFlags(flags)
	return cmd
}
