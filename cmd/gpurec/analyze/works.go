package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/works"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["works"] = newWorksCommand }

func newWorksCommand() *cobra.Command {
	f := &reportFlags{command: "works"}
	cmd := &cobra.Command{
		Use:   "works [FILE]",
		Short: "Show when the GPU was busy, by channel and stream, and how certain the times are",
		Long: `works shows the works of each channel of the GPU: kernels, graph launches, copies, fills and
event records. It shows how many of their ends are measured, bounded or estimated, and
bounds of the time in which the channel was busy. The second table has the streams. The
third table has estimated durations of kernels with standard errors. The recording needs
GPU times (gpurec record --gpu-time).`,
		Example: `  gpurec analyze works run.parquet
  gpurec analyze works --pid 4711 --from 10s --to 20s run.parquet
  gpurec analyze works --fail-on 'conflicts>0' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.runReport(args, works.Run) },
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addReportFlags(flags)
	_, _ = flags.MarkHidden("tid"), flags.MarkHidden("min-bytes") // MarkHidden fails only for an unknown flag
	flags.StringVar(&f.opt.Sort, "sort", "", "sort channels by `COLUMN` (default: works)")
	return cmd
}
