package ledger

import "github.com/gpurec/gpurec/analyze/units"

// Handle is physical memory: it lives as long as the program holds a reference to it
// or has it mapped. Its number is given out again only after that.
type Handle struct {
	Block Block
	Refs  int64
	maps  int64
	// Borrows is how often it was imported; of memory of this process it is 0.
	Borrows int64
	// gone: the number was given to other memory, so the end of this was not seen.
	// What is mapped of it stays in the table until its addresses are used anew.
	gone bool
}

// create begins memory of a new handle.
func (l *Ledger) create(h *Holdings, m *Call, consume func(*Ledger, *Change)) {
	if old := h.Handles[m.Ptr]; old != nil {
		l.Counts.LostFrees++
		l.lose(h, m, old, consume)
	}
	b := Block{m.Bytes, m.AtNs, m.Origin, int32(l.Counts.Allocs)}
	l.Counts.Allocs++
	l.emit(consume, Allocated, m.AtNs, m.Ptr, b, m.Origin)
	h.Handles[m.Ptr] = &Handle{Block: b, Refs: 1}
}

// lose ends a handle whose number turned up again.
func (l *Ledger) lose(h *Holdings, m *Call, old *Handle, consume func(*Ledger, *Change)) {
	if old.Borrows == 0 {
		l.emit(consume, FreeLost, m.AtNs, m.Ptr, old.Block, m.Origin)
	}
	old.gone = true
	delete(h.Handles, m.Ptr)
}

// release gives one reference back.
func (l *Ledger) release(h *Holdings, m *Call, consume func(*Ledger, *Change)) {
	mem := h.Handles[m.Ptr]
	if mem == nil || mem.Refs == 0 {
		l.Counts.UnmatchedFrees++
		return
	}
	mem.Refs--
	l.settle(h, m, m.Ptr, mem, Freed, consume)
}

// settle ends the memory of a handle that is neither referred to nor mapped.
func (l *Ledger) settle(
	h *Holdings,
	m *Call,
	number int64,
	mem *Handle,
	what ChangeKind,
	consume func(*Ledger, *Change),
) {
	if mem.gone || mem.Refs > 0 || mem.maps > 0 {
		return
	}
	if mem.Borrows > 0 {
		l.borrows(mem.Block.Origin).Returned += mem.Borrows
	} else {
		if what == Freed {
			l.Counts.Frees++
		}
		l.emit(consume, what, m.AtNs, number, mem.Block, m.Origin)
	}
	delete(h.Handles, number)
}

// mapMemory makes a handle's memory appear at an address. Memory that still is there
// was unmapped by a call that was lost.
func (l *Ledger) mapMemory(h *Holdings, m *Call, consume func(*Ledger, *Change)) {
	end := units.EndOf(m.Ptr, m.Bytes)
	if end <= m.Ptr {
		return
	}
	mem := h.Handles[m.Handle]
	if mem != nil {
		mem.maps++
	}
	h.Mappings.Cut(m.Ptr, end, func(old Mapping) {
		l.Counts.LostFrees++
		l.unmapped(h, m, old, FreeLost, consume)
	})
	h.Mappings.Insert(Mapping{m.Ptr, end, mem, m.Handle})
}

func (l *Ledger) unmap(h *Holdings, m *Call, consume func(*Ledger, *Change)) {
	found := false
	h.Mappings.Cut(m.Ptr, units.EndOf(m.Ptr, m.Bytes), func(old Mapping) {
		found = true
		l.unmapped(h, m, old, Freed, consume)
	})
	if !found {
		l.Counts.UnmatchedFrees++
	}
}

func (l *Ledger) unmapped(h *Holdings, m *Call, old Mapping, what ChangeKind, consume func(*Ledger, *Change)) {
	if old.Handle == nil {
		return
	}
	old.Handle.maps--
	l.settle(h, m, old.Number, old.Handle, what, consume)
}
