//go:build linux

package torchallocator

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Reader reads the allocators of one process. It is not safe for concurrent use.
type Reader struct {
	image   *image // of what Open reads
	objects []object
	layout  *layout // that was verified last; nil: none
	library string
	now     func() int64
	sleep   func(time.Duration)
	quiet   time.Duration // of a pause
}

// Devices returns the number of devices.
func (r *Reader) Devices() int { return len(r.objects) }

// IsCopyOf reports whether the allocators have the same addresses as those of another process. Then this process is
// its fork, and has only a copy of its allocators.
func (r *Reader) IsCopyOf(other *Reader) bool {
	return slices.EqualFunc(r.objects, other.objects, func(a, b object) bool { return a.address == b.address })
}

// Read reads the blocks of a device. It waits until the allocator pauses, and reads while it does. When ctx is done, it
// returns *BusyError. Other errors are the Err values, and *UnknownLayoutError.
func (r *Reader) Read(ctx context.Context, device int) (*State, error) {
	o := &r.objects[device]
	state, err := r.read(ctx, o)
	var busy *BusyError
	if errors.As(err, &busy) && busy.Holder != 0 {
		busy.State = r.readHeld(o)
	}
	return state, err
}

// read is Read without a reading of an allocator whose lock is held.
func (r *Reader) read(ctx context.Context, o *object) (*State, error) {
	if l := r.known(); l != nil {
		state, err := r.readKnown(ctx, o, l)
		if err == nil || !isMisfit(err) {
			return state, err
		}
		o.survey = nil
	}
	return r.search(ctx, o)
}

// readKnown reads the blocks with a known layout: all of them in one pause, or those that change if the pauses are too
// short.
func (r *Reader) readKnown(ctx context.Context, o *object, l *layout) (*State, error) {
	if o.survey == nil {
		w := &window{r: r, object: o, device: l.deviceLayout, quiet: r.quiet, maxTries: maxInterruptedTries}
		var state *State
		err := w.run(ctx, func() (err error) {
			state, err = readLayout(o, l, l.blockLayout.bytes())
			return err
		})
		switch {
		case err == nil:
			return w.finish(state), nil
		case err != errInterrupted:
			return nil, err
		}
		o.image.forget()
	}
	s := o.surveyWith(r.image.memory, l)
	state, err := s.read(ctx, r)
	if err == nil && len(s.store.numbers) < minLargeParts/4 {
		o.survey = nil
	}
	return state, err
}

// readLayout reads the blocks with one layout, and blockBytes of each block. The state has no times.
func readLayout(o *object, l *layout, blockBytes uint64) (*State, error) {
	w, state, err := walkLayout(o, l, blockBytes)
	if err != nil {
		return nil, err
	}
	state.Totals = w.compareTotals(readTotals(w.data[l.stats:]))
	return state, firstMismatch(state.Totals)
}

// walkLayout reads the blocks with one layout, and does not compare them with the statistics.
func walkLayout(o *object, l *layout, blockBytes uint64) (*walk, *State, error) {
	data, err := readObject(o.image, o)
	if err != nil {
		return nil, nil, err
	}
	if len(data) < l.headEnd() {
		return nil, nil, errUnreadable
	}
	w := newWalk(o, l, data, blockBytes, len(o.image.parts))
	if err := w.readBlocks(); err != nil {
		return nil, nil, err
	}
	state := &State{Device: o.device, Version: l.version}
	if state.Segments, err = w.segments(); err != nil {
		return nil, nil, err
	}
	stats := readTotals(data[l.stats:])
	state.AllocatedBytes, state.ReservedBytes = stats[allocatedBytesStat][0], stats[reservedBytesStat][0]
	state.LimitBytes = findLimit(data, l)
	return w, state, nil
}

// readHeld reads the blocks while a thread holds the lock. It returns nil if they contradict each other.
func (r *Reader) readHeld(o *object) *State {
	o.image.forget()
	list := r.heldLayouts(o)
	var best *State
	for i := range list {
		w, state, err := walkLayout(o, &list[i], list[i].blockLayout.bytes())
		if err != nil {
			continue
		}
		state.Totals = w.compareTotals(readTotals(w.data[list[i].stats:]))
		if best == nil || best.countEqual() < state.countEqual() {
			best = state
		}
	}
	if best != nil {
		best.AtNs = r.now()
		best.EndNs = best.AtNs
	}
	return best
}

// heldLayouts returns the layouts that readHeld tries.
func (r *Reader) heldLayouts(o *object) (list []layout) {
	if l := r.known(); l != nil {
		return []layout{*l}
	}
	data, err := readObject(o.image, o)
	if err != nil {
		return nil
	}
	devices, err := deviceLayouts(o, data, findActive)
	if err != nil {
		return nil
	}
	for _, device := range devices {
		for _, block := range blockLayouts {
			list = append(list, layout{device, block})
		}
	}
	return list
}

// countEqual returns the number of statistics that the blocks add up to.
func (s *State) countEqual() (n int) {
	for _, t := range s.Totals {
		if t.Blocks == t.Statistics {
			n++
		}
	}
	return n
}

// hasSameBlocks reports whether two states have the same segments and blocks.
func (s *State) hasSameBlocks(other *State) bool {
	return slices.EqualFunc(s.Segments, other.Segments, func(a, b Segment) bool {
		return a.Address == b.Address && a.Bytes == b.Bytes && a.Stream == b.Stream && a.Pool == b.Pool &&
			a.IsSmall == b.IsSmall && a.IsExpandable == b.IsExpandable && slices.Equal(a.Blocks, b.Blocks)
	})
}

// monotonicNs returns the time of CLOCK_MONOTONIC, which BPF programs use.
func monotonicNs() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // fails only for unknown clocks
	return t.Nano()
}
