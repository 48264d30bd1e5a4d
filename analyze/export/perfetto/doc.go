// Package perfetto writes a recording as a trace for ui.perfetto.dev.
package perfetto
