//go:build linux

package rowwriter

import (
	"errors"
	"maps"
	"os"
	"slices"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/liveset"
	"github.com/gpurec/gpurec/record/probe"
)

// errEnded is the error of captures after the end of the recording.
var errEnded = errors.New("the recording has ended")

// Capture is a part of a ring that is being kept. Its counts are those of the ring when it began.
type Capture struct {
	frozen         *format.Frozen
	bounds         recordingBounds // what the ring had dropped before the capture
	dropped        callTotals
	progress, host int64 // dropped rows of these classes
	arguments      int64
	live           *liveset.Snapshot // nil: live memory is not followed
}

// do runs a function in the row writer's goroutine, and waits for it. It returns false if the goroutine has ended.
func (w *Writer) do(f func()) bool {
	ran := make(chan struct{})
	select {
	case w.requests <- func() { f(); close(ran) }:
		<-ran
		return true
	case <-w.done:
		return false
	}
}

// BeginCapture begins to keep all events that the ring has. captures must be open until EndCapture has called
// Done. Safe for concurrent use.
func (w *Writer) BeginCapture(captures *os.Root, t *format.Trigger) (c *Capture, err error) {
	began := w.do(func() {
		w.updateCounters()
		w.rotateSegments()
		if err = w.failed; err != nil {
			return
		}
		c = w.newCapture()
		c.frozen = w.writer.Freeze(captures, t)
		if w.live != nil {
			c.live = w.live.Snapshot()
		}
	})
	if !began {
		return nil, errEnded
	}
	return c, err
}

// newCapture returns a capture with the counts of now.
func (w *Writer) newCapture() *Capture {
	return &Capture{
		bounds: w.bounds.clone(), dropped: w.counters.dropped,
		progress: w.channelProgress.dropped, host: w.host.dropped, arguments: w.droppedArguments(),
	}
}

// clone copies the parts that drop changes.
func (b *recordingBounds) clone() recordingBounds {
	c := *b
	c.rotations, c.losses, c.rows = slices.Clone(b.rotations), slices.Clone(b.losses), maps.Clone(b.rows)
	c.exits = nil
	return c
}

// WatchReturns notes the calls that return from now on, until EndCapture. So a call is not both open and returned
// in the capture. Safe for concurrent use.
func (w *Writer) WatchReturns() { w.do(func() { w.returned = make(returnedCalls) }) }

// returnedCalls is a set of calls.
type returnedCalls map[callKey]struct{}

// callKey identifies a call.
type callKey struct {
	tid     uint32
	startNs uint64
}

func (r returnedCalls) add(e *bpf.CudaEvent) { r[callKey{e.Tid, e.StartNs}] = struct{}{} }

// CaptureEnd has the last rows of a capture.
type CaptureEnd struct {
	Trigger *format.Trigger
	// EndNs is the end in Unix ns. Records of all earlier returns have been sent to Chunks.
	EndNs int64
	// Open are the calls that had not returned at EndNs or later. WatchReturns must have been called before.
	Open []bpf.CudaEvent
	// Facts are rows of class fact, such as notes.
	Facts []format.Row
	// Done receives the result when the folder of the capture is complete. Another goroutine calls it.
	Done func(error)
}

// EndCapture ends a capture. Safe for concurrent use.
func (w *Writer) EndCapture(c *Capture, end *CaptureEnd) {
	if !w.do(func() { w.endCapture(c, end) }) {
		end.Done(errEnded)
	}
}

// TakeCapture keeps the events since end.Trigger.FromNs() until now, in one step. It works for recordings that are no
// ring, too. Safe for concurrent use.
func (w *Writer) TakeCapture(captures *os.Root, end *CaptureEnd) {
	if !w.do(func() { w.takeCapture(captures, end) }) {
		end.Done(errEnded)
	}
}

func (w *Writer) takeCapture(captures *os.Root, end *CaptureEnd) {
	returned := w.finishInput()
	if w.failed != nil {
		end.Done(w.failed)
		return
	}
	c := w.newCapture()
	frozen, omitted := w.writer.FreezeSince(captures, end.Trigger)
	c.frozen = frozen
	c.omit(omitted)
	if w.live != nil && c.bounds.gone >= 0 {
		c.live = w.live.Snapshot()
	}
	w.finishCapture(c, end, returned)
}

func (w *Writer) endCapture(c *Capture, end *CaptureEnd) {
	returned := w.finishInput()
	c.omit(c.frozen.OmitBefore(end.Trigger.FromNs()))
	w.finishCapture(c, end, returned)
}

// finishInput brings all rows that exist now into finished segments. It returns the calls that have returned since
// WatchReturns.
func (w *Writer) finishInput() returnedCalls {
	w.handleWaitingInput()
	returned := w.returned
	w.returned = nil
	for _, known := range w.communicators {
		w.writeCommunicator(known)
	}
	w.updateCounters()
	w.rotateSegments()
	return returned
}

// omit counts the rows of rotations that the capture leaves out as dropped.
func (c *Capture) omit(omitted []format.DroppedRotation) {
	c.bounds.drop(omitted, &c.dropped)
	for _, turn := range omitted {
		c.progress += turn.Rows[format.ClassProgress.String()]
		c.host += turn.Rows[format.ClassHost.String()]
		c.arguments += turn.Rows[format.ClassArguments.String()]
	}
}

