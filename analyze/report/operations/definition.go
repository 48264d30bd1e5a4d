package operations

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report operations.
var Definition = report.Definition{
	Name:    "operations",
	Aliases: []string{"works"},
	Short:   "Show when the GPU was busy, by channel and stream, and how certain the times are",
	Long: `operations shows the operations of each channel of the GPU: kernels, graph launches,
copies, fills and event records. It shows how many of their ends are measured, bounded or
estimated, and bounds of the time in which the channel was busy. The second table has the
streams. The third table has estimated durations of kernels with standard errors. The
recording needs GPU times (gpurec record --gpu-time).`,
	Example: `  gpurec analyze operations run.parquet
  gpurec analyze operations --pid 4711 --from 10s --to 20s run.parquet
  gpurec analyze operations --fail-on 'conflicts>0' run.parquet`,

	Question: "When was each channel of the GPU busy, and how certain is this?",
	Subject:  report.SubjectGPU,

	Flags: report.Flags{
		Calls:  true,
		Sort:   "sort channels by `COLUMN` (default: operations)",
		Hidden: []string{"tid", "min-bytes"},
	},
	Sections: Sections,
	Needs:    NeededCallClasses,
	Run:      Run,
	Collect:  Collect,
}
