//go:build linux

package rowwriter

import (
	"maps"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/probe"
)

// books are cumulative counts by class of call.
type books struct {
	written, open, abandoned, counted, lost [bpf.CudaCallClassCLASS_COUNT]int64
}

// add adds n times what o says.
func (b *books) add(o *books, n int64) {
	for c := range b.written {
		b.written[c] += n * o.written[c]
		b.open[c] += n * o.open[c]
		b.abandoned[c] += n * o.abandoned[c]
		b.counted[c] += n * o.counted[c]
		b.lost[c] += n * o.lost[c]
	}
}

// turnBooks are the calls of what one rotation finished, and what was lost meanwhile.
type turnBooks struct {
	number int
	atNs   int64 // Unix ns until when losses are in the books
	books
}

// bounds keeps a recording within its limits: it drops the oldest turns of a ring, or ends
// the recording. Only the row writer uses it.
type bounds struct {
	limits format.Limits
	last   books       // as of the last rotation
	turns  []turnBooks // that are on disk
	// losses are those of dropped turns that may have happened after fromNs.
	losses []turnBooks
	rows   map[string]int64 // dropped, by class of row groups
	// fromNs is the time from which on the ring has all events, 0: nothing was dropped.
	fromNs int64
	// lastNs is when the last event so far ended, endNs when the recording was full (0: it
	// is not).
	lastNs, endNs int64
	// exits are the processes that have ended, for as long as a row may refer to them.
	exits map[int32]int64
}

func newBounds(l format.Limits) bounds {
	return bounds{limits: l, rows: make(map[string]int64), exits: make(map[int32]int64)}
}

// lateRows is how long after a process has ended rows of it may still be written: its last
// events, and calls that it was in, which are found by and by.
const lateRows = 3 * probe.ReapInterval

// keepBounds rotates early where segments would get too large for the limits, and ends the
// recording when it is full.
func (s *Writer) keepBounds() {
	if s.bounds.endNs != 0 || s.failed != nil || !s.writer.ShouldRotate() && !s.writer.Full() {
		return
	}
	s.rotate()
	if s.failed != nil || !s.writer.Full() {
		return
	}
	s.look()
	s.bounds.endNs = max(s.bounds.lastNs, 1)
	s.counters.end(s.bounds.endNs)
	s.write(format.ClassFact, []format.Row{
		{
			Kind:    format.KindNote,
			Name:    "max_size",
			StartNs: s.bounds.endNs,
			Value:   float64(s.bounds.limits.MaxBytes),
			Device:  -1,
			Message: "the recording ended here because it had reached its greatest size (--max-size, --ring)",
		},
	})
	s.onFull()
}

// clip says whether a call belongs into a recording that was full at endNs, and makes it
// an open one if it returned later.
func (s *Writer) clip(e *bpf.CudaEvent) bool {
	start := s.counters.clock.UnixNs(e.StartNs)
	if start >= s.bounds.endNs {
		return false
	}
	if left := uint64(s.bounds.endNs - start); e.DurNs > left {
		e.Ptr, e.Bytes = probe.KnownWhileOpen(e)
		e.DurNs, e.Result = left, 0
		e.Flags |= uint8(bpf.CudaEventFlagsEVENT_OPEN)
	}
	return true
}

// dropOld takes out of a ring what its limits have no room for.
func (s *Writer) dropOld() {
	b := &s.bounds
	now := s.counters.endNs.Load()
	if now == 0 {
		now = s.counters.clock.NowNs()
	}
	for _, turn := range s.writer.Drop(now) {
		b.fromNs = max(b.fromNs, turn.LastNs)
		for class, n := range turn.Rows {
			b.rows[class] += n
		}
		for len(b.turns) > 0 && b.turns[0].number <= turn.Number {
			losses := turnBooks{atNs: b.turns[0].atNs, books: books{lost: b.turns[0].lost}}
			b.turns[0].lost = [len(losses.lost)]int64{}
			s.counters.dropped.add(&b.turns[0].books, 1)
			if losses.lost != b.turns[0].lost {
				b.losses = append(b.losses, losses)
			}
			b.turns = b.turns[1:]
		}
	}
	for len(b.losses) > 0 && b.losses[0].atNs <= b.fromNs {
		s.counters.dropped.add(&b.losses[0].books, 1)
		b.losses = b.losses[1:]
	}
}

// endTurn notes what the rotation that has just been has finished.
func (s *Writer) endTurn(number int) {
	b := &s.bounds
	if !b.limits.Ring {
		return
	}
	now := s.counters.books()
	turn := turnBooks{number: number, atNs: s.counters.lastNs, books: now}
	turn.add(&b.last, -1)
	b.last = now
	b.turns = append(b.turns, turn)
	if s.failed == nil && s.writer.ShouldCompact() {
		s.compact()
	}
}

// compact joins the segments of facts and stacks, without what no event in the ring can
// refer to any more.
func (s *Writer) compact() {
	b := &s.bounds
	gone := func(pid int32) bool {
		exit, ended := b.exits[pid]
		return ended && pid != 0 && exit < b.fromNs-int64(lateRows)
	}
	err := s.writer.Compact(s.MetaNow(), func(r *format.Row) bool {
		switch r.Kind {
		case format.KindLost:
			return r.StartNs+r.DurNs <= b.fromNs
		case format.KindProcess, format.KindThread, format.KindKernel, format.KindStack, format.KindNote:
			return gone(r.Pid)
		}
		return false
	})
	if err != nil {
		s.fail(err)
	}
	maps.DeleteFunc(b.exits, func(pid int32, _ int64) bool { return gone(pid) })
}

// Settle writes the calls that have not returned, after Wait. It waits for the disk, and drops
// what a ring has no room for.
func (s *Writer) Settle(open []bpf.CudaEvent) {
	for i := range open {
		s.add(&open[i])
	}
	s.look()
	s.renameThreads()
	s.rotate()
	s.sync()
	if !s.bounds.limits.Ring || s.failed != nil {
		return
	}
	if s.bounds.fromNs != 0 {
		s.compact()
		s.sync()
	}
	s.dropOld() // by what the segments have really come to
}

// ringMeta is what the metadata says about a ring, nil if it is none.
func (b *bounds) ringMeta(attachedNs int64) *format.Ring {
	if !b.limits.Ring {
		return nil
	}
	return &format.Ring{
		KeepNs:      b.limits.KeepNs,
		MaxBytes:    b.limits.MaxBytes,
		AttachedNs:  attachedNs,
		DroppedRows: maps.Clone(b.rows),
	}
}

// noteExit remembers that a process has ended, or that its number is in use again.
func (s *Writer) noteExit(pid int32, exited bool, now int64) {
	if !exited {
		delete(s.ended, pid)
		delete(s.bounds.exits, pid)
		return
	}
	s.ended[pid] = now
	if s.bounds.limits.Ring {
		s.bounds.exits[pid] = now
	}
}

// forgetEnded drops what is known of processes that ended so long ago that nothing of
// them can come any more: else a recorder of many short processes would grow with each.
func (s *Writer) forgetEnded() {
	before := s.counters.clock.NowNs() - int64(lateRows)
	gone := make(map[int32]bool)
	for pid, at := range s.ended {
		if at < before {
			gone[pid] = true
			delete(s.ended, pid)
		}
	}
	if len(gone) == 0 {
		return
	}
	s.stacks.Forget(gone)
	s.captures.forget(gone)
	maps.DeleteFunc(s.threads, func(_ int32, t *knownThread) bool { return gone[t.pid] })
	s.names.forget(gone)
}
