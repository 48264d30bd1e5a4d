package allocator

import (
	"errors"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report allocator.
var Definition = report.Definition{
	Name:  "allocator",
	Short: "Show PyTorch's caching allocator: allocated, reserved and cached bytes",
	Long: `allocator shows the state of PyTorch's caching allocators, one per process and device:
allocated, reserved and cached bytes. The values equal those of torch.cuda.memory_stats().
It shows them at the end, at the peaks, over time, by pool and by stream. It also shows
how often gpurec compared its values with the counters of the allocators.`,
	Example: `  gpurec analyze allocator run.parquet
  gpurec analyze allocator --pid 4242 --moments 100 --format csv run.parquet
  gpurec analyze allocator --at 12s,2026-11-20T10:00:05.5Z --format json run.parquet | jq .moments
  gpurec analyze allocator --fail-on 'disagreed_events>0 || ooms>0' run.parquet`,

	Question:   "What has PyTorch's caching allocator reserved and handed out?",
	Subject:    report.SubjectMemory,
	IsFeatured: true,

	Flags: report.Flags{
		AllRows: true,
	},
	Sections:  Sections,
	Page:      HTMLSection,
	Run:       Run,
	Collect:   Collect,
	Configure: configure,
}

// configure registers --at and --moments.
func configure(flags report.FlagSet) report.Runner {
	var times []string
	var moments int
	flags.StringSliceVar(&times, "at", nil, "report these `TIMES`, separated by commas: offsets such as 12s, Unix "+
		"ns, or RFC 3339")
	flags.IntVar(&moments, "moments", DefaultMomentCount, "report `N` times at equal intervals")
	flags.Check(func() error {
		if moments < 1 {
			return errors.New("--moments must be at least 1")
		}
		return nil
	})
	return report.Runner{Run: func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
		a := Options{Options: opt, Moments: moments}
		for _, text := range times {
			ns, err := query.ParseTime(text, t.RecordingWindow())
			if err != nil {
				return nil, report.FlagErrorf("--at: %w", err)
			}
			a.Times = append(a.Times, ns)
		}
		return RunWithOptions(t, a)
	}}
}
