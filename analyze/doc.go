// Package analyze answers questions from a recording: what leaks and where, what a
// program did and when. It needs no GPU, no root and no Linux.
//
// All reports share one model, the Timeline: the recording's facts and stacks, and
// the replay of its memory calls in the order in which they took effect. A report
// is a consumer of that replay and lives in a file of its own; it returns values
// (Report), which the render files turn into text, JSON, CSV or Markdown.
//
// The package does not print, log or exit, and knows nothing of flags.
package analyze
