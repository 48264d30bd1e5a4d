//go:build linux

package rowwriter

import (
	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/rows"
)

// Send passes rows of one class to the row writer. It blocks while the row writer is behind. Safe
// for concurrent use; not to be called after Wait.
func (w *Writer) Send(rows []format.Row) { w.rows <- rows }

// WriteFirst writes the facts that are known at the start of the recording, before all else. It must be called before
// Run.
func (w *Writer) WriteFirst(rows []format.Row) { w.writeOtherRows(rows) }

// Sender returns a rows.Sender, which drops rows instead of blocking.
func (w *Writer) Sender() *rows.Sender { return rows.NewSender(w.rows) }

// SendOpenCalls passes calls that will not return to the row writer. It may block. Safe for
// concurrent use; not to be called after Wait.
func (w *Writer) SendOpenCalls(calls []bpf.CudaEvent) { w.openCalls <- calls }

// EndNs returns the end of the recording in Unix ns, 0 while it runs. Safe for concurrent use.
func (w *Writer) EndNs() int64 { return w.counters.endNs.Load() }

// Progress returns counts of recorded calls, at most 100 ms old. Safe for concurrent use.
func (w *Writer) Progress() Progress { return *w.progress.Load() }

// LaunchesPerSecond returns the launch rate of the process that launches most kernels. Safe for
// concurrent use.
func (w *Writer) LaunchesPerSecond() int64 { return w.launchRate.Load() }
