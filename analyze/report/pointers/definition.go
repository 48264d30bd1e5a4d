package pointers

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report pointers.
var Definition = report.Definition{
	Name:  "pointers",
	Short: "Show double frees, foreign frees, and kernels that use freed memory",
	Long: `pointers shows errors in the use of memory. A wrong address causes GPU errors such
as 700. For these, pointers checks the arguments of the preceding launches. It lists the
arguments that point into freed memory, with the call sites of allocation and free. It also
lists arguments that point into no known memory. This needs a recording with --kernel-args.

The table of invalid frees shows why frees failed: the memory was freed before, no call
returned the pointer, or the pointer is inside of a block. It has the call sites of the
allocation and of both frees.

Allocations from before the recording are unknown. A free of such memory does not count as an error.`,
	Example: `  sudo gpurec record --kernel-args -o run.parquet -- ./program
  gpurec analyze pointers run.parquet
  gpurec analyze pointers --fail-on 'uses_after_free>0 || double_frees>0' run.parquet`,

	Question:   "Which kernel used freed memory (`record --kernel-args`), and which frees were wrong?",
	Subject:    report.SubjectFaults,
	IsFeatured: true,

	Recordings: report.EachRank,
	Flags: report.Flags{
		Calls:  true,
		Kernel: true,
		Frames: true,
	},
	Sections: Sections,
	Page:     HTMLSection,
	Needs:    NeededCallClasses,
	Run:      Run,
	Collect:  Collect,
}
