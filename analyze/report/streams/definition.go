package streams

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report streams.
var Definition = report.Definition{
	Name:  "streams",
	Short: "Show the work of each CUDA stream, and causes that prevent overlap",
	Long: `streams shows the kernel launches, copies and fills of each CUDA stream, the threads that
submit them, and the time that threads wait for the stream. It reports two causes that
prevent overlap. Either all work of a process goes to one stream, or a process uses the
legacy default stream next to other streams. A recording does not contain the time at
which the GPU executed an operation.`,
	Example: `  gpurec analyze streams run.parquet
  gpurec analyze streams --pid 4711 --from 10s --to 20s run.parquet
  gpurec analyze streams --fail-on 'may_hold_up>0' run.parquet`,

	Question: "Can work on different streams overlap?",
	Subject:  report.SubjectGPU,

	Flags: report.Flags{
		Calls: true,
		Sort:  "sort by `COLUMN` (default: operations)",
	},
	Sections: Sections,
	Page:     HTMLSection,
	Needs:    NeededCallClasses,
	Run:      Run,
	Collect:  Collect,
}