// finishCapture writes the last rows of a capture, and its counts.
func (w *Writer) finishCapture(c *Capture, end *CaptureEnd, returned returnedCalls) {
	endNs := max(end.EndNs, w.bounds.lastNs)
	open := slices.DeleteFunc(end.Open, func(e bpf.CudaEvent) bool {
		_, ok := returned[callKey{e.Tid, e.StartNs}]
		return ok
	})
	earlier := c.takeEarlierMemory()
	totals := w.counters.currentTotals()
	totals.add(&c.dropped, -1)
	rows := w.makeOpenRows(open, endNs, &totals)
	rows[format.ClassMemory] = append(earlier, rows[format.ClassMemory]...)
	rows[format.ClassFact] = append(c.earlierMemoryNotes(slices.Clone(end.Facts), endNs), end.Trigger.Note())
	meta := w.CurrentMeta()
	meta.EndNs, meta.Calls, meta.Trigger = endNs, captureCounts(&totals, &c.dropped), end.Trigger
	if attachedNs := w.baseMeta().StartNs; c.bounds.fromNs == 0 {
		meta.StartNs = attachedNs
	} else {
		meta.StartNs = c.bounds.fromNs
		if meta.Ring == nil { // old events are left out as those of a ring
			meta.Ring = &format.Ring{AttachedNs: attachedNs}
		}
	}
	if meta.Ring != nil {
		meta.Ring.DroppedRows = c.bounds.rows
	}
	meta.Progress, meta.HostRows = w.channelProgress.countsWithout(c.progress), w.host.countsWithout(c.host)
	meta.KernelArgs = w.argumentCountsWithout(c.arguments)
	c.frozen.Finish(meta, rows, end.Done)
}

// handleWaitingInput handles all records and rows that wait now.
func (w *Writer) handleWaitingInput() {
	for range len(w.Chunks) {
		chunk, ok := <-w.Chunks
		if !ok {
			break
		}
		w.decodeRecords(chunk)
		w.writeLaunchProgress()
		w.pool.PutChunk(chunk)
	}
	for range len(w.rows) {
		if r, ok := <-w.rows; ok {
			w.writeOtherRows(r)
		}
	}
	w.writeWaitingProgress()
	w.writeWaitingHost()
	w.writeWaitingCensuses()
}

// makeOpenRows returns the rows of calls that have not returned, by class, and adds them to totals.
func (w *Writer) makeOpenRows(open []bpf.CudaEvent, endNs int64, totals *callTotals) format.FrozenRows {
	rows, noTable := make(format.FrozenRows), w.counters.noTable
	probe.MarkCallsOpen(open, endNs-w.counters.clock.OffsetNs)
	for i := range open {
		e := &open[i]
		call, name, perThread, ok := bpf.FunctionByCookie(e.Call)
		if !ok {
			continue
		}
		var row format.Row
		w.fillColumns(&row, e, call, name)
		if perThread {
			row.Flags |= format.FlagPerThreadStream
		}
		class := rowClassOfCall(call.Class)
		rows[class] = append(rows[class], row)
		totals.written[call.Class]++
		totals.open[call.Class]++
	}
	for class := range noTable { // the rows are not those of the ring
		totals.noTable[class] += w.counters.noTable[class] - noTable[class]
	}
	w.counters.noTable = noTable
	return rows
}

// captureCounts returns the counts of a capture by name of class. All calls that are neither recorded nor lost
// return after the capture, so that they are not seen in it.
func captureCounts(totals, dropped *callTotals) map[string]format.CallCount {
	calls := make(map[string]format.CallCount)
	for class, name := range CallClassNames {
		c := format.CallCount{
			Recorded: totals.written[class], Open: totals.open[class], Abandoned: totals.abandoned[class],
			Lost: totals.lost[class], Counted: totals.counted[class], NoTable: totals.noTable[class],
			Dropped: dropped.written[class] + dropped.lost[class],
		}
		c.Seen = c.Recorded + c.Lost + c.Dropped
		if c != (format.CallCount{}) {
			calls[name] = c
		}
	}
	return calls
}

// AddNote writes a row of class fact, unless the recording has ended. Safe for concurrent use.
func (w *Writer) AddNote(row format.Row) {
	w.do(func() { w.writeRows(format.ClassFact, []format.Row{row}) })
}

// rowWatch shows the gathered rows to a watcher.
type rowWatch struct {
	watcher Watcher            // nil: none
	seen    [numRowClasses]int // rows of gathered that the watcher has seen
}

// watchGathered shows the rows that were gathered since the last call, and the time.
func (w *Writer) watchGathered() {
	if w.watch.watcher == nil {
		return
	}
	for class := range format.Class(numRowClasses) {
		w.watchClass(class)
	}
	w.watch.watcher.WatchTime(w.counters.clock.NowNs())
}

// watchClass shows the gathered rows of a class that the watcher has not seen.
func (w *Writer) watchClass(c format.Class) {
	if w.watch.watcher == nil || w.watch.seen[c] == len(w.gathered[c]) {
		return
	}
	w.followLiveMemory(c, w.gathered[c][w.watch.seen[c]:])
	w.watch.watcher.WatchRows(c, w.gathered[c][w.watch.seen[c]:])
	w.watch.seen[c] = len(w.gathered[c])
}
