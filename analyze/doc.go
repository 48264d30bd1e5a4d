// Package analyze lists the reports that answer questions from a recording: what leaks and
// where, what a program did and when. It needs no GPU, no root and no Linux.
//
// A new report is a folder in report, a line in Reports, and a file in cmd/gpurec.
//
// All reports share one model, timeline.Timeline: the recording's facts and stacks, and
// the replay of its memory calls in the order in which they took effect. A report lives in
// a folder of its own, report/NAME; it returns values (report.Report), which render turns
// into text, JSON, CSV or Markdown. The folders of export write a recording in the format
// of another program.
//
// Data flows one way: model → report → render and export. Only analyze, query, report and
// timeline.Open are meant for other programs; names in the other folders may change.
//
// The package does not print, log or exit, and knows nothing of flags.
package analyze
