//go:build linux

package rowwriter

import (
	"maps"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/probe"
)

// callTotals are cumulative counts of calls, by class.
type callTotals struct {
	written, open, abandoned, counted, noTable, lost [bpf.CudaCallClassCLASS_COUNT]int64
}

// add adds n times the call counts of o to b.
func (t *callTotals) add(o *callTotals, n int64) {
	for c := range t.written {
		t.written[c] += n * o.written[c]
		t.open[c] += n * o.open[c]
		t.abandoned[c] += n * o.abandoned[c]
		t.counted[c] += n * o.counted[c]
		t.noTable[c] += n * o.noTable[c]
		t.lost[c] += n * o.lost[c]
	}
}

// rotationTotals counts the calls in the segments of one rotation, and the losses since the
// rotation before.
type rotationTotals struct {
	number int
	atNs   int64 // Unix time at which the loss counters were read
	callTotals
}

// recordingBounds keeps a recording within its size and age limits. It deletes the oldest rotations
// of a ring recording, or ends any other recording. Only the row writer's goroutine uses it.
type recordingBounds struct {
	limits    format.Limits
	last      callTotals       // totals at the last rotation
	rotations []rotationTotals // on disk, oldest first
	// losses are the losses of deleted rotations that may have happened after fromNs.
	losses []rotationTotals
	rows   map[string]int64 // deleted rows, by class of row groups
	gone   int              // number of the latest deleted rotation; -1: none was deleted
	// fromNs is the Unix time from which the ring has all events; 0: no rotation was deleted.
	fromNs int64
	// lastNs is the end of the latest call. endNs is the time at which the recording reached its
	// size limit, 0: not yet. Both are Unix ns.
	lastNs, endNs int64
	// exits has the exit time of each exited process to which a row may still refer.
	exits map[int32]int64
}

func newRecordingBounds(l format.Limits) recordingBounds {
	return recordingBounds{limits: l, rows: make(map[string]int64), exits: make(map[int32]int64), gone: -1}
}

// maxRowDelayAfterExit is how long after a process's exit its last rows may arrive: events in the
// ring buffer, and open calls, which ReapThreads finds.
const maxRowDelayAfterExit = 3 * probe.ThreadReapInterval

// enforceLimits rotates early if the current segments become too large for the limits, and ends a
// recording that has reached its size limit.
func (w *Writer) enforceLimits() {
	if w.bounds.endNs != 0 || w.failed != nil || !w.writer.ShouldRotate() && !w.writer.Full() {
		return
	}
	w.rotateSegments()
	if w.failed != nil || !w.writer.Full() {
		return
	}
	w.updateCounters()
	w.bounds.endNs = max(w.bounds.lastNs, 1)
	w.counters.endAt(w.bounds.endNs)
	w.writeRows(format.ClassFact, []format.Row{
		{
			Kind:    format.KindNote,
			Name:    "max_size",
			StartNs: w.bounds.endNs,
			Value:   float64(w.bounds.limits.MaxBytes),
			Device:  -1,
			Message: "the recording has reached its maximum size and ended here (--max-size, --ring)",
		},
	})
	w.onFull()
}

// clipCallToEnd reports whether a call began before the recording reached its size limit. A call
// that returned after that time becomes an open call.
func (w *Writer) clipCallToEnd(e *bpf.CudaEvent) bool {
	start := w.counters.clock.UnixNs(e.StartNs)
	if start >= w.bounds.endNs {
		return false
	}
	if left := uint64(w.bounds.endNs - start); e.DurNs > left {
		e.Ptr, e.Bytes = probe.EntryPtrAndBytes(e)
		e.DurNs, e.Result = left, 0
		e.Flags |= uint8(bpf.CudaEventFlagsEVENT_OPEN)
	}
	return true
}

// dropOldRotations deletes the oldest rotations of a ring recording that exceed its limits.
func (w *Writer) dropOldRotations() {
	b := &w.bounds
	now := w.counters.endNs.Load()
	if now == 0 {
		now = w.counters.clock.NowNs()
	}
	dropped := w.writer.DropOldRotations(now)
	b.drop(dropped, &w.counters.dropped)
	for _, turn := range dropped {
		w.channelProgress.dropped += turn.Rows[format.ClassProgress.String()]
		w.host.dropped += turn.Rows[format.ClassHost.String()]
		if w.arguments != nil {
			w.arguments.dropped += turn.Rows[format.ClassArguments.String()]
		}
	}
}

