package analyze

// block is a piece of live memory.
type block struct {
	bytes   int64
	sinceNs int64
	origin  int32 // of the call that allocated it
}

// changeWhat says what a change did to the ledger.
type changeWhat uint8

const (
	allocated   changeWhat = iota
	freed                  // by a call
	freeLost               // ended unseen: its pointer was handed out again
	freedByExit            // the process ended while it was live
	allocFailed            // nothing became live
)

// change is one step of the replay. A consumer gets it before the ledger changes, and
// must not keep the pointer;
// what the end of a process frees comes in no order and leaves the ledger at once.
type change struct {
	what  changeWhat
	atNs  int64
	ptr   int64
	block block // the memory that begins or ends; of allocFailed, what was asked for
	by    int32 // origin of the call; of freedByExit, the block's
}

// replayCounts are what the replay could not account for, and how often.
type replayCounts struct {
	// unmatchedFrees ended memory that was allocated before the recording began,
	// or whose allocation was lost.
	unmatchedFrees int64
	lostFrees      int64
	unknownAllocs  int64
	// nested calls did again what a call inside or around them did.
	nested int64
	allocs int64
	frees  int64
	failed int64
}

// ledger is the live memory at a moment of the replay, by process and pointer.
// Device and host pointers share it: CUDA gives both out of one address space.
type ledger struct {
	processes []map[int64]block // by originTable.pids
	counts    replayCounts
	lastFree  []freeCall // by originTable.threads
	change    change     // the one that is handed out
}

// freeCall is a free of which the thread may not have returned yet.
type freeCall struct{ ptr, endNs int64 }

// each calls yield for every live block, in no order.
func (l *ledger) each(yield func(ptr int64, b block)) {
	for _, blocks := range l.processes {
		for ptr, b := range blocks {
			yield(ptr, b)
		}
	}
}

// replay runs all memory calls of the recording in order of effect and hands each
// change of the ledger to consume, before it is made. It returns the final ledger.
//
// The rules: failed, open and abandoned calls change nothing. A free of an unknown
// pointer ends memory from before the recording: it is counted and never makes bytes
// negative. An alloc that returns a live pointer proves that its free was lost. The
// end of a process frees what it holds. Where calls nest (a runtime call around the
// driver call that does the work) and both are recorded, the first of them to take
// effect counts and the other is the same memory.
func (t *Timeline) replay(consume func(*ledger, *change)) (*ledger, error) {
	l := new(ledger)
	exits := t.facts.exits
	err := inOrder(t.memory, t.streamMemory(), func(m *memoryCall) error {
		for len(exits) > 0 && exits[0].atNs < m.atNs {
			l.exit(t, exits[0], consume)
			exits = exits[1:]
		}
		l.apply(t, m, consume)
		return nil
	})
	for _, e := range exits {
		l.exit(t, e, consume)
	}
	return l, t.wrap(err)
}

// blocks returns the live memory of the process that an origin belongs to.
func (l *ledger) blocks(t *Timeline, origin int32) map[int64]block {
	p := int(t.origins.process[origin])
	for len(l.processes) <= p {
		l.processes = append(l.processes, make(map[int64]block))
	}
	return l.processes[p]
}

// emit hands a change out; one is enough, and saves an allocation per call.
func (l *ledger) emit(consume func(*ledger, *change), what changeWhat, atNs, ptr int64, b block, by int32) {
	l.change = change{what, atNs, ptr, b, by}
	consume(l, &l.change)
}

func (l *ledger) apply(t *Timeline, m *memoryCall, consume func(*ledger, *change)) {
	switch m.what {
	case memFree:
		l.free(t, m, consume)
	case memAlloc:
		l.alloc(t, m, consume)
	case memAllocFailed:
		l.counts.failed++
		l.emit(consume, allocFailed, m.atNs, 0, block{m.bytes, m.atNs, m.origin}, m.origin)
	case memAllocUnknown:
		l.counts.unknownAllocs++
	}
}

func (l *ledger) alloc(t *Timeline, m *memoryCall, consume func(*ledger, *change)) {
	blocks := l.blocks(t, m.origin)
	if old, ok := blocks[m.ptr]; ok {
		if old.sinceNs >= m.startNs() && t.origins.thread[old.origin] == t.origins.thread[m.origin] {
			l.counts.nested++ // the call inside this one allocated it
			return
		}
		l.counts.lostFrees++
		l.emit(consume, freeLost, m.atNs, m.ptr, old, m.origin)
		delete(blocks, m.ptr)
	}
	l.counts.allocs++
	b := block{m.bytes, m.atNs, m.origin}
	l.emit(consume, allocated, m.atNs, m.ptr, b, m.origin)
	blocks[m.ptr] = b
}

func (l *ledger) free(t *Timeline, m *memoryCall, consume func(*ledger, *change)) {
	blocks := l.blocks(t, m.origin)
	th := int(t.origins.thread[m.origin])
	for len(l.lastFree) <= th {
		l.lastFree = append(l.lastFree, freeCall{})
	}
	b, ok := blocks[m.ptr]
	if !ok {
		if last := &l.lastFree[th]; last.ptr == m.ptr && m.atNs <= last.endNs {
			l.counts.nested++ // the call around this one freed it
			return
		}
		l.counts.unmatchedFrees++
	} else {
		l.counts.frees++
		l.emit(consume, freed, m.atNs, m.ptr, b, m.origin)
		delete(blocks, m.ptr)
	}
	l.lastFree[th] = freeCall{m.ptr, endOf(m.atNs, m.durNs)}
}

func (l *ledger) exit(t *Timeline, e exit, consume func(*ledger, *change)) {
	p, ok := t.origins.pids[e.pid]
	if !ok || int(p) >= len(l.processes) {
		return
	}
	for ptr, b := range l.processes[p] {
		l.emit(consume, freedByExit, e.atNs, ptr, b, b.origin)
	}
	clear(l.processes[p])
}
