package copies

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report copies.
var Definition = report.Definition{
	Name:  "copies",
	Short: "Show copies by direction, size and kind of host memory, and bursts of small copies",
	Long: `copies shows memory copies by direction, size, mode (blocking or async) and kind of host
memory. Host memory counts as pinned if the recording contains the call that pinned it.
The bandwidth is shown only for calls that last as long as their copy. A burst is 50 or
more copies below 4 KiB by one thread within 10 ms.`,
	Example: `  gpurec analyze copies run.parquet
  gpurec analyze copies --min-bytes 1MiB --sort bytes run.parquet
  gpurec analyze copies --fail-on 'bursts>0' run.parquet`,

	Question: "Which copies are slow, small or pageable?",
	Subject:  report.SubjectGPU,

	Flags: report.Flags{
		Calls:  true,
		Frames: true,
		Sort:   "sort copies by `COLUMN` (default: time)",
		Usage:  map[string]string{"min-bytes": "leave out copies below `SIZE`"},
	},
	Sections: Sections,
	Page:     HTMLSection,
	Needs:    NeededCallClasses,
	Run:      Run,
	Collect:  Collect,
}
