package steps

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "steps", Columns: processColumns},
	{Title: "outliers", Columns: outlierColumns},
	{Title: "phases", Columns: phaseColumns},
	{Title: "slow_operations", Columns: slowColumns},
	{Title: "totals", Columns: totalColumns},
	{Title: "with rows of class host: host", Columns: hostColumns},
	{Title: "with rows of class host: column of the outliers", Columns: []report.Column{outlierHostColumn}},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title: "Steps",
	About: "The repeating sequence of launches: its duration, outliers and their causes, and its phases. Each dot " +
		"of the chart is a step, at its start time.",
	Empty: "No sequence of launches repeats in the window.",
	Kind:  format.KindLaunch,
	Chart: "steps",
}

// NeededCallClasses are the classes of calls that the report needs.
var NeededCallClasses = []string{format.RecordLaunch, format.RecordCopy, format.RecordSync}
