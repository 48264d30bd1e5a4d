package analyze

import (
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["allocator"] = newAllocatorCommand }

func newAllocatorCommand() *cobra.Command {
	f := &reportFlags{command: "allocator"}
	var times []string
	var moments int
	cmd := &cobra.Command{
		Use:   "allocator [FILE]",
		Short: "Show PyTorch's caching allocator: allocated, reserved and cached bytes",
		Long: `allocator shows the state of PyTorch's caching allocators, one per process and device:
allocated, reserved and cached bytes. The values equal those of torch.cuda.memory_stats().
It shows them at the end, at the peaks, over time, by pool and by stream. It also shows
how often gpurec compared its values with the counters of the allocators.`,
		Example: `  gpurec analyze allocator run.parquet
  gpurec analyze allocator --pid 4242 --moments 100 --format csv run.parquet
  gpurec analyze allocator --at 12s,2026-11-20T10:00:05.5Z --format json run.parquet | jq .moments
  gpurec analyze allocator --fail-on 'disagreed_events>0 || ooms>0' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if moments < 1 {
				return message.Usagef(f.helpCommand(), "--moments must be at least 1")
			}
			return f.runReport(args, func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
				a := allocator.Options{Options: opt, Moments: moments}
				for _, text := range times {
					ns, err := query.ParseTime(text, t.RecordingWindow())
					if err != nil {
						return nil, message.Usagef(f.helpCommand(), "--at: %w", err)
					}
					a.Times = append(a.Times, ns)
				}
				return allocator.RunWithOptions(t, a)
			})
		},
	}
	flags := cmd.Flags()
	f.addScopeFlags(flags)
	f.addReportFlags(flags)
	flags.StringSliceVar(&times, "at", nil, "report these `TIMES`, separated by commas: offsets such as 12s, Unix "+
		"ns, or RFC 3339")
	flags.IntVar(&moments, "moments", allocator.DefaultMomentCount, "report `N` times at equal intervals")
	f.opt.Top = 0 // show all rows: the table of moments is sorted by time
	flags.Lookup("top").DefValue = "0"
	return cmd
}
