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

// commonSections are those that all reports and exports have.
var commonSections = []report.Section{
	{Title: "quality", Columns: slices.Concat(report.QualityColumns, report.SamplingColumns)},
	{Title: "where launches were sampled", Columns: []report.Column{report.EstimatedLaunches, report.EstimatedCalls}},
}

// Explain writes how each value of a report or an export is computed; it needs no recording.
func Explain(out io.Writer, sections []report.Section) error {
	w := bufio.NewWriter(out)
	for _, s := range slices.Concat(sections, commonSections) {
		fmt.Fprintf(w, "%s\n", s.Title)
		for _, c := range s.Columns {
			explain(w, &c)
			// Processes have their rank beside their number.
			if c.Key == "pid" && !slices.ContainsFunc(s.Columns, func(c report.Column) bool { return c.Key == processes.RankColumn.Key }) {
				explain(w, &processes.RankColumn)
			}
		}
	}
	return w.Flush()
}

func explain(w io.Writer, c *report.Column) {
	name := c.Key
	if c.Title != "" && !strings.EqualFold(c.Title, c.Key) {
		name += " (" + c.Title + ")"
	}
	fmt.Fprintf(w, "  %s\n      %s\n", name, c.About)
}
