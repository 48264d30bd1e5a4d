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
func (s *Writer) do(f func()) bool {
	ran := make(chan struct{})
	select {
	case s.requests <- func() { f(); close(ran) }:
		<-ran
		return true
	case <-s.done:
		return false
	}
}

// BeginCapture begins to keep all events that the ring has. captures must be open until EndCapture has called
// Done. Safe for concurrent use.
func (s *Writer) BeginCapture(captures *os.Root, t *format.Trigger) (c *Capture, err error) {
	began := s.do(func() {
		s.updateCounters()
		s.rotateSegments()
		if err = s.failed; err != nil {
			return
		}
		c = &Capture{
			bounds: s.bounds.clone(), dropped: s.counters.dropped,
			progress: s.channelProgress.dropped, host: s.host.dropped, arguments: s.droppedArguments(),
			frozen: s.writer.Freeze(captures, t),
		}
		if s.live != nil {
			c.live = s.live.Snapshot()
		}
	})
	if !began {
		return nil, errEnded
	}
	return c, err
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
func (s *Writer) WatchReturns() { s.do(func() { s.returned = make(returnedCalls) }) }

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
func (s *Writer) EndCapture(c *Capture, end *CaptureEnd) {
	if !s.do(func() { s.endCapture(c, end) }) {
		end.Done(errEnded)
	}
}

func (s *Writer) endCapture(c *Capture, end *CaptureEnd) {
	s.handleWaitingInput()
	returned := s.returned
	s.returned = nil
	for _, known := range s.communicators {
		s.writeCommunicator(known)
	}
	s.updateCounters()
	s.rotateSegments()
	endNs := max(end.EndNs, s.bounds.lastNs)
	omitted := c.frozen.OmitBefore(end.Trigger.FromNs())
	c.bounds.drop(omitted, &c.dropped)
	for _, turn := range omitted {
		c.progress += turn.Rows[format.ClassProgress.String()]
		c.host += turn.Rows[format.ClassHost.String()]
		c.arguments += turn.Rows[format.ClassArguments.String()]
	}
	open := slices.DeleteFunc(end.Open, func(e bpf.CudaEvent) bool {
		_, ok := returned[callKey{e.Tid, e.StartNs}]
		return ok
	})
	earlier := c.takeEarlierMemory()
	totals := s.counters.currentTotals()
	totals.add(&c.dropped, -1)
	rows := s.makeOpenRows(open, endNs, &totals)
	rows[format.ClassMemory] = append(earlier, rows[format.ClassMemory]...)
	rows[format.ClassFact] = append(c.earlierMemoryNotes(slices.Clone(end.Facts), endNs), end.Trigger.Note())
	meta := s.CurrentMeta()
	meta.EndNs, meta.Calls, meta.Trigger = endNs, captureCounts(&totals, &c.dropped), end.Trigger
	if meta.StartNs = c.bounds.fromNs; meta.StartNs == 0 {
		meta.StartNs = meta.Ring.AttachedNs
	}
	meta.Ring.DroppedRows = c.bounds.rows
	meta.Progress, meta.HostRows = s.channelProgress.countsWithout(c.progress), s.host.countsWithout(c.host)
	meta.KernelArgs = s.argumentCountsWithout(c.arguments)
	c.frozen.Finish(meta, rows, end.Done)
}

// handleWaitingInput handles all records and rows that wait now.
func (s *Writer) handleWaitingInput() {
	for range len(s.Chunks) {
		chunk, ok := <-s.Chunks
		if !ok {
			break
		}
		s.decodeRecords(chunk)
		s.writeLaunchProgress()
		s.pool.PutChunk(chunk)
	}
	for range len(s.rows) {
		if r, ok := <-s.rows; ok {
			s.writeOtherRows(r)
		}
	}
	s.writeWaitingProgress()
	s.writeWaitingHost()
	s.writeWaitingCensuses()
}

// makeOpenRows returns the rows of calls that have not returned, by class, and adds them to totals.
func (s *Writer) makeOpenRows(open []bpf.CudaEvent, endNs int64, totals *callTotals) format.FrozenRows {
	rows, noTable := make(format.FrozenRows), s.counters.noTable
	probe.MarkCallsOpen(open, endNs-s.counters.clock.OffsetNs)
	for i := range open {
		e := &open[i]
		call, name, perThread, ok := bpf.FunctionByCookie(e.Call)
		if !ok {
			continue
		}
		var row format.Row
		s.fillColumns(&row, e, call, name)
		if perThread {
			row.Flags |= format.FlagPerThreadStream
		}
		class := rowClassOfCall(call.Class)
		rows[class] = append(rows[class], row)
		totals.written[call.Class]++
		totals.open[call.Class]++
	}
	for class := range noTable { // the rows are not those of the ring
		totals.noTable[class] += s.counters.noTable[class] - noTable[class]
	}
	s.counters.noTable = noTable
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
func (s *Writer) AddNote(row format.Row) {
	s.do(func() { s.writeRows(format.ClassFact, []format.Row{row}) })
}

// rowWatch shows the gathered rows to a watcher.
type rowWatch struct {
	watcher Watcher            // nil: none
	seen    [numRowClasses]int // rows of gathered that the watcher has seen
}

// watchGathered shows the rows that were gathered since the last call, and the time.
func (s *Writer) watchGathered() {
	if s.watch.watcher == nil {
		return
	}
	for class := range format.Class(numRowClasses) {
		s.watchClass(class)
	}
	s.watch.watcher.WatchTime(s.counters.clock.NowNs())
}

// watchClass shows the gathered rows of a class that the watcher has not seen.
func (s *Writer) watchClass(c format.Class) {
	if s.watch.watcher == nil || s.watch.seen[c] == len(s.gathered[c]) {
		return
	}
	s.followLiveMemory(c, s.gathered[c][s.watch.seen[c]:])
	s.watch.watcher.WatchRows(c, s.gathered[c][s.watch.seen[c]:])
	s.watch.seen[c] = len(s.gathered[c])
}
