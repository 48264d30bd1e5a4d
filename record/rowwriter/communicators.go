//go:build linux

package rowwriter

import (
	"encoding/json"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/communicator"
	"github.com/gpurec/gpurec/record/probe"
)

// communicators are the last communicators at each address of a process.
type communicators map[communicatorKey]*knownCommunicator

type communicatorKey struct {
	pid uint32
	ptr uint64
}

// maxCommunicators bounds the number of known communicators. Later ones have no identity.
const maxCommunicators = 65536

// knownCommunicator is a communicator with the columns of its rows.
type knownCommunicator struct {
	communicatorKey
	epoch      uint32 // of its address, see probe.Communicator
	fact       format.CommunicatorFact
	id         int64 // 0: unknown
	fromNs     int64 // Unix ns
	rank, size int32
	device     int32
	layout     *communicator.Layout
	tries      int  // readings of a communicator that was not initialized
	hasCounts  bool // its library counts collectives
	countTries int  // readings of these counts because of a row
	before     countRange
	isUncalled bool // found by a census, without a recorded call
}

// Reasons why a communicator has no identity.
const (
	missingEnded  = "the communicator ended before its memory was read"
	missingLayout = "the memory of the communicator has no known layout"
	missingInit   = "the communicator was not initialized when it was read"
	missingLimit  = "there are too many communicators"

	missingOneRank = "NCCL does not count the collectives of a communicator with one rank"
	missingCounts  = "this version of NCCL does not count its collectives"
)

// maxTries bounds how often a communicator is read that is not initialized, or of an unknown version.
const maxTries = 8

// maxCountTries bounds how often the counters of an older communicator are read because of a row. They are read every
// counterReadInterval, too.
const maxCountTries = 256

// communicatorHow has how a communicator came to be by the function that made it.
var communicatorHow = map[string]string{
	"ncclCommSplit": format.CommunicatorSplit, "ncclCommShrink": format.CommunicatorShrink,
	"ncclCommGrow": format.CommunicatorGrow,
}

// addCommunicator adds the new communicator of a call.
func (w *Writer) addCommunicator(row *format.Row, e *bpf.CudaEvent, call *bpf.ProbedFunction) *knownCommunicator {
	c := &knownCommunicator{
		communicatorKey: communicatorKey{e.Pid, e.Ptr}, epoch: e.SharedBytes, fromNs: row.StartNs, device: row.Device,
	}
	c.fact.How, c.fact.Numbering = communicatorHow[call.Name], format.NumberingExact
	if c.fact.How == "" {
		c.fact.How = format.CommunicatorInit
	}
	if call.Value != (bpf.CudaArgSpec{}) {
		c.rank, c.size = int32(e.Grid[0]), int32(e.Bytes)
	}
	if hasUniqueID(call) {
		c.fact.UniqueID = int64(e.Src)
	} else if parent := w.parentOf(e); parent != nil {
		c.fact.Parent = parent.id
	}
	w.storeCommunicator(c)
	return c
}

// communicatorOf returns the communicator of a call.
func (w *Writer) communicatorOf(e *bpf.CudaEvent, startNs int64) *knownCommunicator {
	key := communicatorKey{e.Pid, e.Ptr}
	c := w.communicators[key]
	switch {
	case c != nil && c.isUncalled && e.SharedBytes%2 == 0:
		w.addFirstCall(c, e)
		return c
	case c != nil && c.isUncalled: // the call is of a newer one
	case c != nil && c.epoch == e.SharedBytes:
		if c.id == 0 && w.read(c) {
			w.writeCommunicator(c)
		}
		if c.fact.Numbering == format.NumberingRelative && c.countTries < maxCountTries {
			c.countTries++
			w.compareNumbers(c)
		}
		return c
	case c != nil && c.epoch > e.SharedBytes: // a late row: another communicator has the address
		return &knownCommunicator{communicatorKey: key}
	}
	c = &knownCommunicator{communicatorKey: key, epoch: e.SharedBytes, fromNs: startNs, device: int32(e.Device)}
	c.before = newCountRange()
	c.fact.How, c.fact.Numbering = format.CommunicatorOlder, format.NumberingRelative
	if c.beganRecorded() { // its row is that of ncclCommInitAll, or was lost
		c.fact.How, c.fact.Numbering = format.CommunicatorInit, format.NumberingExact
	}
	w.storeCommunicator(c)
	return c
}

// addFirstCall notes that a communicator of a census has a recorded call: its numbers are found as those of others.
func (w *Writer) addFirstCall(c *knownCommunicator, e *bpf.CudaEvent) {
	c.isUncalled, c.epoch, c.device, c.before = false, e.SharedBytes, int32(e.Device), newCountRange()
	c.fact.Numbering, c.fact.Before = format.NumberingRelative, 0
	w.compareNumbers(c)
	w.writeCommunicator(c)
}

// storeCommunicator reads a new communicator, writes its fact, and keeps it for later rows.
func (w *Writer) storeCommunicator(c *knownCommunicator) {
	if len(w.communicators) >= maxCommunicators && w.communicators[c.communicatorKey] == nil {
		c.fact.Missing = missingLimit
		return
	}
	w.communicators[c.communicatorKey] = c
	w.read(c)
	w.writeCommunicator(c)
	w.compareNumbers(c)
}

// beganRecorded reports whether the probes saw the beginning of the communicator.
func (c *knownCommunicator) beganRecorded() bool { return c.epoch%2 == 1 }

// hasEnded reports whether a call ended the communicator.
func (c *knownCommunicator) hasEnded() bool {
	return c.fact.End == format.CommunicatorDestroyed || c.fact.End == format.CommunicatorAborted
}

