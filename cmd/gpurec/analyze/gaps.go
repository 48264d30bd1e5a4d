package analyze

import (
	"time"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["gaps"] = newGapsCommand }

func newGapsCommand() *cobra.Command {
	f := &reportFlags{command: "gaps", byRank: true}
	var shortest time.Duration
	cmd := &cobra.Command{
		Use:   "gaps [FILE|FOLDER]...",
		Short: "Show gaps between kernel launches, the CPU activity in them, and GPU idle time",
		Long: `With GPU times, gaps shows when each GPU ran nothing, and why. It lists the causes by
line and the longest gaps. It shows the queue of the GPU over time, and phases that are
bound by the CPU or the GPU.

Without GPU times, gaps shows the intervals in which a process launched no kernel, per process and per
device: their number and length. For the longest gaps it shows the call that ended the
gap, and the CUDA calls that the launching thread made during the gap. NVML samples show
whether the GPU was idle.

` + byRankHelp,
		Example: `  gpurec analyze gaps run.parquet
  gpurec analyze gaps --min-gap 50ms --device 1 run.parquet
  gpurec analyze gaps --fail-on 'gap_pct>30' run.parquet`,
		RunE: func(_ *cobra.Command, args []string) error {
			if shortest <= 0 {
				return message.Usagef(f.helpCommand(), "--min-gap %v: must be above 0", shortest)
			}
			return f.runReport(args, func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
				return gaps.RunWithOptions(t, gaps.Options{Options: opt, MinGapNs: int64(shortest)})
			})
		},
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addKernelFlag(flags)
	f.addReportFlags(flags)
	_ = flags.MarkHidden("min-bytes") // kernel launches have no size
	flags.DurationVar(&shortest, "min-gap", time.Duration(gaps.DefaultMinGapNs), "minimum `TIME` of a gap")
	flags.StringVar(&f.opt.Sort, "sort", "", "sort gaps by `COLUMN` (default: length)")
	f.addFrameFlags(flags)
	return cmd
}
