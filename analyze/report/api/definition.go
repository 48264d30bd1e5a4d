package api

import (
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report api.
var Definition = report.Definition{
	Name:  "api",
	Short: "Show the number, duration and errors of calls for each CUDA driver function",
	Long: `api shows one row for each CUDA driver function that the processes called. The columns
are those of nsys stats (cuda_api_sum), plus the 95th and 99th percentile, errors and open
calls. Durations are CPU time inside the call. If gpurec did not record the duration of
every call, TIMED is the number of timed calls. ~TOTAL then estimates the total time of
all calls.

Keys of --group-by: ` + strings.Join(GroupNames(), ", ") + `.`,
	Example: `  gpurec analyze api run.parquet
  gpurec analyze api --group-by site --sort p99_ns run.parquet
  gpurec analyze api --fail-on 'errors>0' --format csv run.parquet`,

	Question:   "Where does CPU time in CUDA go?",
	Subject:    report.SubjectHost,
	IsFeatured: true,

	Flags: report.Flags{
		Calls:  true,
		Kernel: true,
		Frames: true,
		Sort:   "sort by `COLUMN` (default: time)",
		GroupBy: &report.GroupFlag{
			Names:   GroupNames(),
			Default: GroupNames()[0],
			Usage:   "one row per function and `KEY`, such as site or thread",
		},
	},
	Sections: Sections,
	Page:     HTMLSection,
	Run:      Run,
	Collect:  Collect,
}
