package memory

import (
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report memory.
var Definition = report.Definition{
	Name:  "memory",
	Short: "Show live memory at the peak or another time, by kind, library and call site",
	Long: `memory shows live memory by kind and by the library that allocated it. It lists the call
sites that held it at the peak, at the end or at another time.

--reconcile compares live memory with the driver's count for each process. It splits that
count into memory of recorded calls, recorded growth of contexts and modules, and
unattributed memory.`,
	Example: `  gpurec analyze memory run.parquet
  gpurec analyze memory --at 12s --top 5 run.parquet
  gpurec analyze memory --reconcile --at end run.parquet`,

	Question:   "Who holds memory at the peak, or at any time?",
	Subject:    report.SubjectMemory,
	IsFeatured: true,

	Recordings: report.EachRank,
	Flags: report.Flags{
		Calls:     true,
		Frames:    true,
		Sort:      "sort call sites by `COLUMN` (default: live bytes)",
		AllFrames: "show all frames, and the stacks of all rows",
		AllStacks: "show the stacks of all rows",
		Values:    map[string][]string{"at": {"peak", "end"}},
	},
	Sections:  Sections,
	Page:      HTMLSection,
	Needs:     NeededCallClasses,
	Run:       Run,
	Collect:   Collect,
	Configure: configure,
}

// configure registers --at and --reconcile.
func configure(flags report.FlagSet) report.Runner {
	var at string
	var reconcile bool
	flags.StringVar(&at, "at", "peak", "report the memory at `TIME`: peak, end, an offset such as 12s, or RFC 3339")
	flags.BoolVar(&reconcile, "reconcile", false, "compare with the driver's counts per process and device")
	return report.Runner{Run: func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
		m := Options{Options: opt, Reconcile: reconcile}
		var err error
		if m.At, m.AtNs, err = query.ParseMoment(at, t.RecordingWindow()); err != nil {
			return nil, report.FlagErrorf("--at: %w", err)
		}
		return RunWithOptions(t, m)
	}}
}
