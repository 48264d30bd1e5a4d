package symbolize

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// functionNameIndex finds functions by name. It holds sorted hashes of the names, 8 bytes per
// function. A lookup compares the names themselves in the file.
type functionNameIndex struct {
	seed  maphash.Seed
	slots []hashedName
}

// hashedName is the hash of a name and the number of its symbol, counted over all tables of the
// object.
type hashedName struct{ hash, symbol uint32 }

// newFunctionNameIndex reads the names of all functions. It reads the symbol tables again instead
// of using entries, because entries leave out second names of a function. It ignores tables that
// cannot be read.
func newFunctionNameIndex(ts symbolTables) *functionNameIndex {
	count := 0
	for _, t := range ts {
		_ = t.eachFunction(func(uint64, symbolEntry) { count++ })
	}
	x := &functionNameIndex{seed: maphash.MakeSeed(), slots: make([]hashedName, 0, count)}
	base := uint64(0)
	for _, t := range ts {
		_ = t.eachFunction(func(number uint64, e symbolEntry) {
			if name := t.readName(&e); name != "" {
				x.slots = append(x.slots, hashedName{x.hashName(name), uint32(base + number)})
			}
		})
		base += t.symbolCount()
	}
	slices.SortFunc(x.slots, func(a, b hashedName) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.symbol, b.symbol))
	})
	return x
}

func (i *functionNameIndex) hashName(name string) uint32 { return uint32(maphash.String(i.seed, name)) }

// findFunction returns the function with a name. It prefers global functions to local ones, then
// the lowest address.
func (i *functionNameIndex) findFunction(ts symbolTables, name string) (Symbol, bool) {
	// Static functions with the same name number some hundreds. A limit stops hostile files.
	const maxNamesakes = 4096
	hash := i.hashName(name)
	first, _ := slices.BinarySearchFunc(
		i.slots,
		hash,
		func(s hashedName, h uint32) int { return cmp.Compare(s.hash, h) },
	)
	var best symbolEntry
	found := false
	for _, s := range i.slots[first:min(first+maxNamesakes, len(i.slots))] {
		if s.hash != hash {
			break
		}
		t, number := ts.tableOfSymbol(uint64(s.symbol))
		e, ok := t.readFunction(number)
		if !ok || t.readName(&e) != name {
			continue
		}
		if !found ||
			cmp.Or(
				cmp.Compare(e.size&symbolFlagLocal, best.size&symbolFlagLocal),
				cmp.Compare(e.start, best.start),
			) < 0 {
			best, found = e, true
		}
	}
	if !found {
		return Symbol{}, false
	}
	return newSymbol(&best, name, ts.nextFunctionStart(best.start)), true
}

// tableOfSymbol returns the table of a symbol and the symbol's number in that table. number counts
// over all tables.
func (ts symbolTables) tableOfSymbol(number uint64) (*symbolTable, uint64) {
	for _, t := range ts {
		if number < t.symbolCount() {
			return t, number
		}
		number -= t.symbolCount()
	}
	return ts[len(ts)-1], 0 // cannot happen: the index has no such symbol number
}
