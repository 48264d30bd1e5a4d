package symbolize

import (
	"math/bits"
	"slices"
)

// entryCollector collects functions and sorts them. It keeps pieces: a growing slice would move the
// functions, and leave garbage of twice their size.
type entryCollector struct {
	pieces [][]symbolEntry
	count  int
	// low and high are the smallest and the largest start, if there are functions.
	low, high uint64
}

func (c *entryCollector) add(e symbolEntry) {
	const entriesPerPiece = 1 << 13
	if c.count == 0 {
		c.low, c.high = e.start, e.start
	}
	if c.count%entriesPerPiece == 0 {
		c.pieces = append(c.pieces, make([]symbolEntry, 0, entriesPerPiece))
	}
	c.low, c.high = min(c.low, e.start), max(c.high, e.start)
	last := &c.pieces[len(c.pieces)-1]
	*last = append(*last, e)
	c.count++
}

// sorted returns all functions in the order of compareSymbolEntries. The functions of a library are at
// even distances, so it copies them to ranges of addresses with a few functions each, and sorts the
// ranges: in a quarter of the time of one sort. If a file has all functions in one range, sorted takes
// as long as one sort.
func (c *entryCollector) sorted() []symbolEntry {
	if c.count == 0 {
		return nil
	}
	const functionsPerRange = 4
	shift := max(0, bits.Len64(c.high-c.low)-bits.Len(uint(c.count/functionsPerRange)))
	rangeOf := func(e symbolEntry) uint64 { return (e.start - c.low) >> shift }
	ends := make([]uint32, rangeOf(symbolEntry{start: c.high})+1) // maxSymbolsPerSection fits
	for _, piece := range c.pieces {
		for _, e := range piece {
			ends[rangeOf(e)]++
		}
	}
	total := uint32(0)
	for i, n := range ends {
		ends[i], total = total, total+n
	}
	all := make([]symbolEntry, c.count)
	for _, piece := range c.pieces {
		for _, e := range piece {
			end := &ends[rangeOf(e)]
			all[*end] = e
			*end++
		}
	}
	begin := uint32(0)
	for _, end := range ends {
		slices.SortFunc(all[begin:end], compareSymbolEntries)
		begin = end
	}
	return all
}

// deleteKnown deletes the functions that a table has with the same address, size and flags. entries
// must be sorted, as tables are.
func (ts symbolTables) deleteKnown(entries []symbolEntry) []symbolEntry {
	before := len(entries)
	for _, t := range ts {
		known := t.entries
		entries = slices.DeleteFunc(entries, func(e symbolEntry) bool {
			for len(known) > 0 && compareSymbolExtents(known[0], e) < 0 {
				known = known[1:]
			}
			return len(known) > 0 && compareSymbolExtents(known[0], e) == 0
		})
	}
	if len(entries) < before {
		return slices.Clone(entries) // without the room of those that are deleted
	}
	return entries
}
