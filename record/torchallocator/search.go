//go:build linux

package torchallocator

import (
	"bytes"
	"context"
	"errors"
	"time"
)

// Bounds of a search for the layout.
const (
	searchPause = time.Millisecond
	maxMisfits  = 3 // consistent searches that find no layout
)

// search reads the blocks of a device, and finds the layout.
func (r *Reader) search(ctx context.Context, o *object) (*State, error) {
	failed := error(errNoStatistics)
	for misfits := 0; misfits < maxMisfits && ctx.Err() == nil; {
		if len(o.likely) > 0 {
			if state, err := r.searchBusy(ctx, o, nil); err == nil || !isMisfit(err) {
				return state, err
			}
		}
		o.image.forget()
		atNs := r.now() // the first event of an allocator comes after its first memory
		data, err := readObject(o.image, o)
		if err != nil {
			return nil, err
		}
		if isEmpty(data, o.address) {
			return &State{Device: o.device, AtNs: atNs, EndNs: atNs, Tries: 1}, nil
		}
		devices, err := deviceLayouts(o, data, findActive)
		if err != nil && !isMisfit(err) {
			return nil, err
		}
		isBusy := len(devices) == 0
		for _, device := range devices {
			state, err := r.searchDevice(ctx, o, device)
			switch {
			case err == nil:
				return state, nil
			case errors.Is(err, errInterrupted):
				isBusy = true
			case !isMisfit(err):
				return nil, err
			default:
				failed = err
			}
		}
		if isBusy {
			if state, err := r.searchBusy(ctx, o, data); err == nil || !isMisfit(err) {
				return state, err
			}
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

// searchDevice reads the blocks of a device, and finds the layout of blocks. It returns errInterrupted if the pauses of
// an allocator with many blocks are too short.
func (r *Reader) searchDevice(ctx context.Context, o *object, device deviceLayout) (state *State, err error) {
	w := &window{r: r, object: o, device: device, quiet: r.quiet, maxTries: maxInterruptedTries}
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
	w := newWalk(o, &layout{deviceLayout: device}, data, searchedBlockBytes, len(o.image.parts))
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
