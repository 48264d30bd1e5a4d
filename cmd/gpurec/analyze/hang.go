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
		Use:   "hang [FILE|FOLDER]...",
		Short: "Show whether processes hang, in which call, and the events before",
		Long: `hang shows a verdict for every process and thread: hanging, waiting, polling, idle or
alive. The verdict is for the end of the recording, or for the time of --to. hang also
shows:

  - calls that have not returned, their stack and the object that they wait for
  - the last kernel launches of each stream
  - the GPU activity, and the Xids and errors before the hang
  - the outlier among equal processes
  - the rank that the others of a job wait for: it is missing, died, or calls something else

A process that was already hung when the recording started makes no calls. It hangs if the
recorded stacks of its threads show it. Without stacks it is reported as "silent", with
advice where to look next.

With several files, hang compares the ranks of one job. Record each host or each rank, and
give all recordings, or a folder with them. The ranks need calls of NCCL in their
recordings. The order of events of different hosts has an error: that of their clocks,
which hang bounds by NTP and by collectives.`,
		Example: `  gpurec analyze hang run.parquet
  gpurec analyze hang node1.parquet node2.parquet
  gpurec analyze hang run/
  gpurec analyze hang --long 10s --to 5m --pid 4242 run.parquet
  gpurec analyze hang --fail-on 'hanging>0 || odd_processes>0' run.parquet`,
		RunE: func(_ *cobra.Command, args []string) error {
			if long <= 0 {
				return message.Usagef(f.helpCommand(), "--long must be more than 0")
			}
			paths, err := expandArguments(args)
			if err != nil {
				return err
			}
			if len(paths) > 1 && !f.explain {
				return f.runHangOfJob(paths, int64(long))
			}
			return f.runReport(paths, func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
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

// runHangOfJob prints the report on the ranks of several recordings.
func (f *reportFlags) runHangOfJob(paths []string, longNs int64) error {
	if err := f.checkFlags(); err != nil {
		return err
	}
	if f.from != "" || f.to != "" {
		return message.Usagef(
			f.helpCommand(),
			"--from and --to need one recording: with several, hang reports their end",
		)
	}
	if len(f.only.Ranks)+len(f.only.Containers)+len(f.opt.Pids) > 0 {
		return message.Usagef(
			f.helpCommand(),
			"--rank, --container and --pid need one recording: with several, hang compares all ranks",
		)
	}
	j, err := f.openJob(paths)
	if err != nil {
		return err
	}
	r, err := hang.RunJobWithOptions(j, hang.Options{Options: f.opt, LongNs: longNs})
	if err != nil {
		return f.explainJobError(err)
	}
	return f.printReport(r)
}
