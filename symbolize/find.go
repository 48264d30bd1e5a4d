package symbolize

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// nameIndex finds functions by name. It holds sorted hashes of the names, 8 bytes per function. A
// lookup compares the names themselves in the file.
type nameIndex struct {
	seed  maphash.Seed
	slots []nameSlot
}

// nameSlot is the hash of a name and the number of its symbol, counted over all tables of the
// object.
type nameSlot struct{ hash, symbol uint32 }

// newNameIndex reads the names of all functions. It reads the symbol tables again instead of using
// entries, because entries leave out second names of a function. It ignores tables that cannot be
// read.
func newNameIndex(ts tables) *nameIndex {
	count := 0
	for _, t := range ts {
		_ = t.eachFunction(func(uint64, entry) { count++ })
	}
	x := &nameIndex{seed: maphash.MakeSeed(), slots: make([]nameSlot, 0, count)}
	base := uint64(0)
	for _, t := range ts {
		_ = t.eachFunction(func(number uint64, e entry) {
			if name := t.name(&e); name != "" {
				x.slots = append(x.slots, nameSlot{x.hash(name), uint32(base + number)})
			}
		})
		base += t.count()
	}
	slices.SortFunc(x.slots, func(a, b nameSlot) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.symbol, b.symbol))
	})
	return x
}

func (x *nameIndex) hash(name string) uint32 { return uint32(maphash.String(x.seed, name)) }

// find returns the function with a name. It prefers global functions to local ones, then the lowest
// address.
func (x *nameIndex) find(ts tables, name string) (Symbol, bool) {
	// Static functions with the same name number some hundreds. A limit stops hostile files.
	const maxNamesakes = 4096
	hash := x.hash(name)
	first, _ := slices.BinarySearchFunc(x.slots, hash, func(s nameSlot, h uint32) int { return cmp.Compare(s.hash, h) })
	var best entry
	found := false
	for _, s := range x.slots[first:min(first+maxNamesakes, len(x.slots))] {
		if s.hash != hash {
			break
		}
		t, number := ts.symbol(uint64(s.symbol))
		e, ok := t.function(number)
		if !ok || t.name(&e) != name {
			continue
		}
		if !found || cmp.Or(cmp.Compare(e.size&flagLocal, best.size&flagLocal), cmp.Compare(e.start, best.start)) < 0 {
			best, found = e, true
		}
	}
	if !found {
		return Symbol{}, false
	}
	return symbol(&best, name, ts.next(best.start)), true
}

// symbol returns the table of a symbol and the symbol's number in that table. number counts over
// all tables.
func (ts tables) symbol(number uint64) (*table, uint64) {
	for _, t := range ts {
		if number < t.count() {
			return t, number
		}
		number -= t.count()
	}
	return ts[len(ts)-1], 0 // cannot happen: the index has no such number
}