// drop removes rotations, the oldest first, and adds their calls and losses to totals.
func (b *recordingBounds) drop(dropped []format.DroppedRotation, totals *callTotals) {
	for _, turn := range dropped {
		b.fromNs = max(b.fromNs, turn.LastNs)
		b.gone = max(b.gone, turn.Number)
		for class, n := range turn.Rows {
			b.rows[class] += n
		}
		for len(b.rotations) > 0 && b.rotations[0].number <= turn.Number {
			losses := rotationTotals{atNs: b.rotations[0].atNs, callTotals: callTotals{lost: b.rotations[0].lost}}
			b.rotations[0].lost = [len(losses.lost)]int64{}
			totals.add(&b.rotations[0].callTotals, 1)
			if losses.lost != b.rotations[0].lost {
				b.losses = append(b.losses, losses)
			}
			b.rotations = b.rotations[1:]
		}
	}
	for len(b.losses) > 0 && b.losses[0].atNs <= b.fromNs {
		totals.add(&b.losses[0].callTotals, 1)
		b.losses = b.losses[1:]
	}
}

// storeRotationTotals stores the call totals of the rotation that has just ended, for a ring
// recording and for captures.
func (w *Writer) storeRotationTotals(number int) {
	b := &w.bounds
	if !b.limits.Ring && w.live == nil {
		return
	}
	now := w.counters.currentTotals()
	totals := rotationTotals{number: number, atNs: w.counters.lastNs, callTotals: now}
	totals.add(&b.last, -1)
	b.last = now
	b.rotations = append(b.rotations, totals)
	if w.failed == nil && w.writer.ShouldCompact() {
		w.compactSegments()
	}
}

// compactSegments joins segments of facts and stacks. Of a ring recording, it removes rows to which no remaining event can
// refer.
func (w *Writer) compactSegments() {
	b := &w.bounds
	gone := func(pid int32) bool {
		exit, ended := b.exits[pid]
		return ended && pid != 0 && exit < b.fromNs-int64(maxRowDelayAfterExit)
	}
	err := w.writer.Compact(w.CurrentMeta(), func(r *format.Row) bool {
		switch r.Kind {
		case format.KindLost:
			return r.StartNs+r.DurNs <= b.fromNs
		case format.KindProcess, format.KindThread, format.KindKernel, format.KindChannel, format.KindStack,
			format.KindStackAlias, format.KindNote:
			return gone(r.Pid)
		}
		return false
	})
	if err != nil {
		w.stopWriting(err)
	}
	maps.DeleteFunc(b.exits, func(pid int32, _ int64) bool { return gone(pid) })
}

// WriteOpenCalls writes the calls that have not returned. It must be called after Wait. It waits
// until the segments are on disk, and deletes rotations that exceed a ring's limits.
func (w *Writer) WriteOpenCalls(open []bpf.CudaEvent) {
	for i := range open {
		w.addCall(&open[i])
	}
	w.updateCounters()
	w.writeChangedThreadNames()
	w.rotateSegments()
	w.waitForSegments()
	if !w.bounds.limits.Ring || w.failed != nil {
		return
	}
	if w.bounds.fromNs != 0 {
		w.compactSegments()
		w.waitForSegments()
	}
	w.dropOldRotations() // now the exact sizes of the segments are known
}

// ringMeta returns the metadata of a ring recording, nil for other recordings.
func (b *recordingBounds) ringMeta(attachedNs int64) *format.Ring {
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

// noteProcessExit records a process's exit time, or deletes the exit time when the pid is reused.
func (w *Writer) noteProcessExit(pid int32, exited bool, now int64) {
	if !exited {
		delete(w.exited, pid)
		delete(w.bounds.exits, pid)
		return
	}
	w.exited[pid] = now
	if w.bounds.limits.Ring {
		w.bounds.exits[pid] = now
	}
}

// forgetExitedProcesses deletes state of processes that exited so long ago that no more rows of
// them can arrive. Otherwise the state would grow with every short process.
func (w *Writer) forgetExitedProcesses() {
	before := w.counters.clock.NowNs() - int64(maxRowDelayAfterExit)
	gone := make(map[int32]bool)
	for pid, at := range w.exited {
		if at < before {
			gone[pid] = true
			delete(w.exited, pid)
			w.forgetLiveMemory(pid)
		}
	}
	if len(gone) == 0 {
		return
	}
	w.forgetArguments(gone) // it needs the names
	w.stacks.ForgetProcesses(gone)
	w.captures.forgetProcesses(gone)
	maps.DeleteFunc(w.threads, func(_ int32, t *knownThread) bool { return gone[t.pid] })
	w.names.forgetProcesses(gone)
}
