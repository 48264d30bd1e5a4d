package stacks

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report stacks.
var Definition = report.Definition{
	Name:  "stacks",
	Short: "Show the stacks of CUDA driver calls, their frequency and completeness",
	Long: `stacks shows the distinct stacks of CUDA driver calls, with the number of calls of each.
It first shows the number of calls with a complete, inferred, truncated or missing stack.
An inferred stack is that of an equal-looking call; stacks shows how often such a stack
was wrong. For truncated stacks it shows the reason and the last frame.`,
	Example: `  gpurec analyze stacks run.parquet
  gpurec analyze stacks --kernel gemm --top 5 --max-frames 0
  gpurec analyze stacks --fail-on 'stacks_truncated_pct>5' run.parquet`,

	Question: "From which stacks is CUDA called?",
	Subject:  report.SubjectHost,

	Flags: report.Flags{
		Calls:     true,
		Kernel:    true,
		Frames:    true,
		Sort:      "sort by `COLUMN` (default: calls)",
		AllFrames: "show all frames of every stack",
	},
	Sections: Sections,
	Run:      Run,
	Collect:  Collect,
}
