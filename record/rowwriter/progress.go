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
func (s *Writer) ProgressBatch() []format.ProgressRow {
	select {
	case batch := <-s.channelProgress.unused:
		return batch[:0]
	default:
		return make([]format.ProgressRow, 0, progressRowsPerBatch)
	}
}

// SendProgress passes a batch of rows to the row writer, which takes over its memory. It never
// blocks: if too many batches wait, it drops the rows and counts them as lost. Safe for concurrent
// use; not to be called after Wait.
func (s *Writer) SendProgress(batch []format.ProgressRow) {
	if len(batch) == 0 {
		s.reuseProgressBatch(batch)
		return
	}
	select {
	case s.channelProgress.waiting <- batch:
	default:
		s.channelProgress.lost.Add(int64(len(batch)))
		s.reuseProgressBatch(batch)
	}
}

// reuseProgressBatch keeps the memory of a batch for ProgressBatch.
func (s *Writer) reuseProgressBatch(batch []format.ProgressRow) {
	select {
	case s.channelProgress.unused <- batch:
	default:
	}
}

// writeProgressBatch writes a batch of SendProgress.
func (s *Writer) writeProgressBatch(batch []format.ProgressRow) {
	s.writeProgress(batch)
	s.reuseProgressBatch(batch)
}

// writeWaitingProgress writes all batches that wait.
func (s *Writer) writeWaitingProgress() {
	for {
		select {
		case batch := <-s.channelProgress.waiting:
			s.writeProgressBatch(batch)
		default:
			return
		}
	}
}

// writeProgress writes rows, and counts them as recorded or lost. It leaves out rows after the end
// of a recording that has reached its size limit.
func (s *Writer) writeProgress(rows []format.ProgressRow) {
	if end := s.bounds.endNs; end != 0 {
		rows = slices.DeleteFunc(rows, func(r format.ProgressRow) bool { return r.SeenNs >= end })
	}
	q := &s.channelProgress
	if s.failed != nil {
		q.lost.Add(int64(len(rows)))
		return
	}
	q.countRecorded(len(rows))
	if err := s.writer.WriteProgress(rows); err != nil {
		s.stopWriting(err)
	}
}

// addLaunchProgress adds the rows of progress words that a launch has read.
func (s *Writer) addLaunchProgress(e *bpf.CudaProgressEvent) {
	q := &s.channelProgress
	for _, sample := range e.Sample {
		if sample.Channel == 0 {
			continue
		}
		q.ofLaunches = append(q.ofLaunches, format.ProgressRow{
			SeenNs: s.counters.clock.UnixNs(
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
func (s *Writer) writeLaunchProgress() {
	q := &s.channelProgress
	if len(q.ofLaunches) > 0 {
		s.writeProgress(q.ofLaunches)
		q.ofLaunches = q.ofLaunches[:0]
	}
}

// CountLostProgress counts progress words that were read and could not be sent. Safe for concurrent
// use; not to be called after Wait.
func (s *Writer) CountLostProgress(n int64) { s.channelProgress.lost.Add(n) }
