// Package perfetto writes a recording as a Perfetto trace, for ui.perfetto.dev and trace_processor.
package perfetto
