//go:build linux

package torchallocator

import (
	"context"
	"errors"
	"time"
)

// Shares of torn memory that must fit a layout.
const (
	minPlaced = 0.95 // of the entries of a table
	minFits   = 0.95 // of the blocks
)

// maxSmallBytes is the size up to which requests get blocks of a small pool: kSmallSize in PyTorch.
const maxSmallBytes = 1 << 20

// searchBusy finds the layout of an allocator that pauses too shortly for a search, and reads its blocks. It tries the
// known layouts of blocks that fit most of the memory while the allocator works. A survey verifies them. It returns a
// misfit if none fits.
func (r *Reader) searchBusy(ctx context.Context, o *object, data []byte) (*State, error) {
	var err error
	if len(o.likely) == 0 {
		if o.likely, err = r.likelySurveys(o, data); err != nil {
			return nil, err
		}
	}
	failed := error(errNoMembers)
	var busy error
	undecided := o.likely[:0]
	for i, s := range o.likely {
		state, err := s.verify(ctx, r, len(o.likely)-i)
		switch {
		case err == nil:
			o.survey, o.likely = s, nil
			r.keep(&s.layout)
			return state, nil
		case errors.Is(err, ErrBusy):
			busy, undecided = err, append(undecided, s)
		case !isMisfit(err):
			return nil, err
		default:
			failed = err
		}
	}
	if o.likely = undecided; busy != nil {
		return nil, busy // the next search continues with these layouts
	}
	return nil, failed
}

// likelySurveys returns surveys with the known layouts of blocks that fit most of the memory of a working allocator. data
// is the memory of the object.
func (r *Reader) likelySurveys(o *object, data []byte) (list []*survey, err error) {
	devices, err := deviceLayouts(o, data, findLikelyActive)
	if err != nil {
		return nil, err
	}
	for _, device := range devices {
		for i := range blockLayouts {
			s := newSurvey(r.image.memory, o, &layout{device, blockLayouts[i]})
			if err := s.learn(data); err != nil && !isMisfit(err) {
				return nil, err
			} else if err == nil && s.isLikely() {
				list = append(list, s)
			}
		}
	}
	return list, nil
}

// verify reads the blocks within one of some equal parts of the time until the deadline of ctx, if it has one.
func (s *survey) verify(ctx context.Context, r *Reader, parts int) (*State, error) {
	if end, isLimited := ctx.Deadline(); isLimited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/time.Duration(parts))
		defer cancel()
	}
	return s.read(ctx, r)
}

// isLikely reports whether most of the memory that learn has read can be blocks, in pools for their sizes.
func (s *survey) isLikely() bool {
	if s.walk == nil {
		return false
	}
	fits, counts, sums := 0, [2]uint64{}, [2]uint64{}
	for _, n := range s.store.all() {
		data := s.store.of(n)
		size := word(data, s.layout.size)
		if !s.isBlock(data) || word(data, s.layout.requested) > size {
			continue
		}
		fits++
		kind := kindIndex(s.walk.pools[word(data, s.layout.pool)].isSmall)
		counts[kind]++
		sums[kind] += size
	}
	small, large := kindIndex(true), kindIndex(false)
	return fits > 0 && float64(fits) >= minFits*float64(len(s.store.numbers)) &&
		sums[small] <= maxSmallBytes*counts[small] && sums[large] >= maxSmallBytes*counts[large]
}

// findLikelyActive is findActive for a table that changes while it is read: most pointers lie where their hash puts them.
func findLikelyActive(img *image, data []byte, count uint64) (offsets []int, err error) {
	for o := 0; o+tableBytes <= len(data); o += 8 {
		t, ok := readTable(data[o:], maxBlocks)
		if !ok || t.count != count || count == 0 {
			continue
		}
		entries, err := img.fetch(t.entries, t.bytes(blockEntryBytes))
		switch {
		case err == nil:
			if float64(t.countPlaced(entries)) >= minPlaced*float64(count) {
				offsets = append(offsets, o)
			}
		case !isMisfit(err):
			return nil, err
		}
	}
	return offsets, nil
}

// countPlaced returns the number of entries whose pointer lies where its hash puts it.
func (t table) countPlaced(entries []byte) (n uint64) {
	for i := range len(entries) / blockEntryBytes {
		if _, ok := t.pointer(i, entries[i*blockEntryBytes:][:blockEntryBytes]); ok {
			n++
		}
	}
	return n
}
