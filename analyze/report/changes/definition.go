package changes

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report changes.
var Definition = report.Definition{
	Name:  "changes",
	Short: "Show when step time, launch rate, memory, clocks or links changed, and what else happened then",
	Long: `changes finds the times at which measured values moved to another level. Values are the
duration of steps, the rate of launches, memory, samples of GPUs and links, and counters of
the host. Each change has its time, both levels and a confidence. The report also shows
what else happened then: clock reasons, Xids, allocator events, new kernels, stacks and
threads. Warm-up, slow drifts and repeating patterns do not count as changes.`,
	Example: `  gpurec analyze changes run.parquet
  gpurec analyze changes --from 60s run.parquet
  gpurec analyze changes --fail-on 'changes>0' run.parquet`,

	Question:   "When did the job become slower, and what changed then?",
	Subject:    report.SubjectTime,
	IsFeatured: true,

	Recordings: report.EachRank,
	Flags: report.Flags{
		Calls:  true,
		Sort:   "sort changes by `COLUMN` (default: time)",
		Hidden: []string{"min-bytes"},
	},
	Sections: Sections,
	Page:     HTMLSection,
	Run:      Run,
}
