package waits

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report sync.
var Definition = report.Definition{
	Name:  "sync",
	Short: "Show where, how long and on which object threads wait for the GPU",
	Long: `sync shows the time that threads wait for streams, events and contexts, by function and
call site. It shows the share of the threads' time and of the time window. It also shows
waits in loops (20 or more a second at one call site) and the stacks of the longest waits.`,
	Example: `  gpurec analyze sync run.parquet
  gpurec analyze sync --tid 4242 --sort max_ns run.parquet
  gpurec analyze sync --fail-on 'loop_waits>1000' run.parquet`,

	Question: "Where do threads wait for the GPU?",
	Subject:  report.SubjectHost,

	Flags: report.Flags{
		Calls:  true,
		Frames: true,
		Sort:   "sort by `COLUMN` (default: time waited)",
		Hidden: []string{"min-bytes"},
	},
	Sections: Sections,
	Page:     HTMLSection,
	Needs:    NeededCallClasses,
	Run:      Run,
	Collect:  Collect,
}
