//go:build linux

package progress

import (
	"sync"
	"sync/atomic"

	"github.com/gpurec/gpurec/format"
)

// pair is the content of a slot.
type pair struct{ counter, gpuNs int64 }

// maxStep is the largest number of operations that a channel begins between two reads of its slot.
const maxStep = 1 << 20

// isStep reports whether a channel can have changed its words from before to now.
func isStep(before, now pair) bool {
	return now.counter > before.counter && now.counter-before.counter < maxStep && before.counter >= 0 &&
		now.gpuNs > before.gpuNs
}

// isTorn reports whether only one of the words has changed. The GPU writes one after the other.
func isTorn(before, now pair) bool {
	return now.counter > 0 && now.counter >= before.counter && now.counter-before.counter < maxStep &&
		now.gpuNs >= before.gpuNs && (now.counter == before.counter) != (now.gpuNs == before.gpuNs)
}

// isTimeNear reports whether the GPU has written its time within the last second.
func isTimeNear(gpuNs, nowNs int64) bool { return gpuNs > nowNs-movedNs && gpuNs < nowNs+movedNs }

// slot is a polled address. A channel has the slot while isOwned is true.
type slot struct {
	address   uint64
	isOwned   bool
	isTrusted bool  // words near the slot change with calls, as evidence shows
	hasStep   bool  // both words have risen since isOwned; the words of a timed event never do
	channel   int32 // 0 until the slot is owned, trusted and has a step; rows wait in pending
	words     pair  // as last seen
	first     int64 // the channel's first counter
	firstNs   int64 // when the channel was first seen
	inBPF     int   // index in probe.ProcessProgress, or -1
	// held is the row of the words until the next poll shows that they were complete. isHeld is
	// false without such a row, and if a launch has recorded these words.
	held    format.ProgressRow
	isHeld  bool
	pending []format.ProgressRow
}

// lives numbers the channels of a recording, and collects their rows until they are sent.
type lives struct {
	channels atomic.Int32
	mu       sync.Mutex
	rows     []format.Row
}

// begin numbers the channel of a slot.
func (l *lives) begin(pid int, s *slot) {
	s.channel = l.channels.Add(1)
	l.add(pid, s, 0)
}

// add adds the row of a channel. A later row replaces an earlier row. durNs is the length of the
// channel's life, 0 while the channel lives.
func (l *lives) add(pid int, s *slot, durNs int64) {
	row := format.Row{
		Kind: format.KindChannel, StartNs: s.firstNs, DurNs: durNs, Pid: int32(pid), Channel: s.channel,
		Counter: s.first, Ptr: int64(s.address), Device: -1,
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows = append(l.rows, row)
}

// take returns the rows since the last call.
func (l *lives) take() []format.Row {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := l.rows
	l.rows = nil
	return rows
}
