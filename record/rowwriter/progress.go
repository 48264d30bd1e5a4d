//go:build linux

package rowwriter

import (
	"slices"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

const (
	// progressRowsPerBatch is the number of rows of a full batch: 4,096 x 32 bytes = 128 KiB.
	progressRowsPerBatch = 4096
	// maxWaitingProgressBatches is the largest number of batches that wait for the row writer. They
	// hold the rows of a quarter of a second at a million rows a second: 8 MiB.
	maxWaitingProgressBatches = 64
)

// progressQueue passes rows of kind progress to the row writer, and counts them.
type progressQueue struct {
	waiting chan []format.ProgressRow // batches with rows
	unused  chan []format.ProgressRow // empty batches
	// ofLaunches has the rows of launches of the current chunk.
	ofLaunches []format.ProgressRow
	rowCounter
}

func newProgressQueue() progressQueue {
	return progressQueue{
		waiting: make(chan []format.ProgressRow, maxWaitingProgressBatches),
		unused:  make(chan []format.ProgressRow, maxWaitingProgressBatches),
	}
}

// ProgressBatch returns an empty batch for SendProgress. Its capacity is that of a full batch. Safe
// for concurrent use.
func (w *Writer) ProgressBatch() []format.ProgressRow {
	select {
	case batch := <-w.channelProgress.unused:
		return batch[:0]
	default:
		return make([]format.ProgressRow, 0, progressRowsPerBatch)
	}
}

// SendProgress passes a batch of rows to the row writer, which takes over its memory. It never
// blocks: if too many batches wait, it drops the rows and counts them as lost. Safe for concurrent
// use; not to be called after Wait.
func (w *Writer) SendProgress(batch []format.ProgressRow) {
	if len(batch) == 0 {
		w.reuseProgressBatch(batch)
		return
	}
	select {
	case w.channelProgress.waiting <- batch:
	default:
		w.channelProgress.lost.Add(int64(len(batch)))
		w.reuseProgressBatch(batch)
	}
}

// reuseProgressBatch keeps the memory of a batch for ProgressBatch.
func (w *Writer) reuseProgressBatch(batch []format.ProgressRow) {
	select {
	case w.channelProgress.unused <- batch:
	default:
	}
}

// writeProgressBatch writes a batch of SendProgress.
func (w *Writer) writeProgressBatch(batch []format.ProgressRow) {
	w.writeProgress(batch)
	w.reuseProgressBatch(batch)
}

// writeWaitingProgress writes all batches that wait.
func (w *Writer) writeWaitingProgress() {
	for {
		select {
		case batch := <-w.channelProgress.waiting:
			w.writeProgressBatch(batch)
		default:
			return
		}
	}
}

// writeProgress writes rows, and counts them as recorded or lost. It leaves out rows after the end
// of a recording that has reached its size limit.
func (w *Writer) writeProgress(rows []format.ProgressRow) {
	if end := w.bounds.endNs; end != 0 {
		rows = slices.DeleteFunc(rows, func(r format.ProgressRow) bool { return r.SeenNs >= end })
	}
	q := &w.channelProgress
	if w.failed != nil {
		q.lost.Add(int64(len(rows)))
		return
	}
	q.countRecorded(len(rows))
	if err := w.writer.WriteProgress(rows); err != nil {
		w.stopWriting(err)
	}
}

// addLaunchProgress adds the rows of progress words that a launch has read.
func (w *Writer) addLaunchProgress(e *bpf.CudaProgressEvent) {
	q := &w.channelProgress
	for _, sample := range e.Sample {
		if sample.Channel == 0 {
			continue
		}
		q.ofLaunches = append(q.ofLaunches, format.ProgressRow{
			SeenNs: w.counters.clock.UnixNs(
				e.SeenNs,
			),
			GPUTimeNs: int64(sample.GpuTimeNs),
			Counter:   int64(sample.Counter),
			Pid:       int32(e.Pid),
			Channel:   int32(sample.Channel),
		})
	}
}

// writeLaunchProgress writes the rows of addLaunchProgress.
func (w *Writer) writeLaunchProgress() {
	q := &w.channelProgress
	if len(q.ofLaunches) > 0 {
		w.writeProgress(q.ofLaunches)
		q.ofLaunches = q.ofLaunches[:0]
	}
}

// CountLostProgress counts progress words that were read and could not be sent. Safe for concurrent
// use; not to be called after Wait.
func (w *Writer) CountLostProgress(n int64) { w.channelProgress.lost.Add(n) }
