package gaps

import (
	"fmt"
	"time"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report gaps.
var Definition = report.Definition{
	Name:  "gaps",
	Short: "Show gaps between kernel launches, the CPU activity in them, and GPU idle time",
	Long: `With GPU times, gaps shows when each GPU ran nothing, and why. It lists the causes by
line and the longest gaps. It shows the queue of the GPU over time, and phases that are
bound by the CPU or the GPU.

Without GPU times, gaps shows the intervals in which a process launched no kernel, by
process and device: their number and length. For the longest gaps it shows the call that
ended the gap, and the CUDA calls that the launching thread made during the gap. NVML samples show
whether the GPU was idle.`,
	Example: `  gpurec analyze gaps run.parquet
  gpurec analyze gaps --min-gap 50ms --device 1 run.parquet
  gpurec analyze gaps --fail-on 'gap_pct>30' run.parquet`,

	Question:   "Why is the GPU idle?",
	Subject:    report.SubjectGPU,
	IsFeatured: true,

	Recordings: report.EachRank,
	Flags: report.Flags{
		Calls:  true,
		Kernel: true,
		Frames: true,
		Sort:   "sort gaps by `COLUMN` (default: length)",
		Hidden: []string{"min-bytes"},
	},
	Sections:  Sections,
	Page:      HTMLSection,
	Needs:     NeededCallClasses,
	Run:       Run,
	Collect:   Collect,
	Configure: configure,
}

// configure registers --min-gap.
func configure(flags report.FlagSet) report.Runner {
	var shortest time.Duration
	flags.DurationVar(&shortest, "min-gap", time.Duration(DefaultMinGapNs), "minimum `TIME` of a gap")
	flags.Check(func() error {
		if shortest <= 0 {
			return fmt.Errorf("--min-gap %v: must be above 0", shortest)
		}
		return nil
	})
	return report.Runner{Run: func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
		return RunWithOptions(t, Options{Options: opt, MinGapNs: int64(shortest)})
	}}
}
