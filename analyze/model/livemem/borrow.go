package livemem

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Borrowed memory belongs to another process or another API, and this process only opened it. It
// does not count as live bytes, and cannot leak here.

// BorrowedKey identifies borrowed memory that is not a physical handle.
type BorrowedKey struct {
	Space NumberSpace
	Ptr   int64
}

// BorrowCount counts the borrowed memory of one memory kind.
type BorrowCount struct {
	Opened, Returned int64 // calls that opened memory, and calls that closed it
	Bytes            int64 // opened bytes, if the call has the size
}

// borrowCountOf returns the counts for the memory kind of an origin.
func (s *Set) borrowCountOf(origin int32) *BorrowCount {
	kind := s.origins.MemoryKindOf(origin)
	if s.borrowed[kind] == nil {
		if s.borrowed == nil {
			s.borrowed = make(map[string]*BorrowCount)
		}
		s.borrowed[kind] = new(BorrowCount)
	}
	return s.borrowed[kind]
}

func (s *Set) openBorrowed(h *ProcessMemory, m *MemoryCall) {
	if m.Space == SpacePhysical {
		mem := h.Handles[m.Ptr]
		switch {
		case mem == nil:
			h.Handles[m.Ptr] = &PhysicalHandle{
				Block:   Block{Bytes: m.Bytes, SinceNs: m.AtNs, Origin: m.Origin},
				Refs:    1,
				Borrows: 1,
			}
		case mem.Borrows == 0: // the process imported its own memory
			mem.Refs++
			return
		default:
			mem.Refs++
			mem.Borrows++
		}
	} else {
		h.Borrowed[BorrowedKey{m.Space, m.Ptr}]++
	}
	count := s.borrowCountOf(m.Origin)
	count.Opened++
	count.Bytes += min(m.Bytes, MaxAllocBytes)
}

// closeBorrowed closes borrowed memory. The memory ends with as many closes as opens.
func (s *Set) closeBorrowed(h *ProcessMemory, m *MemoryCall) {
	name := BorrowedKey{m.Space, m.Ptr}
	times := h.Borrowed[name]
	if times == 0 {
		return // the process opened this memory before the recording
	}
	s.borrowCountOf(m.Origin).Returned++
	if h.Borrowed[name] = times - 1; times == 1 {
		delete(h.Borrowed, name)
	}
}

// freeImported reports whether a free ends memory that cuMemPoolImportPointer imported. One free
// ends it, no matter how often it was imported.
func (s *Set) freeImported(h *ProcessMemory, m *MemoryCall) bool {
	name := BorrowedKey{SpacePointer, m.Ptr}
	times := h.Borrowed[name]
	if m.Space != SpacePointer || times == 0 {
		return false
	}
	if count := s.borrowed[format.MemoryAsync]; count != nil { // nil only for a damaged file
		count.Returned += times
	}
	delete(h.Borrowed, name)
	return true
}

// FormatBorrowed lists the borrowed memory by kind. It returns "" if there is none.
func (s *Set) FormatBorrowed() string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(s.borrowed)) {
		c := s.borrowed[kind]
		text := fmt.Sprintf("%s %s", units.FormatCount(c.Opened), kind)
		if c.Bytes > 0 {
			text += " (" + units.FormatBytes(c.Bytes) + ")"
		}
		if open := c.Opened - c.Returned; open > 0 {
			text += fmt.Sprintf(", %s not given back", units.FormatCount(open))
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// SumBorrowed returns the sum over all memory kinds.
func (s *Set) SumBorrowed() (sum BorrowCount) {
	for _, c := range s.borrowed {
		sum.Opened += c.Opened
		sum.Returned += c.Returned
		sum.Bytes += c.Bytes
	}
	return sum
}
