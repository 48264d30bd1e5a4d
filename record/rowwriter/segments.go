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
func (s *Writer) rotateSegments() {
	s.flushCalls()
	s.writeChangedThreadNames()
	s.forgetExitedProcesses()
	s.dropOldRotations()
	rotation := s.writer.Rotation()
	s.pending = append(s.pending, rotationCallCounts{
		rotation, s.sinceRotate, s.channelProgress.sinceRotate, s.host.sinceRotate, s.argumentsSinceRotate(),
	})
	clear(s.sinceRotate[:])
	s.channelProgress.sinceRotate, s.host.sinceRotate = 0, 0
	if err := s.writer.Rotate(s.CurrentMeta()); err != nil {
		s.stopWriting(err)
	}
	stored := s.writer.FirstPendingRotation()
	s.pending = slices.DeleteFunc(s.pending, func(r rotationCallCounts) bool { return r.rotation < stored })
	s.storeRotationTotals(rotation)
}

// waitForSegments waits until all finished segments are on disk, or could not be written.
func (s *Writer) waitForSegments() {
	if err := s.writer.Flush(); err != nil {
		s.stopWriting(err)
	}
}

// Finish writes the final file, after WriteOpenCalls. On an error, of its own or err, it keeps the
// segments and returns the error.
func (s *Writer) Finish(meta format.Meta, err error) error {
	if err = errors.Join(err, s.failed); err == nil {
		return s.writer.Finish(meta)
	}
	s.keepUnfinishedSegments(meta, err)
	return err
}

// Leave ends the recording without a final file, after WriteOpenCalls: the segments stay. It returns err, or the
// first write error.
func (s *Writer) Leave(meta format.Meta, err error) error {
	return errors.Join(err, s.failed, s.writer.Rotate(meta), s.writer.Flush())
}

// SegmentFolder returns the folder of the recording's segments.
func (s *Writer) SegmentFolder() string { return s.writer.Dir() }

// Close releases the resources of the Writer. It must be called after Wait.
func (s *Writer) Close() {
	s.stacks.Close()
	_ = s.writer.Close() // only closes the folder of the segments
}

// keepUnfinishedSegments writes to the segments the reason for a missing final file, and the final
// counts: those of the last rotation include rows that could not be written. It ignores its own
// errors, because the disk may be full.
func (s *Writer) keepUnfinishedSegments(meta format.Meta, why error) {
	_ = s.writer.Write(format.ClassFact, []format.Row{{
		Kind: format.KindNote, Name: "unfinished", StartNs: meta.EndNs, Device: -1, Message: "the recording was not " +
			"finished: " + why.Error(),
	}})
	_ = s.writer.Rotate(meta)
	_ = s.writer.Flush()
}

// stopWriting stops writing rows to the recording. Rows from now on count as lost, as do the rows
// of the segments that the error names.
func (s *Writer) stopWriting(err error) {
	var segment *format.SegmentError
	if errors.As(err, &segment) {
		for _, lost := range segment.Segments {
			s.countLostSegment(lost)
		}
	}
	if s.failed == nil {
		s.failed = err
		s.onFailure(err)
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
func (s *Writer) countLostSegment(lost format.LostSegment) {
	rows, progress, host := &s.sinceRotate, &s.channelProgress.sinceRotate, &s.host.sinceRotate // in the open segments
	if i := slices.IndexFunc(
		s.pending,
		func(r rotationCallCounts) bool { return r.rotation == lost.Rotation },
	); i >= 0 {
		rows, progress, host = &s.pending[i].rows, &s.pending[i].progress, &s.pending[i].host
	} else {
		s.gathered[lost.Class] = s.gathered[lost.Class][:0]
		s.watch.seen[lost.Class] = 0
	}
	switch lost.Class {
	case format.ClassProgress:
		s.channelProgress.countLost(progress)
	case format.ClassHost:
		s.host.countLost(host)
	case format.ClassArguments:
		s.countLostArguments(lost.Rotation)
	}
	for class := range rows {
		if lost.Class == rowClassOfCall(bpf.CudaCallClass(class)) {
			s.counters.written[class] -= rows[class]
			s.counters.unwritten[class] += rows[class]
			rows[class] = 0
		}
	}
}

// writeRows writes rows of one class, unless an earlier write failed.
func (s *Writer) writeRows(c format.Class, rows []format.Row) {
	if s.failed == nil && len(rows) > 0 {
		s.writeAlways(c, rows)
	}
}

// writeAlways writes rows of one class, also after a failed write.
func (s *Writer) writeAlways(c format.Class, rows []format.Row) {
	if s.tap != nil {
		s.tap(c, rows)
	}
	if err := s.writer.Write(c, rows); err != nil {
		s.stopWriting(err)
	}
}

// flushCalls passes the gathered calls to the segment writer, also after a failed write, because
// the calls are already counted as recorded.
func (s *Writer) flushCalls() {
	s.watchGathered()
	for i := range s.gathered {
		if len(s.gathered[i]) > 0 {
			s.writeAlways(format.Class(i), s.gathered[i])
		}
		s.gathered[i] = s.gathered[i][:0]
		s.watch.seen[i] = 0
	}
}

// CurrentMeta returns the current metadata of the recording. It must be called by the row writer's
// goroutine, or after Wait.
func (s *Writer) CurrentMeta() format.Meta {
	meta, b := s.baseMeta(), &s.bounds
	meta.Ring = b.ringMeta(meta.StartNs)
	meta.EndNs = s.counters.clock.NowNs()
	meta.Calls = s.counters.callCounts()
	meta.Progress, meta.HostRows = s.channelProgress.counts(), s.host.counts()
	meta.KernelArgs = s.argumentCounts()
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
func (s *Writer) SetEndNs(ns int64) { s.counters.endNs.CompareAndSwap(0, ns) }

// Wait waits until Run has returned, and frees the pool. All chunks must have been sent before Wait
// is called. No rows may be sent afterwards.
func (s *Writer) Wait() error {
	close(s.rows)
	<-s.done
	return s.pool.Close()
}
