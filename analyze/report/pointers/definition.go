package pointers

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report pointers.
var Definition = report.Definition{
	Name:  "pointers",
	Short: "Show double frees, foreign frees, and kernels that use freed memory",
	Long: `pointers shows errors in the use of memory. An address can cause errors of the GPU such
as 700. For these, pointers looks at the arguments of the launches before. It names those
that point into freed memory, with the call sites of allocation and free. It also names
those that point into no known memory. This needs a recording with --kernel-args.

The table of invalid frees shows why frees failed: the memory was freed before, no call
returned the pointer, or the pointer is inside of a block. It has the call sites of the
allocation and of both frees.

Memory from before the recording is not known. A free of such memory is no error.`,
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