// communicatorAt returns what the probes know about a communicator. ok is true if it certainly has its address now, so
// that what was read before is its own memory.
func (w *Writer) communicatorAt(c *knownCommunicator) (now probe.Communicator, ok bool) {
	now, ok = w.counters.probes.CommunicatorAt(c.pid, c.ptr)
	return now, ok && now.Epoch == c.epoch
}

// read reads identity, rank and size from the memory of the process, and reports whether it could.
func (w *Writer) read(c *knownCommunicator) bool {
	if c.tries == maxTries || c.hasEnded() {
		return false
	}
	c.tries++
	layout, ok := communicator.FindLayout(int(c.pid), c.ptr)
	var state communicator.State
	c.fact.Missing = missingLayout
	if ok {
		c.fact.Missing = missingInit
		state, ok = layout.Read(int(c.pid), c.ptr)
	}
	if _, isOwn := w.communicatorAt(c); !isOwn {
		c.fact.Missing, c.tries = missingEnded, maxTries
		return false
	}
	if !ok {
		return false
	}
	c.layout, c.id, c.rank, c.size = layout, int64(state.Hash), state.Rank, state.Size
	c.hasCounts = state.HasCounts
	c.fact.Version, c.fact.Missing = layout.Version, ""
	return true
}

// countBefore bounds the collectives before the first recorded one, by the library's counters. The library counts a
// collective at its launch, after the probes have. Collectives that began during the reading leave no upper bound.
func (w *Writer) countBefore(c *knownCommunicator) (low, high int64, ok bool) {
	if !c.hasCounts || c.size < 2 || c.hasEnded() {
		return 0, 0, false
	}
	first, ok := w.communicatorAt(c)
	if !ok {
		return 0, 0, false
	}
	inFlight := w.counters.probes.CollectivesInFlight(first.Thread)
	state, ok := c.layout.Read(int(c.pid), c.ptr)
	if !ok {
		return 0, 0, false
	}
	last, ok := w.communicatorAt(c)
	if last != first {
		inFlight = probe.UnknownInFlight
	}
	launched := int64(state.Launched())
	return launched - int64(last.Counted), launched - int64(first.Counted) + inFlight, ok
}

// compareNumbers finds the number of collectives of an older communicator before the recording, and compares it with
// later readings. Calls that the library does not count, such as those of captured graphs, make them differ.
func (w *Writer) compareNumbers(c *knownCommunicator) {
	if c.fact.Numbering == format.NumberingExact {
		return
	}
	low, high, ok := w.countBefore(c)
	if !ok {
		return
	}
	c.before.narrow(low, high)
	numbering := format.NumberingRelative
	n, ok := c.before.number()
	if ok {
		numbering = format.NumberingCounter
	} else {
		n = 0
	}
	if n != c.fact.Before || numbering != c.fact.Numbering {
		c.fact.Before, c.fact.Numbering = n, numbering
		w.writeCommunicator(c)
	}
}

// whyRelative returns why the numbers of a communicator are relative.
func (c *knownCommunicator) whyRelative() string {
	switch {
	case c.fact.Missing != "":
		return c.fact.Missing
	case c.size == 1:
		return missingOneRank
	case !c.hasCounts:
		return missingCounts
	case c.before.differed > 0:
		return "NCCL counted other collectives than were called, for example those of captured graphs"
	}
	return "collectives were being called at each reading of NCCL's counters"
}

// writeLastCommunicators writes the facts of all communicators at the end of the recording.
func (w *Writer) writeLastCommunicators() {
	for _, c := range w.communicators {
		w.writeLastFact(c)
	}
}

// writeLastFact writes the fact of a communicator at the end of the recording or of its process.
func (w *Writer) writeLastFact(c *knownCommunicator) {
	if c.fact.Numbering == format.NumberingRelative {
		c.fact.Missing = c.whyRelative()
	}
	if c.layout != nil && !c.hasEnded() {
		w.takeCensus(c)
	}
	w.writeCommunicator(c)
}

// forgetCommunicators removes the communicators of a process that was replaced by another one with its pid at a time,
// Unix ns. Those of the new process may be known already: their calls and censuses take other ways to the row writer.
func (w *Writer) forgetCommunicators(pid uint32, replacedNs int64) {
	for key, c := range w.communicators {
		if key.pid == pid && c.fromNs < replacedNs {
			w.writeLastFact(c)
			delete(w.communicators, key)
		}
	}
}

// takeCensus reads the library's counters of a communicator. It keeps the last ones if they cannot be read. The probes
// may be paused, so the identity must be that of the communicator.
func (w *Writer) takeCensus(c *knownCommunicator) {
	state, ok := c.layout.Read(int(c.pid), c.ptr)
	if ok && state.HasCounts && int64(state.Hash) == c.id && state.Rank == c.rank {
		c.setCensus(newCensus(&state, w.counters.clock.NowNs()), false)
	}
}

// setColumns sets the columns of a row about the communicator.
func (c *knownCommunicator) setColumns(row *format.Row) {
	row.Communicator, row.CommunicatorRank, row.CommunicatorSize = c.id, c.rank, c.size
}

// writeCommunicator writes the fact of a communicator. It replaces an earlier one.
func (w *Writer) writeCommunicator(c *knownCommunicator) {
	message, err := json.Marshal(c.fact)
	if err != nil {
		return // cannot happen: the members are numbers and texts
	}
	row := format.Row{
		Kind: format.KindCommunicator, StartNs: c.fromNs, Pid: int32(c.pid), Ptr: int64(c.ptr), Device: c.device,
		Root: format.NoRoot, Message: string(message),
	}
	c.setColumns(&row)
	w.writeRows(format.ClassFact, []format.Row{row})
}
