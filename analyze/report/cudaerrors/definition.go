package cudaerrors

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report errors.
var Definition = report.Definition{
	Name:  "errors",
	Short: "Show failed CUDA calls, their call sites, and what the errors mean",
	Long: `errors shows the calls that returned an error, by function, error and call site. Some
errors, such as 700 and 719, come from earlier work on the GPU: a later call returns them.
For these, errors lists the kernel launches that may be the cause, and the driver's Xid.

The table of invalid frees shows why frees failed. A double free is shown with the call
sites of the allocation and of both frees. The other causes are a pointer into the middle
of a block, the wrong function, memory whose context was destroyed, and a pointer that no
recorded call returned.`,
	Example: `  gpurec analyze errors run.parquet
  gpurec analyze errors --pid 4242 --sort first_ns run.parquet
  gpurec analyze errors --fail-on 'asynchronous_errors>0 || double_frees>0' run.parquet`,

	Question:   "Which CUDA calls failed, and why did a free fail?",
	Subject:    report.SubjectFaults,
	IsFeatured: true,

	Recordings: report.EachRank,
	Flags: report.Flags{
		Calls:  true,
		Kernel: true,
		Frames: true,
		Sort:   "sort by `COLUMN` (default: class, then calls)",
	},
	Sections: Sections,
	Page:     HTMLSection,
	Run:      Run,
	Collect:  Collect,
}
