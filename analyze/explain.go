package analyze

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
)

// commonExplainSections are the parts of --explain that all reports and exports have.
var commonExplainSections = []report.Section{
	{Title: "quality", Columns: slices.Concat(
		report.QualityColumns, report.LaunchSamplingColumns, report.AllocatorSamplingColumns,
	)},
	{
		Title:   "where launches were sampled",
		Columns: []report.Column{report.EstimatedLaunchesColumn, report.EstimatedCallsColumn},
	},
}

// ExplainSections writes to out how each value in the sections is computed. It needs no recording.
// It returns errors of writing.
func ExplainSections(out io.Writer, sections []report.Section) error {
	w := bufio.NewWriter(out)
	for _, s := range slices.Concat(sections, commonExplainSections) {
		fmt.Fprintf(w, "%s\n", s.Title)
		for _, c := range s.Columns {
			name := c.Key
			if c.Title != "" && !strings.EqualFold(c.Title, c.Key) {
				name += " (" + c.Title + ")"
			}
			writeColumnExplanation(w, name, c.About)
			// Rows about a process have its rank next to the pid.
			if c.Key == "pid" &&
				!slices.ContainsFunc(
					s.Columns,
					func(c report.Column) bool { return c.Key == processes.RankColumn.Key },
				) {
				rank := &processes.RankColumn
				writeColumnExplanation(w, rank.Key+" ("+rank.Title+")", rank.About)
			}
		}
	}
	return w.Flush()
}

func writeColumnExplanation(w io.Writer, name, about string) {
	fmt.Fprintf(w, "  %s\n      %s\n", name, about)
}
