package summary

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report summary.
var Definition = report.Definition{
	Name:    "summary",
	Short:   "Summarize a recording: its contents and the most important findings",
	Long:    `summary prints the same report as "gpurec analyze" without a subcommand.`,
	Example: `  gpurec analyze summary --from 10s --to 20s run.parquet`,

	Question: "What does a recording contain, and what is wrong?",
	Subject:  report.SubjectOverview,

	Recordings: report.EachRank,
	Flags: report.Flags{
		Calls:        true,
		Kernel:       true,
		Suppressions: true,
	},
	Sections: Sections,
	Run:      Run,
}
