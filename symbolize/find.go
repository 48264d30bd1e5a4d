package symbolize

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// nameIndex finds functions by name: hashes in order, 8 bytes per function. Names themselves are
// compared in the file.
type nameIndex struct {
	seed  maphash.Seed
	slots []nameSlot
}

// nameSlot says that the symbol of that number, counted over all tables, has a name of that hash.
type nameSlot struct{ hash, symbol uint32 }

// newNameIndex reads the names of all functions. It goes by symbols and not by entries, because
// those leave out functions that another table has under another name. A table that cannot be read
// is not found in.
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

// find returns the function of that name: of several a global one, then the one at the lowest
// address.
func (x *nameIndex) find(ts tables, name string) (Symbol, bool) {
	// Static functions of one name are hundreds at most; more would be a file made to cost time.
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

// symbol returns the table that has a symbol, and the symbol's number there.
func (ts tables) symbol(number uint64) (*table, uint64) {
	for _, t := range ts {
		if number < t.count() {
			return t, number
		}
		number -= t.count()
	}
	return ts[len(ts)-1], 0 // an index has no such number
}
