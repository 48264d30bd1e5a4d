package oom

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report oom.
var Definition = report.Definition{
	Name:  "oom",
	Short: "Show why allocations failed, what held the memory, and whether the program recovered",
	Long: `oom shows every failed allocation of PyTorch's allocator and of the driver. For each it
shows:

  - the requested size and the free memory
  - the cause: capacity (no memory left), fragmentation (free memory in pieces that are
    too small), cached memory, a limit, or memory of another process
  - the call sites that held the memory
  - whether the program recovered

An allocation that failed first and then succeeded is shown as retried: it costs time but
is not a crash. A request that failed because of a limit may also have failed because of
fragmentation. The column ALSO shows this: expandable segments or a higher limit would
help.`,
	Example: `  gpurec analyze oom run.parquet
  gpurec analyze oom --pid 4242 --top 3 run.parquet
  gpurec analyze oom --fail-on 'fatal>0 || fragmentation>0' run.parquet`,

	Question:   "Why did an allocation fail?",
	Subject:    report.SubjectMemory,
	IsFeatured: true,

	Flags: report.Flags{
		Calls:     true,
		Frames:    true,
		Sort:      "sort failures by `COLUMN` (default: time)",
		AllFrames: "show all frames of every stack",
	},
	Sections: Sections,
	Page:     HTMLSection,
	Needs:    NeededCallClasses,
	Run:      Run,
	Collect:  Collect,
}
