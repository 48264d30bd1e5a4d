// Package analyze lists the reports that answer questions from a recording, such as where memory
// leaks. It needs no GPU, no root privileges and no Linux.
//
// A new report is a folder in report, with its report.Definition, and a line in Reports.
//
// All reports share one model, timeline.Timeline. It has the recording's facts and stacks, and
// replays memory calls in the order in which they took effect. Each report is a package report/NAME
// and returns values (report.Report). Package render formats them as text, JSON, CSV or Markdown.
// The packages in export convert a recording to the format of another program.
//
// Data flows one way: model → report → render and export. Other programs should use only analyze,
// query, report and timeline.Open; names in other packages may change.
//
// The package does not print, log or exit. Reports declare their flags; cmd/gpurec parses them.
package analyze
