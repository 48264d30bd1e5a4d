//go:build linux

package torchallocator

import (
	"bytes"
	"context"
	"time"
)

// window is a time in which the allocator of a device changes nothing. All its methods change its lock, its statistics
// or its lists of blocks, so these are compared before and after a reading.
type window struct {
	r      *Reader
	object *object
	device deviceLayout

	atNs, endNs      int64
	tries            int
	calls, readBytes int
}

// run runs work, which reads memory, until the allocator changed nothing meanwhile. Then it returns the error of work.
// It returns *BusyError when ctx is done.
func (w *window) run(ctx context.Context, work func() error) error {
	wait := quietTime
	held := holder{now: w.r.now}
	for ctx.Err() == nil {
		first, err := w.head()
		if err != nil {
			return err
		}
		held.see(first)
		w.r.sleep(wait)
		second, err := w.head()
		if err != nil {
			return err
		}
		if wait = min(wait+wait/4, maxQuietTime); !isQuiet(first) || !bytes.Equal(first, second) {
			continue
		}
		w.tries++
		wait = quietTime
		w.atNs = w.r.now()
		workErr := w.r.image.refresh()
		if workErr == nil || isMisfit(workErr) {
			workErr = work()
		}
		w.calls, w.readBytes = w.r.image.calls, w.r.image.bytes
		last, err := w.head()
		switch {
		case err != nil:
			return err
		case workErr != nil && !isMisfit(workErr):
			return workErr
		case bytes.Equal(second, last):
			w.endNs = w.r.now()
			return workErr
		}
	}
	return held.busy(w.tries)
}

// finish adds to a state what is known about its reading.
func (w *window) finish(s *State) *State {
	s.AtNs, s.EndNs, s.Tries, s.Calls, s.ReadBytes = w.atNs, w.endNs, w.tries, w.calls, w.readBytes
	return s
}

// headEnd returns the end of what a window compares.
func (l *deviceLayout) headEnd() int {
	pool := l.poolBytes()
	return max(l.lock+mutexBytes, l.stats+statsBytes, l.pools[0]+pool, l.pools[1]+pool, l.active+tableBytes)
}

// head returns a new copy of what a window compares: first the lock.
func (w *window) head() ([]byte, error) {
	l := &w.device
	if err := w.r.head.refresh(); err != nil {
		return nil, err
	}
	data, err := w.r.head.fetch(w.object.address, uint64(l.headEnd()))
	if err != nil {
		return nil, err
	}
	parts := [][]byte{
		data[l.lock:][:kindOffset], data[l.stats:][:statsBytes], data[l.pools[0]:][:2*setBytes],
		data[l.pools[1]:][:2*setBytes], data[l.active:][:tableBytes],
	}
	return bytes.Join(parts, nil), nil
}

// isQuiet reports whether no thread holds the lock.
func isQuiet(head []byte) bool { return half(head, 0) == 0 && half(head, ownerOffset) == 0 }

// holder watches who holds the lock.
type holder struct {
	now     func() int64
	head    []byte // of the first sight
	sinceNs int64  // of CLOCK_MONOTONIC
	isOther bool   // the lock was free, changed hands, or the statistics changed
}

// see takes a look at a head.
func (h *holder) see(head []byte) {
	switch {
	case h.head == nil:
		h.head, h.sinceNs = head, h.now()
		h.isOther = isQuiet(head) || half(head, ownerOffset) == 0
	case half(h.head, ownerOffset) != half(head, ownerOffset) || !bytes.Equal(h.head[kindOffset:], head[kindOffset:]):
		h.isOther = true // the words before may change: other threads wait for the lock
	}
}

// busy returns the error of a window that did not come.
func (h *holder) busy(tries int) error {
	if h.head == nil || h.isOther {
		return &BusyError{Tries: tries}
	}
	return &BusyError{
		Tries: tries, Holder: int(half(h.head, ownerOffset)), Held: time.Duration(h.now() - h.sinceNs),
	}
}
