// Package analyze answers questions from a recording: what leaks and where, what a
// program did and when. It needs no GPU, no root and no Linux.
//
// All reports share one model, timeline.Timeline: the recording's facts and stacks, and
// the replay of its memory calls in the order in which they took effect. A report
// is a consumer of that replay and lives in a file of its own; it returns values
// (Report), which the render files turn into text, JSON, CSV or Markdown.
//
// The folders know no report: they hold text and statistics (units, stats, catalog), the
// options of reports (query), and parts of the model (model/...). Only analyze, query and
// timeline.Open are meant for other programs; names in the other folders may change.
//
// The package does not print, log or exit, and knows nothing of flags.
package analyze
