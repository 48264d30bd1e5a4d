package steps

import (
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report steps.
var Definition = report.Definition{
	Name:  "steps",
	Short: "Show the steps of a program: their duration, outliers and causes, and phases",
	Long: `steps finds the sequence of launches that a process repeats: a training step, a batch, or
one token. It shows how long steps take, which steps are outliers and what differed in
them, and how the time of a step divides over call sites. Call stacks make the result
better. GPU times (gpurec record --gpu-time) add the GPU time of each phase, and
operations that ran for much longer than others of their kernel.`,
	Example: `  gpurec analyze steps run.parquet
  gpurec analyze steps --marker 'train.py:88' run.parquet
  gpurec analyze steps --fail-on 'outliers>0' run.parquet`,

	Question:   "How long do steps take, and why are some slow?",
	Subject:    report.SubjectTime,
	IsFeatured: true,

	Recordings: report.EachRank,
	Flags: report.Flags{
		Calls:  true,
		Sort:   "sort outliers by `COLUMN` (default: longer by)",
		Hidden: []string{"min-bytes"},
	},
	Sections:  Sections,
	Page:      HTMLSection,
	Needs:     NeededCallClasses,
	Run:       Run,
	Configure: configure,
}

// configure registers --marker.
func configure(flags report.FlagSet) report.Runner {
	var marker string
	flags.StringVar(&marker, "marker", "", "begin a step at launches whose kernel or call site contains `TEXT`")
	return report.Runner{Run: func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
		return RunWithOptions(t, Options{Options: opt, Marker: marker})
	}}
}
