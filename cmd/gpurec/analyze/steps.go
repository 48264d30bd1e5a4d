package analyze

import (
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/steps"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["steps"] = newStepsCommand }

func newStepsCommand() *cobra.Command {
	f := &reportFlags{command: "steps", byRank: true}
	var marker string
	cmd := &cobra.Command{
		Use:   "steps [FILE|FOLDER]...",
		Short: "Show the steps of a program: their duration, outliers and causes, and phases",
		Long: `steps finds the sequence of launches that a process repeats: a training step, a batch, or
one token. It shows how long steps take, which steps are outliers and what differed in
them, and how the time of a step divides over call sites. Call stacks make the result
better. GPU times (gpurec record --gpu-time) add the GPU time of each phase, and works that
ran for much longer than others of their kernel.

` + byRankHelp,
		Example: `  gpurec analyze steps run.parquet
  gpurec analyze steps --marker 'train.py:88' run.parquet
  gpurec analyze steps --fail-on 'outliers>0' run.parquet`,
		RunE: func(_ *cobra.Command, args []string) error {
			return f.runReport(args, func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
				return steps.RunWithOptions(t, steps.Options{Options: opt, Marker: marker})
			})
		},
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addReportFlags(flags)
	_ = flags.MarkHidden("min-bytes") // MarkHidden fails only for an unknown flag
	flags.StringVar(&marker, "marker", "", "begin a step at launches whose kernel or call site contains `TEXT`")
	flags.StringVar(&f.opt.Sort, "sort", "", "sort outliers by `COLUMN` (default: longer by)")
	return cmd
}
