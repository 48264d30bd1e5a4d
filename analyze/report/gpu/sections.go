package gpu

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "verdicts", Columns: verdictColumns},
	{Title: "metrics", Columns: metricColumns},
	{Title: "throttling", Columns: throttleColumns},
	{Title: "health", Columns: healthColumns},
	{Title: "processes", Columns: processColumns},
	{Title: "totals", Columns: totalColumns},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title:  "GPUs",
	Chart:  "gpus",
	About:  "What NVML sampled: how busy the GPUs were, what held their clocks down, how healthy they are.",
	Empty:  "The recording has no NVML samples.",
	Tables: []string{"verdicts", "throttling", "health", "processes"},
}
