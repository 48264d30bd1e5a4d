//go:build linux

package torchallocator

import (
	"cmp"
	"errors"
	"slices"
)

// statNames are the names of the statistics in torch.cuda.memory_stats().
var statNames = [numStats]string{
	"allocation", "segment", "active", "inactive_split",
	"allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes",
}

// kindNames are the names of the parts of each statistic.
var kindNames = [3]string{"all", "small_pool", "large_pool"}

// totals are the current values of statistics: of all pools, the small and the large ones.
type totals [numStats][3]uint64

// readTotals reads the statistics of an object.
func readTotals(data []byte) (t totals) {
	for s := range t {
		for k := range t[s] {
			t[s][k] = word(data, statsOffset+s*arrayBytes+k*statBytes)
		}
	}
	return t
}

// add adds an amount to a statistic.
func (t *totals) add(stat int, isSmall bool, amount uint64) {
	kind := 2
	if isSmall {
		kind = 1
	}
	t[stat][0] += amount
	t[stat][kind] += amount
}

// addBlock adds a block to the statistics.
func (t *totals) addBlock(b *block, isSmall bool) {
	if !b.isMapped {
		return
	}
	t.add(reservedBytesStat, isSmall, b.Bytes)
	switch {
	case b.isActive:
		t.add(activeStat, isSmall, 1)
		t.add(activeBytesStat, isSmall, b.Bytes)
		t.add(requestedBytesStat, isSmall, b.Requested)
	case !b.isExpandable && (b.prev != 0 || b.next != 0):
		t.add(inactiveSplitStat, isSmall, 1)
		t.add(inactiveSplitBytesStat, isSmall, b.Bytes)
	}
	if b.Use == Allocated {
		t.add(allocationStat, isSmall, 1)
		t.add(allocatedBytesStat, isSmall, b.Bytes)
	}
	if b.prev == 0 && !b.isExpandable {
		t.add(segmentStat, isSmall, 1)
	}
}

// verify compares the blocks with the allocator's statistics. A wrong layout does not add up.
func (w *walk) verify(want totals) error {
	var have totals
	for _, b := range w.blocks {
		have.addBlock(b, w.pools[b.pool].isSmall)
	}
	for s := range have {
		for k := range have[s] {
			if err := compare(statNames[s]+"."+kindNames[k]+".current", have[s][k], want[s][k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// segments returns the segments. It returns an error if the lists of blocks are damaged.
func (w *walk) segments() (list []Segment, err error) {
	visited := 0
	for at, head := range w.blocks {
		if head.prev != 0 {
			continue
		}
		var last *block
		for b := head; ; {
			if visited++; visited > len(w.blocks) {
				return nil, errDamaged
			}
			list = w.appendBlock(list, b, last)
			if b.next == 0 {
				break
			}
			next := w.blocks[b.next]
			if next.prev != at || next.Address != b.Address+b.Bytes || next.pool != b.pool || next.stream != b.stream ||
				next.isExpandable != b.isExpandable {
				return nil, errDamaged
			}
			at, last, b = b.next, b, next
		}
	}
	if visited != len(w.blocks) {
		return nil, errDamaged
	}
	slices.SortFunc(list, func(a, b Segment) int { return cmp.Compare(a.Address, b.Address) })
	for i := 1; i < len(list); i++ {
		if list[i-1].Address+list[i-1].Bytes > list[i].Address {
			return nil, errDamaged
		}
	}
	return list, nil
}

var errDamaged = errors.New("neighboring blocks contradict each other")

// appendBlock adds a block to the last segment, or begins a segment with it. before is the previous block of the list,
// nil if there is none.
func (w *walk) appendBlock(list []Segment, b, before *block) []Segment {
	if !b.isMapped {
		return list
	}
	if before == nil || !before.isMapped {
		p := w.pools[b.pool]
		list = append(list, Segment{
			Address: b.Address, Stream: b.stream, Pool: p.id, IsSmall: p.isSmall, IsExpandable: b.isExpandable,
		})
	}
	s := &list[len(list)-1]
	s.Bytes += b.Bytes
	s.Blocks = append(s.Blocks, b.Block)
	return list
}
