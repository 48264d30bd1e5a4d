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

func init() { subcommands["gaps"] = newGaps }

func newGaps() *cobra.Command {
	f := &reportFlags{command: "gaps"}
	var shortest time.Duration
	cmd := &cobra.Command{
		Use:   "gaps [FILE]",
		Short: "Show when nothing was launched, what the CPU did then, and whether the GPU was idle",
		Long: `gaps shows the intervals in which a process launched nothing, altogether and for each
of its devices: how many, how long, and of the longest what the thread that launched
next did in them (which CUDA call, or none), what ended them, and whether the GPU was
idle by the samples of NVML.`,
		Example: `  gpurec analyze gaps run.parquet
  gpurec analyze gaps --min-gap 50ms --device 1 run.parquet
  gpurec analyze gaps --fail-on 'gap_pct>30' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if shortest <= 0 {
				return message.Usagef(f.help(), "--min-gap %v is not above 0", shortest)
			}
			return f.report(args, func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
				return gaps.RunWith(t, gaps.Options{Options: opt, MinGapNs: int64(shortest)})
			})
		},
	}
	flags := cmd.Flags()
	f.addFilter(flags)
	f.addKernel(flags)
	f.addReport(flags)
	_ = flags.MarkHidden("min-bytes") // the flag exists; launches have no size
	flags.DurationVar(&shortest, "min-gap", time.Duration(gaps.DefaultMinGapNs), "shortest `TIME` without launches "+
		"that is a gap")
	flags.StringVar(&f.opt.Sort, "sort", "", "sort gaps by `COLUMN` (default: length)")
	f.addFrames(flags)
	return cmd
}
