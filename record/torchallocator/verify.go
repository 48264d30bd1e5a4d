//go:build linux

package torchallocator

import (
	"cmp"
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
			t[s][k] = currentStat(data, 0, s, k)
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

// compareTotals returns the statistics with the same sums over the blocks. A wrong layout does not add up.
func (w *walk) compareTotals(want totals) []Total {
	var have totals
	for i := range w.blocks {
		have.addBlock(&w.blocks[i], w.pools[w.blocks[i].pool].isSmall)
	}
	list := make([]Total, 0, 3*numStats)
	for s := range have {
		for k := range have[s] {
			list = append(list, Total{statNames[s] + "." + kindNames[k] + ".current", have[s][k], want[s][k]})
		}
	}
	return list
}

// firstMismatch returns the first statistic that the blocks do not add up to, as an error.
func firstMismatch(list []Total) error {
	for _, t := range list {
		if err := compare(t.Name, t.Blocks, t.Statistics); err != nil {
			return err
		}
	}
	return nil
}

// segments returns the segments. It returns an error if the lists of blocks are damaged.
func (w *walk) segments() (list []Segment, err error) {
	var chain []*block
	visited := 0
	for i := range w.blocks {
		if w.blocks[i].prev != 0 {
			continue
		}
		if chain, err = w.chain(chain[:0], &w.blocks[i]); err != nil {
			return nil, err
		}
		visited += len(chain)
		list = w.appendChain(list, chain)
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

// chain appends the blocks from the first one on, in order of address. If one of them is not mapped, all are parts of an
// expandable segment.
func (w *walk) chain(chain []*block, b *block) ([]*block, error) {
	isExpandable := false
	for {
		chain = append(chain, b)
		isExpandable = isExpandable || b.isExpandable || !b.isMapped
		if b.next == 0 {
			break
		}
		next := &w.blocks[w.places[b.next]]
		if next.prev != b.at || next.Address != b.Address+b.Bytes || next.pool != b.pool || next.stream != b.stream ||
			len(chain) == len(w.blocks) {
			return nil, errDamaged
		}
		b = next
	}
	for _, b := range chain {
		b.isExpandable = isExpandable
	}
	return chain, nil
}

// appendChain appends the segments of a chain: the whole chain, or its contiguous mapped ranges.
func (w *walk) appendChain(list []Segment, chain []*block) []Segment {
	isOpen := false
	for _, b := range chain {
		if !b.isMapped {
			isOpen = false
			continue
		}
		if !isOpen {
			p := w.pools[b.pool]
			list = append(list, Segment{
				Address: b.Address, Stream: b.stream, Pool: p.id, IsSmall: p.isSmall, IsExpandable: b.isExpandable,
			})
			isOpen = true
		}
		s := &list[len(list)-1]
		s.Bytes += b.Bytes
		s.Blocks = append(s.Blocks, b.Block)
	}
	return list
}
