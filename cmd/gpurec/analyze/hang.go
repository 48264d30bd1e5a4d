package analyze

import (
	"time"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
)

func init() { subcommands["hang"] = newHang }

func newHang() *cobra.Command {
	f := &reportFlags{command: "hang"}
	var long time.Duration
	cmd := &cobra.Command{
		Use:   "hang [FILE]",
		Short: "Tell whether processes hang, in which call, and what led to it",
		Long: `hang tells of every process and thread whether it hangs, waits, polls, has gone idle or is
alive at the end of the recording, or at the time of --to: calls that have not returned,
with their stack and what they wait for, the last launches of each stream, what the GPU
did meanwhile, Xids and errors just before, and which of several equal processes, such as
the ranks of a training, is unlike the others. A process that hangs since before the
recording makes no call in it: it is called silent, with where else to look.`,
		Example: `  gpurec analyze hang run.parquet
  gpurec analyze hang --long 10s --to 5m --pid 4242 run.parquet
  gpurec analyze hang --fail-on 'hanging>0 || odd_processes>0' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if long <= 0 {
				return message.Usagef(f.help(), "--long must be more than 0")
			}
			return f.report(args, func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
				return hang.RunWith(t, hang.Options{Options: opt, LongNs: int64(long)})
			})
		},
	}
	flags := cmd.Flags()
	f.addFilter(flags)
	f.addKernel(flags)
	f.addReport(flags)
	flags.DurationVar(
		&long,
		"long",
		time.Duration(hang.DefaultLongNs),
		"calls and silences of `TIME` or longer are long",
	)
	flags.StringVar(&f.opt.Sort, "sort", "", "sort threads by `COLUMN` (default: verdict, then since when)")
	f.addFrames(flags)
	flags.BoolVar(&f.opt.AllFrames, "all-frames", false, "fold nothing and show all frames")
	return cmd
}
