//go:build linux

package rowwriter

import (
	"errors"
	"slices"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

// rotate makes what was written so far safe against a crash, as soon as the disk has time.
func (s *Writer) rotate() {
	s.flush()
	s.renameThreads()
	s.forgetEnded()
	s.dropOld()
	turn := s.writer.Rotation()
	s.unsure = append(s.unsure, turnRows{turn, s.sinceRotate})
	clear(s.sinceRotate[:])
	if err := s.writer.Rotate(s.MetaNow()); err != nil {
		s.fail(err)
	}
	sure := s.writer.FirstPendingRotation()
	s.unsure = slices.DeleteFunc(s.unsure, func(t turnRows) bool { return t.turn < sure })
	s.endTurn(turn)
}

// sync waits until everything that was rotated is on disk, or known not to be.
func (s *Writer) sync() {
	if err := s.writer.Flush(); err != nil {
		s.fail(err)
	}
}

// Finish writes the file, after Settle. With an error, of its own or err, it keeps the segments
// and returns the error.
func (s *Writer) Finish(meta format.Meta, err error) error {
	if err = errors.Join(err, s.failed); err == nil {
		return s.writer.Finish(meta)
	}
	s.leave(meta, err)
	return err
}

// Segments returns the folder of segments.
func (s *Writer) Segments() string { return s.writer.Dir() }

// Close frees what the Writer holds, after Wait.
func (s *Writer) Close() {
	s.stacks.Close()
	_ = s.writer.Close() // only a folder
}

// leave tells in the folder of segments why there is no file, with books that are right: those
// of the last rotation held what the disk refused. There may be no room even for that.
func (s *Writer) leave(meta format.Meta, why error) {
	_ = s.writer.Write(format.ClassFact, []format.Row{{
		Kind: format.KindNote, Name: "unfinished", StartNs: meta.EndNs, Device: -1, Message: "the recording was not " +
			"finished: " + why.Error(),
	}})
	_ = s.writer.Rotate(meta)
	_ = s.writer.Flush()
}

// fail gives up writing: rows from here on count as lost, and so do those of the
// segments that the error names.
func (s *Writer) fail(err error) {
	var segment *format.SegmentError
	if errors.As(err, &segment) {
		for _, lost := range segment.Segments {
			s.forget(lost)
		}
	}
	if s.failed == nil {
		s.failed = err
		s.onFailure(err)
	}
}

// turnRows are the calls that one rotation finished, by class.
type turnRows struct {
	turn int
	rows [bpf.CudaCallClassCLASS_COUNT]int64
}

// forget moves the calls of a lost segment from recorded to lost, and with those of an open one
// what was gathered for it.
func (s *Writer) forget(lost format.LostSegment) {
	rows := &s.sinceRotate // of the next rotation
	if i := slices.IndexFunc(s.unsure, func(t turnRows) bool { return t.turn == lost.Rotation }); i >= 0 {
		rows = &s.unsure[i].rows
	} else if gathered := lost.Class - format.ClassMemory; lost.Class >= format.ClassMemory {
		s.gathered[gathered] = s.gathered[gathered][:0]
	}
	for class := range rows {
		if lost.Class == rowClass(bpf.CudaCallClass(class)) {
			s.counters.written[class] -= rows[class]
			s.counters.unwritten[class] += rows[class]
			rows[class] = 0
		}
	}
}

func (s *Writer) write(c format.Class, rows []format.Row) {
	if s.failed == nil && len(rows) > 0 {
		s.put(c, rows)
	}
}

// put writes rows, also after a failure.
func (s *Writer) put(c format.Class, rows []format.Row) {
	if err := s.writer.Write(c, rows); err != nil {
		s.fail(err)
	}
}

// flush hands gathered calls to the writer, also those from before a failure: they are in the
// books as recorded.
func (s *Writer) flush() {
	for i := range s.gathered {
		s.put(format.ClassMemory+format.Class(i), s.gathered[i])
		s.gathered[i] = s.gathered[i][:0]
	}
}

// MetaNow returns the metadata as of now, after Wait.
func (s *Writer) MetaNow() format.Meta {
	meta, b := s.baseMeta(), &s.bounds
	meta.Ring = b.ringMeta(meta.StartNs)
	meta.EndNs = s.counters.clock.NowNs()
	meta.Calls = s.counters.calls()
	if b.fromNs != 0 {
		meta.StartNs = b.fromNs
	}
	if b.endNs != 0 {
		meta.EndNs, meta.MaxBytes = b.endNs, b.limits.MaxBytes
	}
	return meta
}

// EndAt sets the end of the recording, in Unix ns, unless it was full before. Safe for concurrent
// use.
func (s *Writer) EndAt(ns int64) { s.counters.endNs.CompareAndSwap(0, ns) }

// Wait waits for Run to end and frees the pool. All chunks must have been sent, and no rows may be
// sent any more.
func (s *Writer) Wait() error {
	close(s.rows)
	<-s.done
	return s.pool.Close()
}
