package leaks

import (
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/group"
)

// Definition declares the report leaks.
var Definition = report.Definition{
	Name:  "leaks",
	Short: "Show the call sites whose GPU memory grows or is never freed",
	Long: `leaks shows a verdict for every call site that allocated GPU or pinned host memory:

  growing    live memory grows: a leak
  exit leak  never freed before the process exited
  retained   live, but not growing
  startup    allocated at the start and kept, such as weights
  churn      allocated and freed again

--suppressions ignores memory that stays on purpose. The file has lines leak:PATTERN, as
for LeakSanitizer. gpurec searches each pattern in the function, source file and module
of every stack frame. In a pattern, * matches any text, ^ the start and $ the end. Lines
with # are comments.

Keys of --group-by: ` + strings.Join(group.GroupNames(), ", ") + `.`,
	Example: `  gpurec analyze leaks run.parquet
  gpurec analyze leaks --suppressions known.supp --fail-on 'growing>0' run.parquet
  gpurec analyze leaks --group-by function --top 5
  gpurec analyze leaks --rank 3 run.parquet
  gpurec analyze leaks --format json run.parquet | jq '.leaks[0]'`,

	Question:   "Which line leaks?",
	Subject:    report.SubjectMemory,
	IsFeatured: true,

	Recordings: report.EachRank,
	Flags: report.Flags{
		Calls:        true,
		Suppressions: true,
		Frames:       true,
		Sort:         "sort by `COLUMN` (default: verdict, then live bytes)",
		AllFrames:    "show all frames, and the stacks of all rows",
		AllStacks:    "also show the stacks of startup and churn rows",
		GroupBy: &report.GroupFlag{
			Names:   group.GroupNames(),
			Default: group.GroupNames()[0],
			Usage:   "one row per `KEY`, such as site or function",
		},
	},
	Sections: Sections,
	Page:     HTMLSection,
	Needs:    NeededCallClasses,
	Run:      Run,
	Collect:  Collect,
}
