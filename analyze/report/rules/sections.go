package rules

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/group"
)

// Sections describe the facts and tables of the report. --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: slices.Concat(resultFactColumns, ruleFactColumns())},
	{Title: "hits", Columns: hitColumns},
	{Title: "evidence", Columns: evidenceColumns},
	{Title: "suppressions_used", Columns: group.SuppressionColumns},
	{Title: "totals", Columns: hitTotalColumns},
}
