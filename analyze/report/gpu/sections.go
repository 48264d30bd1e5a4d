package gpu

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "verdicts", Columns: verdictColumns},
	{Title: "metrics", Columns: metricColumns},
	{Title: "throttling", Columns: throttleColumns},
	{Title: "health", Columns: healthColumns},
	{Title: "processes", Columns: processColumns},
	{Title: "totals", Columns: totalColumns},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title:  "GPUs",
	Chart:  "gpus",
	About:  "NVML's samples of the GPUs: how busy they were, why their clocks were reduced, and their health.",
	Empty:  "The recording has no NVML samples.",
	Tables: []string{"verdicts", "throttling", "health", "processes"},
}
