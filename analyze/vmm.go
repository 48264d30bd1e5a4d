package analyze

// handle is physical memory: it lives as long as the program holds a reference to it
// or has it mapped. Its number is given out again only after that.
type handle struct {
	block block
	refs  int64
	maps  int64
	// borrows is how often it was imported; of memory of this process it is 0.
	borrows int64
	// gone: the number was given to other memory, so the end of this was not seen.
	// What is mapped of it stays in the table until its addresses are used anew.
	gone bool
}

// create begins memory of a new handle.
func (l *ledger) create(h *holdings, m *memoryCall, consume func(*ledger, *change)) {
	if old := h.handles[m.ptr]; old != nil {
		l.counts.lostFrees++
		l.lose(h, m, old, consume)
	}
	b := block{m.bytes, m.atNs, m.origin, int32(l.counts.allocs)}
	l.counts.allocs++
	l.emit(consume, allocated, m.atNs, m.ptr, b, m.origin)
	h.handles[m.ptr] = &handle{block: b, refs: 1}
}

// lose ends a handle whose number turned up again.
func (l *ledger) lose(h *holdings, m *memoryCall, old *handle, consume func(*ledger, *change)) {
	if old.borrows == 0 {
		l.emit(consume, freeLost, m.atNs, m.ptr, old.block, m.origin)
	}
	old.gone = true
	delete(h.handles, m.ptr)
}

// release gives one reference back.
func (l *ledger) release(h *holdings, m *memoryCall, consume func(*ledger, *change)) {
	mem := h.handles[m.ptr]
	if mem == nil || mem.refs == 0 {
		l.counts.unmatchedFrees++
		return
	}
	mem.refs--
	l.settle(h, m, m.ptr, mem, freed, consume)
}

// settle ends the memory of a handle that is neither referred to nor mapped.
func (l *ledger) settle(h *holdings, m *memoryCall, number int64, mem *handle, what changeWhat, consume func(*ledger, *change)) {
	if mem.gone || mem.refs > 0 || mem.maps > 0 {
		return
	}
	if mem.borrows > 0 {
		l.borrows(mem.block.origin).returned += mem.borrows
	} else {
		if what == freed {
			l.counts.frees++
		}
		l.emit(consume, what, m.atNs, number, mem.block, m.origin)
	}
	delete(h.handles, number)
}

// mapMemory makes a handle's memory appear at an address. Memory that still is there
// was unmapped by a call that was lost.
func (l *ledger) mapMemory(h *holdings, m *memoryCall, consume func(*ledger, *change)) {
	end := endOf(m.ptr, m.bytes)
	if end <= m.ptr {
		return
	}
	mem := h.handles[m.handle]
	if mem != nil {
		mem.maps++
	}
	h.mappings.cut(m.ptr, end, func(old mapping) {
		l.counts.lostFrees++
		l.unmapped(h, m, old, freeLost, consume)
	})
	h.mappings.insert(mapping{m.ptr, end, mem, m.handle})
}

func (l *ledger) unmap(h *holdings, m *memoryCall, consume func(*ledger, *change)) {
	found := false
	h.mappings.cut(m.ptr, endOf(m.ptr, m.bytes), func(old mapping) {
		found = true
		l.unmapped(h, m, old, freed, consume)
	})
	if !found {
		l.counts.unmatchedFrees++
	}
}

func (l *ledger) unmapped(h *holdings, m *memoryCall, old mapping, what changeWhat, consume func(*ledger, *change)) {
	if old.handle == nil {
		return
	}
	old.handle.maps--
	l.settle(h, m, old.number, old.handle, what, consume)
}
