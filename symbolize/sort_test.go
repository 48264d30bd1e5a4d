package symbolize

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// entriesOf returns n functions whose starts are drawn by start.
func entriesOf(random *rand.Rand, n int, start func() uint64) []symbolEntry {
	entries := make([]symbolEntry, n)
	for i := range entries {
		flags := []uint32{0, symbolFlagLocal, symbolFlagGuessedSize}[random.IntN(3)]
		entries[i] = symbolEntry{start(), random.Uint32N(5), random.Uint32N(3) | flags}
	}
	return entries
}

// TestSortedEntriesEqualOneSort sorts functions at even and at uneven distances.
func TestSortedEntriesEqualOneSort(t *testing.T) {
	testclass.Unit(t)
	random := rand.New(rand.NewPCG(3, 4))
	for name, start := range map[string]func() uint64{
		"even":           func() uint64 { return 0x1000 + 16*random.Uint64N(1e6) },
		"one address":    func() uint64 { return 0x1000 },
		"equal often":    func() uint64 { return random.Uint64N(9) },
		"all addresses":  random.Uint64,
		"one far away":   func() uint64 { return []uint64{random.Uint64N(1e5), ^uint64(0)}[random.IntN(100)/99] },
		"the two limits": func() uint64 { return []uint64{0, ^uint64(0)}[random.IntN(2)] },
	} {
		for _, n := range []int{0, 1, 2, 3, 4, 7, 100, 8192, 8193, 30_000} {
			entries := entriesOf(random, n, start)
			var c entryCollector
			for _, e := range entries {
				c.add(e)
			}
			slices.SortFunc(entries, compareSymbolEntries)
			if got := c.sorted(); !slices.Equal(got, entries) {
				t.Errorf("%s: %d functions are in another order", name, n)
			}
		}
	}
}

// TestKnownEntriesAreDeleted compares with a search for each function.
func TestKnownEntriesAreDeleted(t *testing.T) {
	testclass.Unit(t)
	random := rand.New(rand.NewPCG(5, 6))
	sorted := func(n int) []symbolEntry {
		entries := entriesOf(random, n, func() uint64 { return random.Uint64N(300) })
		slices.SortFunc(entries, compareSymbolEntries)
		return entries
	}
	for _, n := range []int{0, 1, 50, 2000} {
		first, second, entries := sorted(n), sorted(n/2), sorted(n)
		var want []symbolEntry
		for _, e := range entries {
			same := func(o symbolEntry) bool { return compareSymbolExtents(o, e) == 0 }
			if !slices.ContainsFunc(first, same) && !slices.ContainsFunc(second, same) {
				want = append(want, e)
			}
		}
		if got := (symbolTables{{entries: first}, {entries: second}}).deleteKnown(entries); !slices.Equal(got, want) {
			t.Errorf("%d functions: %d left, want %d", n, len(got), len(want))
		}
	}
}
