package objects

import (
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report objects.
var Definition = report.Definition{
	Name:  "objects",
	Short: "Show events, streams, graphs, modules and contexts that are never destroyed",
	Long: `objects shows the objects of the CUDA driver that each call site created: executable graphs,
graphs, events, streams, modules, libraries, contexts, opened IPC memory, memory pools,
textures, surfaces and others. Each kind and site has a verdict:

  growing    the number of live objects grows: a leak
  retained   objects are live, but their number does not grow
  balanced   the objects were destroyed, or ended with their context

A pool that fills up and stays full is no leak, and neither is a burst that ends.
--suppressions ignores objects that stay on purpose, as in gpurec analyze leaks.

Keys of --group-by: ` + strings.Join(GroupNames(), ", ") + `.`,
	Example: `  gpurec analyze objects run.parquet
  gpurec analyze objects --fail-on 'growing>0' run.parquet
  gpurec analyze objects --group-by function --top 5
  gpurec analyze objects --format json run.parquet | jq '.sites[0]'`,

	Question:   "Which line never destroys events, graphs or modules?",
	Subject:    report.SubjectMemory,
	IsFeatured: true,

	Flags: report.Flags{
		Calls:        true,
		Suppressions: true,
		Frames:       true,
		Sort:         "sort by `COLUMN` (default: verdict, kind, live objects)",
		AllFrames:    "show all frames, and the stacks of all rows",
		AllStacks:    "also show the stacks of rows that do not grow",
		GroupBy: &report.GroupFlag{
			Names:   GroupNames(),
			Default: GroupNames()[0],
			Usage:   "one row per kind and `KEY`, such as site or function",
		},
	},
	Sections: Sections,
	Page:     HTMLSection,
	Run:      Run,
	Collect:  Collect,
}
