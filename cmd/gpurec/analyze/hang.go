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

func init() { subcommandConstructors["hang"] = newHangCommand }

func newHangCommand() *cobra.Command {
	f := &reportFlags{command: "hang"}
	var long time.Duration
	cmd := &cobra.Command{
		Use:   "hang [FILE]",
		Short: "Show whether processes hang, in which call, and the events before",
		Long: `hang shows a verdict for every process and thread: hanging, waiting, polling, idle or
alive. The verdict is for the end of the recording, or for the time of --to. hang also
shows:

  - calls that have not returned, their stack and the object that they wait for
  - the last kernel launches of each stream
  - the GPU activity, and the Xids and errors before the hang
  - the outlier among equal processes, such as the ranks of a training job

A process that was already hung when the recording started makes no calls. It is reported
as "silent", with advice where to look next.`,
		Example: `  gpurec analyze hang run.parquet
  gpurec analyze hang --long 10s --to 5m --pid 4242 run.parquet
  gpurec analyze hang --fail-on 'hanging>0 || odd_processes>0' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if long <= 0 {
				return message.Usagef(f.helpCommand(), "--long must be more than 0")
			}
			return f.runReport(args, func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
				return hang.RunWithOptions(t, hang.Options{Options: opt, LongNs: int64(long)})
			})
		},
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addKernelFlag(flags)
	f.addReportFlags(flags)
	flags.DurationVar(
		&long,
		"long",
		time.Duration(hang.DefaultLongCallNs),
		"minimum `TIME` without return or calls that counts as a hang",
	)
	flags.StringVar(&f.opt.Sort, "sort", "", "sort threads by `COLUMN` (default: verdict, then start time)")
	f.addFrameFlags(flags)
	flags.BoolVar(&f.opt.AllFrames, "all-frames", false, "show all frames of every stack")
	return cmd
}
