package analyze

import (
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
)

func init() { subcommands["allocator"] = newAllocator }

func newAllocator() *cobra.Command {
	f := &reportFlags{command: "allocator"}
	var times []string
	var moments int
	cmd := &cobra.Command{
		Use:   "allocator [FILE]",
		Short: "Show the books of PyTorch's caching allocator: allocated, reserved, cached",
		Long: `allocator shows what PyTorch's caching allocators, one per process and device, had of the
driver and handed out, to the byte as torch.cuda.memory_stats() tells it: at the end, at
the peaks, over time, by pool and stream; and how often that was compared with what the
allocators count themselves.`,
		Example: `  gpurec analyze allocator run.parquet
  gpurec analyze allocator --pid 4242 --moments 100 --format csv run.parquet
  gpurec analyze allocator --at 12s,2026-11-20T10:00:05.5Z --format json run.parquet | jq .moments
  gpurec analyze allocator --fail-on 'disagreed_events>0 || ooms>0' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if moments < 1 {
				return message.Usagef(f.help(), "--moments must be at least 1")
			}
			return f.report(args, func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
				a := allocator.Options{Options: opt, Moments: moments}
				for _, text := range times {
					ns, err := query.ParseTime(text, t.Recording())
					if err != nil {
						return nil, message.Usagef(f.help(), "--at: %w", err)
					}
					a.Times = append(a.Times, ns)
				}
				return allocator.RunWith(t, a)
			})
		},
	}
	flags := cmd.Flags()
	f.addScope(flags)
	f.addReport(flags)
	flags.StringSliceVar(&times, "at", nil, "tell of `TIMES` instead: offsets such as 12s, Unix ns, or RFC 3339, "+
		"with commas between")
	flags.IntVar(&moments, "moments", allocator.DefaultMoments, "tell of `N` moments at equal distances")
	f.opt.Top = 0 // moments are not ordered by weight
	flags.Lookup("top").DefValue = "0"
	return cmd
}
