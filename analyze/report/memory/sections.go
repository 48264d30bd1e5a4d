package memory

import "github.com/gpurec/gpurec/analyze/report"

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: MemoryFacts},
	{Title: "levels", Columns: LevelColumns},
	{Title: "holders", Columns: HolderColumns},
	{Title: "pools", Columns: PoolColumns},
	{Title: "reconcile", Columns: ReconcileColumns},
	{Title: "devices", Columns: DeviceMemoryColumns},
	{Title: "totals", Columns: MemoryTotals},
}

// Page is the section of the HTML page.
var Page = report.Page{
	ID:    "holders",
	Title: "Who has the driver's memory",
	About: "What calls explain of what the driver counts, by library and place, at the end.",
	Empty: "The recording has no calls about the driver's memory.",
}
