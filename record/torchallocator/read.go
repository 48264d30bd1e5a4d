//go:build linux

package torchallocator

import (
	"bytes"
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

// Bounds of a search for the layout.
const (
	searchPause = time.Millisecond
	maxMisfits  = 3 // consistent searches that find no layout
)

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
		w := &window{r: r, object: o, device: l.deviceLayout}
		var state *State
		err := w.run(ctx, func() (err error) {
			state, err = readLayout(o, l, l.blockLayout.bytes())
			return err
		})
		if err == nil {
			return w.finish(state), nil
		} else if !isMisfit(err) {
			return nil, err
		}
	}
	return r.search(ctx, o)
}

// search reads the blocks of a device, and finds the layout.
func (r *Reader) search(ctx context.Context, o *object) (*State, error) {
	failed := error(errNoStatistics)
	for misfits := 0; misfits < maxMisfits && ctx.Err() == nil; {
		o.image.forget()
		data, err := readObject(o.image, o)
		if err != nil {
			return nil, err
		}
		if isEmpty(data, o.address) {
			return &State{Device: o.device, AtNs: r.now(), EndNs: r.now(), Tries: 1}, nil
		}
		devices, err := deviceLayouts(o, data)
		if err != nil && !isMisfit(err) {
			return nil, err
		}
		for _, device := range devices {
			state, err := r.searchDevice(ctx, o, device)
			if err == nil {
				return state, nil
			} else if !isMisfit(err) {
				return nil, err
			}
			failed = err
		}
		again, err := readObject(newImage(r.image.memory), o)
		if len(devices) > 0 || err == nil && bytes.Equal(again, data) {
			misfits++ // it did not change meanwhile
		}
		r.sleep(searchPause)
	}
	if ctx.Err() != nil {
		return nil, &BusyError{}
	}
	return nil, &UnknownLayoutError{failed}
}

// Reasons why a search finds no layout.
var (
	errNoStatistics = errors.New("no statistics of blocks in use were found")
	errNoMembers    = errors.New("no members of the blocks add up to the allocator's statistics")
	errAmbiguous    = errors.New("several layouts add up to the allocator's statistics")
)

// searchDevice reads the blocks of a device, and finds the layout of blocks.
func (r *Reader) searchDevice(ctx context.Context, o *object, device deviceLayout) (state *State, err error) {
	w := &window{r: r, object: o, device: device}
	var found layout
	err = w.run(ctx, func() (err error) {
		state, found, err = r.tryLayouts(o, device)
		return err
	})
	if err != nil {
		return nil, err
	}
	if state.CountBlocks() > 0 {
		r.keep(&found)
	}
	o.image.forget() // later readings need less of each block
	return w.finish(state), nil
}

// tryLayouts reads the blocks with the known layouts of blocks, and then with those that a search proposes.
func (r *Reader) tryLayouts(o *object, device deviceLayout) (state *State, found layout, err error) {
	failed := error(errNoMembers)
	for i := range blockLayouts {
		found = layout{device, blockLayouts[i]}
		state, err = readLayout(o, &found, searchedBlockBytes)
		if err == nil || !isMisfit(err) {
			return state, found, err
		}
		if mismatch := new(MismatchError); errors.As(err, &mismatch) {
			failed = err // all blocks were read
		}
	}
	proposed, err := r.proposeLayouts(o, device)
	if err != nil {
		return nil, found, err
	}
	for _, block := range proposed {
		l := layout{device, block}
		other, err := readLayout(o, &l, searchedBlockBytes)
		switch {
		case err != nil && !isMisfit(err):
			return nil, found, err
		case err != nil:
			failed = err
		case state == nil:
			state, found = other, l
		case !state.hasSameBlocks(other):
			return nil, found, errAmbiguous
		}
	}
	if state == nil {
		return nil, found, failed
	}
	return state, found, nil
}

// proposeLayouts searches the layout of blocks.
func (r *Reader) proposeLayouts(o *object, device deviceLayout) ([]blockLayout, error) {
	data, err := readObject(o.image, o)
	if err != nil {
		return nil, err
	}
	t, ok := readTable(data[device.active:], maxBlocks)
	if !ok {
		return nil, errDamaged
	}
	active, err := readPointers(o.image, t)
	if err != nil || len(active) == 0 {
		return nil, err
	}
	w := newWalk(o, &layout{deviceLayout: device}, data, searchedBlockBytes)
	if err := w.addAllPools(); err != nil {
		return nil, err
	}
	if err := w.readNodes(); err != nil {
		return nil, err
	}
	f := &fields{width: searchedBlockBytes, want: readTotals(data[device.stats:]), memory: r.image.memory}
	for at := range w.pools {
		f.pools = append(f.pools, at)
	}
	var cached []uint64
	for i := range w.blocks {
		cached = append(cached, w.blocks[i].at)
	}
	if f.active, err = readWhole(o.image, active); err != nil {
		return nil, err
	}
	if f.cached, err = readWhole(o.image, cached); err != nil {
		return nil, err
	}
	return searchFields(f)
}

// readWhole returns the memory of blocks whose size is not known.
func readWhole(img *image, addresses []uint64) (list [][]byte, err error) {
	if err := img.load(addresses, searchedBlockBytes); err != nil {
		return nil, err
	}
	for _, at := range addresses {
		block, ok := img.get(at, searchedBlockBytes)
		if !ok {
			return nil, errUnreadable
		}
		list = append(list, block)
	}
	return list, nil
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
	w := newWalk(o, l, data, blockBytes)
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
	devices, err := deviceLayouts(o, data)
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
