//go:build linux

package torchallocator

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// window is a time in which the allocator of a device changes nothing. All its methods change its lock, its statistics
// or its lists of blocks. These are its head, which is compared before and after a reading.
type window struct {
	r      *Reader
	object *object
	device deviceLayout

	atNs, endNs      int64
	tries            int
	maxTries         int           // of run; 0: no limit
	quiet            time.Duration // of a pause
	calls, readBytes int
}

// Times of waiting for a pause of the allocator.
const (
	quietTime = 50 * time.Microsecond // for so long, the head must not have changed
	spinTime  = 2 * time.Millisecond  // after which it sleeps for as long

	shortQuietTime = 20 * time.Microsecond // of a program whose pauses are short
)

// errInterrupted is the reason if the pauses are too short for a reading of all blocks.
var errInterrupted = fmt.Errorf("%w: its pauses are too short to read all blocks in one", ErrBusy)

// A reading of as many parts in one pause is given up after some tries that were interrupted.
const (
	minLargeParts       = 1024
	maxInterruptedTries = 2
)

// run runs work, which reads memory, until the allocator changed nothing meanwhile. Then it returns the error of work.
// It returns *BusyError when ctx is done, and errInterrupted after maxTries of a large image.
func (w *window) run(ctx context.Context, work func() error) error {
	held := holder{now: w.r.now}
	mustLearn := true // what parts the work needs
	for ctx.Err() == nil {
		if err := w.object.image.prepare(); err != nil {
			return err
		}
		head, err := w.waitForPause(ctx, &held)
		if err != nil || head == nil {
			return err
		}
		w.tries++
		w.atNs = w.r.now()
		before, behind := w.newHead(), w.newHead()
		if err := w.object.image.reread(before, behind); err != nil && !isMisfit(err) {
			return err
		}
		w.endNs = w.r.now()
		isPause := w.device.haveSameHead(head, before.Data) && w.device.haveSameHead(head, behind.Data)
		if !isPause && !mustLearn {
			continue
		}
		workErr := work()
		if workErr != nil && !isMisfit(workErr) {
			return workErr
		}
		w.calls, w.readBytes = w.object.image.calls, w.object.image.readBytes
		if mustLearn = w.object.image.isLoaded; mustLearn && isPause {
			if err := w.readHead(behind.Data); err != nil {
				return err
			}
			w.endNs = w.r.now()
			isPause = w.device.haveSameHead(head, behind.Data)
		}
		if isPause {
			return workErr
		}
		if w.maxTries > 0 && w.tries >= w.maxTries && len(w.object.image.parts) >= minLargeParts {
			return errInterrupted
		}
	}
	return held.busy(w.tries)
}

// waitForPause returns the head of an allocator that has paused, or *BusyError when ctx is done.
func (w *window) waitForPause(ctx context.Context, held *holder) (head []byte, err error) {
	last, next := w.newHead().Data, w.newHead().Data
	if err := w.readHead(last); err != nil {
		return nil, err
	}
	begin := w.r.now()
	since := begin
	for ctx.Err() == nil {
		if err := w.readHead(next); err != nil {
			return nil, err
		}
		now := w.r.now()
		held.see(&w.device, next)
		if !w.device.isQuiet(next) || !w.device.haveSameHead(last, next) {
			last, next, since = next, last, now
		} else if now-since >= w.quiet.Nanoseconds() {
			return next, nil
		}
		if now-begin > spinTime.Nanoseconds() {
			w.r.sleep(spinTime)
			if err := w.readHead(last); err != nil {
				return nil, err
			}
			begin = w.r.now()
			since = begin
		}
	}
	return nil, held.busy(w.tries)
}

// finish sets the times, the tries and the cost of the reading of a state.
func (w *window) finish(s *State) *State {
	s.AtNs, s.EndNs, s.Tries, s.Calls, s.ReadBytes = w.atNs, w.endNs, w.tries, w.calls, w.readBytes
	return s
}

// newHead returns a part for the memory with the head of the object.
func (w *window) newHead() Part {
	return Part{Address: w.object.address, Data: make([]byte, w.device.headEnd())}
}

// readHead reads the memory with the head of the object.
func (w *window) readHead(data []byte) error {
	parts := [1]Part{{Address: w.object.address, Data: data}}
	if _, err := w.r.image.memory.ReadParts(parts[:]); err != nil {
		return err
	}
	if parts[0].IsMissing {
		return errUnreadable
	}
	return nil
}

// headEnd returns the end of the head in the memory of the object.
func (l *deviceLayout) headEnd() int {
	pool := l.poolBytes()
	return max(l.lock+mutexBytes, l.stats+statsBytes, l.pools[0]+pool, l.pools[1]+pool, l.active+tableBytes)
}

// isQuiet reports whether no thread holds the lock. data is the memory with the head.
func (l *deviceLayout) isQuiet(data []byte) bool {
	return half(data, l.lock) == 0 && half(data, l.lock+ownerOffset) == 0
}

// haveSameHead reports whether two readings have the same head.
func (l *deviceLayout) haveSameHead(a, b []byte) bool {
	isSame := func(at, length int) bool { return bytes.Equal(a[at:at+length], b[at:at+length]) }
	return isSame(l.lock, kindOffset) && isSame(l.stats, statsBytes) && isSame(l.pools[0], 2*setBytes) &&
		isSame(l.pools[1], 2*setBytes) && isSame(l.active, tableBytes)
}

// holder watches who holds the lock.
type holder struct {
	now     func() int64
	owner   uint32
	stats   []byte // at the first sight; nil before
	sinceNs int64  // of CLOCK_MONOTONIC
	isOther bool   // the lock was free, changed hands, or the statistics changed
}

// see takes a look at the memory with a head.
func (h *holder) see(l *deviceLayout, data []byte) {
	owner, stats := half(data, l.lock+ownerOffset), data[l.stats:l.stats+statsBytes]
	if h.stats == nil {
		h.owner, h.stats, h.sinceNs, h.isOther = owner, bytes.Clone(stats), h.now(), owner == 0
	}
	h.isOther = h.isOther || owner != h.owner || !bytes.Equal(stats, h.stats)
}

// busy returns the error of a pause that did not come.
func (h *holder) busy(tries int) error {
	if h.stats == nil || h.isOther {
		return &BusyError{Tries: tries}
	}
	return &BusyError{Tries: tries, Holder: int(h.owner), Held: time.Duration(h.now() - h.sinceNs)}
}
