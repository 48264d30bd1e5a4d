//go:build linux

package rowwriter

import (
	"errors"
	"slices"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

// rotateSegments finishes the current segments of the recording. The segment writer stores them on
// disk asynchronously.
func (w *Writer) rotateSegments() {
	w.flushCalls()
	w.writeChangedThreadNames()
	w.forgetExitedProcesses()
	w.dropOldRotations()
	rotation := w.writer.Rotation()
	w.pending = append(w.pending, rotationCallCounts{
		rotation, w.sinceRotate, w.channelProgress.sinceRotate, w.host.sinceRotate, w.argumentsSinceRotate(),
	})
	clear(w.sinceRotate[:])
	w.channelProgress.sinceRotate, w.host.sinceRotate = 0, 0
	if err := w.writer.Rotate(w.CurrentMeta()); err != nil {
		w.stopWriting(err)
	}
	stored := w.writer.FirstPendingRotation()
	w.pending = slices.DeleteFunc(w.pending, func(r rotationCallCounts) bool { return r.rotation < stored })
	w.storeRotationTotals(rotation)
}

// waitForSegments waits until all finished segments are on disk, or could not be written.
func (w *Writer) waitForSegments() {
	if err := w.writer.Flush(); err != nil {
		w.stopWriting(err)
	}
}

// Finish writes the final file, after WriteOpenCalls. On an error, of its own or err, it keeps the
// segments and returns the error.
func (w *Writer) Finish(meta format.Meta, err error) error {
	if err = errors.Join(err, w.failed); err == nil {
		return w.writer.Finish(meta)
	}
	w.keepUnfinishedSegments(meta, err)
	return err
}

// Leave ends the recording without a final file, after WriteOpenCalls: the segments stay. It returns err, or the
// first write error.
func (w *Writer) Leave(meta format.Meta, err error) error {
	return errors.Join(err, w.failed, w.writer.Rotate(meta), w.writer.Flush())
}

// SegmentFolder returns the folder of the recording's segments.
func (w *Writer) SegmentFolder() string { return w.writer.Dir() }

// Close releases the resources of the Writer. It must be called after Wait.
func (w *Writer) Close() {
	w.stacks.Close()
	_ = w.writer.Close() // only closes the folder of the segments
}

// keepUnfinishedSegments writes to the segments the reason for a missing final file, and the final
// counts: those of the last rotation include rows that could not be written. It ignores its own
// errors, because the disk may be full.
func (w *Writer) keepUnfinishedSegments(meta format.Meta, why error) {
	_ = w.writer.Write(format.ClassFact, []format.Row{{
		Kind: format.KindNote, Name: "unfinished", StartNs: meta.EndNs, Device: -1, Message: "the recording was not " +
			"finished: " + why.Error(),
	}})
	_ = w.writer.Rotate(meta)
	_ = w.writer.Flush()
}

// stopWriting stops writing rows to the recording. Rows from now on count as lost, as do the rows
// of the segments that the error names.
func (w *Writer) stopWriting(err error) {
	var segment *format.SegmentError
	if errors.As(err, &segment) {
		for _, lost := range segment.Segments {
			w.countLostSegment(lost)
		}
	}
	if w.failed == nil {
		w.failed = err
		w.onFailure(err)
	}
}

// rotationCallCounts counts the calls of one rotation, by class, and its other events.
type rotationCallCounts struct {
	rotation int
	rows     [bpf.CudaCallClassCLASS_COUNT]int64
	progress int64 // rows of kind progress
	host     int64 // rows of class host
	// arguments counts rows of kind kernel_args.
	arguments int64
}

// countLostSegment counts the calls of a lost segment as lost instead of recorded. If the segment
// was not finished, it also discards the rows that are gathered for the segment.
func (w *Writer) countLostSegment(lost format.LostSegment) {
	rows, progress, host := &w.sinceRotate, &w.channelProgress.sinceRotate, &w.host.sinceRotate // in the open segments
	if i := slices.IndexFunc(
		w.pending,
		func(r rotationCallCounts) bool { return r.rotation == lost.Rotation },
	); i >= 0 {
		rows, progress, host = &w.pending[i].rows, &w.pending[i].progress, &w.pending[i].host
	} else {
		w.gathered[lost.Class] = w.gathered[lost.Class][:0]
		w.watch.seen[lost.Class] = 0
	}
	switch lost.Class {
	case format.ClassProgress:
		w.channelProgress.countLost(progress)
	case format.ClassHost:
		w.host.countLost(host)
	case format.ClassArguments:
		w.countLostArguments(lost.Rotation)
	}
	for class := range rows {
		if lost.Class == rowClassOfCall(bpf.CudaCallClass(class)) {
			w.counters.written[class] -= rows[class]
			w.counters.unwritten[class] += rows[class]
			rows[class] = 0
		}
	}
}

// writeRows writes rows of one class, unless an earlier write failed.
func (w *Writer) writeRows(c format.Class, rows []format.Row) {
	if w.failed == nil && len(rows) > 0 {
		w.writeAlways(c, rows)
	}
}

// writeAlways writes rows of one class, also after a failed write.
func (w *Writer) writeAlways(c format.Class, rows []format.Row) {
	if w.tap != nil {
		w.tap(c, rows)
	}
	if err := w.writer.Write(c, rows); err != nil {
		w.stopWriting(err)
	}
}

// flushCalls passes the gathered calls to the segment writer, also after a failed write, because
// the calls are already counted as recorded.
func (w *Writer) flushCalls() {
	w.watchGathered()
	for i := range w.gathered {
		if len(w.gathered[i]) > 0 {
			w.writeAlways(format.Class(i), w.gathered[i])
		}
		w.gathered[i] = w.gathered[i][:0]
		w.watch.seen[i] = 0
	}
}

// CurrentMeta returns the current metadata of the recording. It must be called by the row writer's
// goroutine, or after Wait.
func (w *Writer) CurrentMeta() format.Meta {
	meta, b := w.baseMeta(), &w.bounds
	meta.Ring = b.ringMeta(meta.StartNs)
	meta.EndNs = w.counters.clock.NowNs()
	meta.Calls = w.counters.callCounts()
	meta.Progress, meta.HostRows = w.channelProgress.counts(), w.host.counts()
	meta.KernelArgs = w.argumentCounts()
	if b.fromNs != 0 {
		meta.StartNs = b.fromNs
	}
	if b.endNs != 0 {
		meta.EndNs, meta.MaxBytes = b.endNs, b.limits.MaxBytes
	}
	return meta
}

// SetEndNs sets the end of the recording in Unix ns, unless the recording reached its size limit
// before. Safe for concurrent use.
func (w *Writer) SetEndNs(ns int64) { w.counters.endNs.CompareAndSwap(0, ns) }

// Wait waits until Run has returned, and frees the pool. All chunks must have been sent before Wait
// is called. No rows may be sent afterwards.
func (w *Writer) Wait() error {
	close(w.rows)
	<-w.done
	return w.pool.Close()
}
