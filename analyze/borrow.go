package analyze

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// Borrowed memory belongs to another process or another API and is only seen here:
// it is in no number of live bytes, and nobody leaks it here.

// borrowedName names borrowed memory that is no physical handle.
type borrowedName struct {
	space memorySpace
	ptr   int64
}

// borrowCount counts what was borrowed of one kind of memory.
type borrowCount struct {
	opened, returned int64
	bytes            int64 // of opened, as far as the call says how much
}

// borrows returns the books of the kind of memory that an origin names.
func (l *ledger) borrows(origin int32) *borrowCount {
	kind := l.origins.memory(origin)
	if l.borrowed[kind] == nil {
		if l.borrowed == nil {
			l.borrowed = make(map[string]*borrowCount)
		}
		l.borrowed[kind] = new(borrowCount)
	}
	return l.borrowed[kind]
}

func (l *ledger) borrow(h *holdings, m *memoryCall) {
	if m.space == spacePhysical {
		mem := h.handles[m.ptr]
		switch {
		case mem == nil:
			h.handles[m.ptr] = &handle{block: block{bytes: m.bytes, sinceNs: m.atNs, origin: m.origin}, refs: 1, borrows: 1}
		case mem.borrows == 0: // the process's own memory came back to it
			mem.refs++
			return
		default:
			mem.refs++
			mem.borrows++
		}
	} else {
		h.borrowed[borrowedName{m.space, m.ptr}]++
	}
	count := l.borrows(m.origin)
	count.opened++
	count.bytes += min(m.bytes, addressSpace)
}

// giveBack ends borrowed memory that was opened as often as it was closed.
func (l *ledger) giveBack(h *holdings, m *memoryCall) {
	name := borrowedName{m.space, m.ptr}
	times := h.borrowed[name]
	if times == 0 {
		return // borrowed before the recording
	}
	l.borrows(m.origin).returned++
	if h.borrowed[name] = times - 1; times == 1 {
		delete(h.borrowed, name)
	}
}

// freeImported reports whether a free ends memory that cuMemPoolImportPointer borrowed. One
// free ends it, however often it was imported.
func (l *ledger) freeImported(h *holdings, m *memoryCall) bool {
	name := borrowedName{spacePointer, m.ptr}
	times := h.borrowed[name]
	if m.space != spacePointer || times == 0 {
		return false
	}
	if count := l.borrowed[format.MemoryAsync]; count != nil { // nil in a damaged file only
		count.returned += times
	}
	delete(h.borrowed, name)
	return true
}

// borrowedText says what was borrowed, "" for nothing.
func (l *ledger) borrowedText() string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(l.borrowed)) {
		c := l.borrowed[kind]
		text := fmt.Sprintf("%s %s", thousands(c.opened), kind)
		if c.bytes > 0 {
			text += " (" + bytesText(c.bytes) + ")"
		}
		if open := c.opened - c.returned; open > 0 {
			text += fmt.Sprintf(", %s not given back", thousands(open))
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// borrowTotals sums all kinds up.
func (l *ledger) borrowTotals() (sum borrowCount) {
	for _, c := range l.borrowed {
		sum.opened += c.opened
		sum.returned += c.returned
		sum.bytes += c.bytes
	}
	return sum
}
