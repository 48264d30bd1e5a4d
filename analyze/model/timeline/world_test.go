package timeline_test

import (
	"math/rand/v2"
	"slices"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/format"
)

// world simulates processes with threads, contexts and a driver, and writes their calls as a
// recorder does. The driver may return memory to another thread before the call that freed it has
// returned. Programs use only handles and pointers from calls that have returned. They free nothing
// that another thread uses.
type world struct {
	recording *analyzetest.TestRecording
	r         *rand.Rand
	clocks    map[origin.Thread]int64
	threads   []origin.Thread
	procs     map[int32]*worldProcess

	thread     origin.Thread // the thread that makes the current call
	start, end int64         // start and end of the current call, ns
	ctx        *worldContext
}

type worldProcess struct {
	contexts []*worldContext // all contexts; the first two are primary contexts
	blocks   []*worldBlock
	physical []*worldPhysical
	mapped   []*worldMapping
	ipc      map[int64]int64 // how often each handle is open
	external map[int64]bool
	graphs   []int64
	// taken has the names in use; released has the time at which the driver got a name back.
	taken    map[worldName]bool
	released map[worldName]int64
	vaFree   map[int64]int64 // when an address range was unmapped
	exited   bool
}

type worldName struct {
	space string
	ptr   int64
}

type worldContext struct {
	handle  int64
	device  int32
	refs    int64 // references by cuDevicePrimaryCtxRetain
	alive   bool
	usedNs  int64 // end of the last call that used it
	endedNs int64 // when its end was visible to the program
}

type worldBlock struct {
	name     worldName
	kind     string
	bytes    int64
	ctx      *worldContext
	returned int64
}

type worldPhysical struct {
	number     int64
	bytes      int64
	refs, maps int64
	borrowed   bool
	returned   int64
	usedNs     int64
}

type worldMapping struct {
	va, size int64
	mem      *worldPhysical
	returned int64
}

const worldVA = int64(0x300000000)

func newWorld(recording *analyzetest.TestRecording, r *rand.Rand, processes, threads int) *world {
	w := &world{recording: recording, r: r, clocks: make(map[origin.Thread]int64), procs: make(map[int32]*worldProcess)}
	for p := range int32(processes) {
		pid := 42 + 100*p
		w.procs[pid] = &worldProcess{
			contexts: []*worldContext{{handle: 0x5000}, {handle: 0x6000, device: 1}},
			ipc:      make(map[int64]int64), external: make(map[int64]bool), taken: make(map[worldName]bool),
			released: make(map[worldName]int64), vaFree: make(map[int64]int64),
		}
		for i := range int32(threads) {
			th := origin.Thread{Pid: pid, Tid: pid + i}
			w.threads = append(w.threads, th)
			w.clocks[th] = r.Int64N(1000)
		}
	}
	return w
}

func (w *world) proc() *worldProcess { return w.procs[w.thread.Pid] }

// step makes one call in the thread with the earliest clock.
func (w *world) step() {
	w.thread = origin.Thread{}
	for _, o := range w.threads {
		if !w.procs[o.Pid].exited && (w.thread.Pid == 0 || w.clocks[o] < w.clocks[w.thread]) {
			w.thread = o
		}
	}
	if w.thread.Pid == 0 {
		return
	}
	w.start = w.clocks[w.thread] + 1 + w.r.Int64N(50)
	w.end = w.start + 2 + w.r.Int64N(200)
	w.clocks[w.thread] = w.end
	p := w.proc()
	alive := slices.DeleteFunc(
		slices.Clone(p.contexts),
		func(c *worldContext) bool { return !c.alive || c.endedNs >= w.start },
	)
	w.ctx = nil
	if len(alive) > 0 {
		w.ctx = alive[w.r.IntN(len(alive))]
	}
	actions := []func() bool{
		w.alloc,
		w.alloc,
		w.alloc,
		w.alloc,
		w.free,
		w.free,
		w.free,
		w.create,
		w.create,
		w.mapIt,
		w.mapIt,
		w.unmap,
		w.unmap,
		w.release,
		w.release,
		w.retain,
		w.borrow,
		w.giveBack,
		w.makeContext,
		w.endContext,
		w.graph,
		w.fail,
		w.stray,
		w.exit,
	}
	for range 20 {
		if actions[w.r.IntN(len(actions))]() {
			return
		}
	}
}

// call adds the row of a call.
func (w *world) call(kind, name, memory string, ptr, bytes int64) *format.Row {
	row := w.recording.AddCall(kind, name, w.start, w.end-w.start)
	row.Pid, row.Tid, row.MemoryKind, row.Ptr, row.Bytes, row.Device = w.thread.Pid, w.thread.Tid, memory, ptr, bytes, -1
	if w.ctx != nil {
		row.Context, row.Device = w.ctx.handle, w.ctx.device
		w.ctx.usedNs = max(w.ctx.usedNs, w.end)
	}
	return row
}

// effect returns a random time during the call, at which the driver frees the memory.
func (w *world) effect() int64 { return w.start + 1 + w.r.Int64N(w.end-w.start-1) }

// name returns the lowest free number of a space: unused, or returned to the driver in time.
func (w *world) name(space string, from, step int64) worldName {
	p := w.proc()
	n := worldName{space, from}
	for p.taken[n] || p.released[n] >= w.end {
		n.ptr += step
	}
	p.taken[n] = true
	return n
}

func (w *world) giveName(n worldName) {
	p := w.proc()
	delete(p.taken, n)
	p.released[n] = w.effect()
}

func (w *world) alloc() bool {
	if w.ctx == nil {
		return false
	}
	calls := []struct{ kind, name string }{
		{format.MemoryDevice, "cuMemAlloc_v2"},
		{format.MemoryAsync, "cuMemAllocAsync_ptsz"},
		{format.MemoryManaged, "cuMemAllocManaged"},
		{format.MemoryHost, "cuMemHostAlloc"},
		{format.MemoryRegistered, "cuMemHostRegister_v2"},
		{format.MemoryArray, "cuArrayCreate_v2"},
	}
	c := calls[w.r.IntN(len(calls))]
	b := &worldBlock{kind: c.kind, bytes: 1 + w.r.Int64N(1<<20), ctx: w.ctx, returned: w.end}
	switch c.kind {
	case format.MemoryArray:
		b.name = w.name("array", 0x7f0000000000, 512) // handles with numbers that are also pointers
	// the address comes from the program, so it must be free before the call
	case format.MemoryRegistered:
		p := w.proc()
		b.name = worldName{"pointer", 0x550000000000}
		for p.taken[b.name] || p.released[b.name] >= w.start {
			b.name.ptr += 4096
		}
		p.taken[b.name] = true
	default:
		b.name = w.name("pointer", 0x7f0000000000, 512)
	}
	w.proc().blocks = append(w.proc().blocks, b)
	w.call(format.KindAlloc, c.name, c.kind, b.name.ptr, b.bytes)
	return true
}

func (w *world) free() bool {
	p := w.proc()
	known := slices.DeleteFunc(slices.Clone(p.blocks), func(b *worldBlock) bool { return b.returned >= w.start })
	if len(known) == 0 || w.ctx == nil {
		return false
	}
	b := known[w.r.IntN(len(known))]
	p.blocks = slices.DeleteFunc(p.blocks, func(o *worldBlock) bool { return o == b })
	w.giveName(b.name)
	b.ctx.usedNs = max(b.ctx.usedNs, w.end)
	kind, name := b.kind, "cuMemFreeHost"
	switch b.kind {
	case format.MemoryArray:
		name = "cuArrayDestroy"
	case format.MemoryRegistered:
		name = "cuMemHostUnregister"
	case format.MemoryDevice, format.MemoryManaged, format.MemoryAsync:
		kind, name = format.MemoryDevice, "cuMemFree_v2" // cuMemFree accepts all three kinds
	}
	w.call(format.KindFree, name, kind, b.name.ptr, 0)
	return true
}

func (w *world) create() bool {
	mem := &worldPhysical{
		number:   w.name("physical", 0x7f0000000000, 512).ptr,
		bytes:    (1 + w.r.Int64N(8)) << 21,
		refs:     1,
		returned: w.end,
		usedNs:   w.end,
	}
	w.proc().physical = append(w.proc().physical, mem)
	if w.r.IntN(8) == 0 {
		mem.borrowed = true
		w.call(format.KindBorrow, "cuMemImportFromShareableHandle", format.MemoryPhysical, mem.number, 0)
		return true
	}
	w.call(format.KindAlloc, "cuMemCreate", format.MemoryPhysical, mem.number, mem.bytes).Value = float64(w.r.IntN(2))
	return true
}

// physical returns a random handle that the program may use.
func (w *world) physical(may func(*worldPhysical) bool) *worldPhysical {
	list := slices.DeleteFunc(
		slices.Clone(w.proc().physical),
		func(m *worldPhysical) bool { return m.returned >= w.start || !may(m) },
	)
	if len(list) == 0 {
		return nil
	}
	return list[w.r.IntN(len(list))]
}

func (w *world) use(m *worldPhysical) { m.usedNs = max(m.usedNs, w.end) }

// settle ends physical memory without references and mappings.
func (w *world) settle(m *worldPhysical) {
	if m.refs == 0 && m.maps == 0 {
		w.giveName(worldName{"physical", m.number})
		w.proc().physical = slices.DeleteFunc(w.proc().physical, func(o *worldPhysical) bool { return o == m })
	}
}

// quiet reports whether no call on the memory is in flight. A call that drops the last reference or
// mapping must not race with another call.
func (w *world) quiet(m *worldPhysical) bool { return m.usedNs < w.start }

func (w *world) release() bool {
	m := w.physical(func(m *worldPhysical) bool { return m.refs > 1 || m.refs == 1 && w.quiet(m) })
	if m == nil {
		return false
	}
	w.use(m)
	m.refs--
	w.settle(m)
	w.call(format.KindFree, "cuMemRelease", format.MemoryPhysical, m.number, 0)
	return true
}

func (w *world) retain() bool {
	p := w.proc()
	known := slices.DeleteFunc(slices.Clone(p.mapped), func(m *worldMapping) bool { return m.returned >= w.start })
	if len(known) == 0 {
		return false
	}
	m := known[w.r.IntN(len(known))]
	w.use(m.mem)
	m.mem.refs++
	w.call(format.KindRetain, "cuMemRetainAllocationHandle", format.MemoryPhysical, m.mem.number, 0).SrcPtr = m.va
	return true
}

func (w *world) mapIt() bool {
	m := w.physical(func(m *worldPhysical) bool { return m.refs > 0 })
	if m == nil {
		return false
	}
	p := w.proc()
	size := (1 + w.r.Int64N(3)) << 21
	va := worldVA + w.r.Int64N(40)<<21
	for page := va; page < va+size; page += 1 << 21 {
		taken := slices.ContainsFunc(p.mapped, func(o *worldMapping) bool { return page >= o.va && page < o.va+o.size })
		if taken || p.vaFree[page] >= w.start {
			return false
		}
	}
	w.use(m)
	m.maps++
	p.mapped = append(p.mapped, &worldMapping{va, size, m, w.end})
	w.call(format.KindMap, "cuMemMap", "", va, size).SrcPtr = m.number
	return true
}

// unmap removes one mapping, or several adjacent ones.
func (w *world) unmap() bool {
	p := w.proc()
	if len(p.mapped) == 0 {
		return false
	}
	slices.SortFunc(p.mapped, func(a, b *worldMapping) int { return int(a.va - b.va) })
	from := w.r.IntN(len(p.mapped))
	to := from + 1
	for to < len(p.mapped) && p.mapped[to].va == p.mapped[to-1].va+p.mapped[to-1].size && w.r.IntN(3) > 0 {
		to++
	}
	range_ := slices.Clone(p.mapped[from:to])
	for _, m := range range_ {
		if m.returned >= w.start || !w.quiet(m.mem) {
			return false
		}
	}
	last := range_[len(range_)-1]
	p.mapped = slices.Delete(p.mapped, from, to)
	for _, m := range range_ {
		m.mem.maps--
		for page := m.va; page < m.va+m.size; page += 1 << 21 {
			p.vaFree[page] = w.end
		}
		w.settle(m.mem)
	}
	for _, m := range range_ {
		w.use(m.mem)
	}
	w.call(format.KindUnmap, "cuMemUnmap", "", range_[0].va, last.va+last.size-range_[0].va)
	return true
}

func (w *world) borrow() bool {
	p := w.proc()
	if w.r.IntN(2) == 0 {
		ptr := 0x7f0000000000 + w.r.Int64N(3)*512 // IPC pointers may equal device pointers
		p.ipc[ptr]++
		w.call(format.KindBorrow, "cuIpcOpenMemHandle_v2", format.MemoryIPC, ptr, 0)
		return true
	}
	ptr := 0x7f0000000000 + w.r.Int64N(4)*512
	if p.external[ptr] {
		return false
	}
	p.external[ptr] = true
	w.call(format.KindBorrow, "cuImportExternalMemory", format.MemoryExternal, ptr, 1<<20)
	return true
}

func (w *world) giveBack() bool {
	p := w.proc()
	ptr := 0x7f0000000000 + w.r.Int64N(3)*512
	switch {
	case p.ipc[ptr] > 0:
		p.ipc[ptr]--
		w.call(format.KindReturn, "cuIpcCloseMemHandle", format.MemoryIPC, ptr, 0)
	case p.external[ptr]:
		delete(p.external, ptr)
		w.call(format.KindReturn, "cuDestroyExternalMemory", format.MemoryExternal, ptr, 0)
	default:
		return false
	}
	return true
}

// graph adds memory nodes, captures allocations, and frees memory of a graph.
func (w *world) graph() bool {
	p := w.proc()
	if w.ctx == nil {
		return false
	}
	ptr := 0x7e0000000000 + w.r.Int64N(5)*512
	switch w.r.IntN(4) {
	case 0:
		w.call(format.KindAPI, "cuGraphAddMemAllocNode", format.MemoryGraph, ptr, 4096)
	case 1:
		w.call(format.KindAlloc, "cuMemAllocAsync", format.MemoryAsync, ptr, 8192).Flags = format.FlagCaptured
	case 2:
		w.call(format.KindFree, "cuMemFreeAsync", format.MemoryAsync, ptr, 0).Flags = format.FlagCaptured
		return true
	default:
		if i := slices.Index(p.graphs, ptr); i < 0 || w.start <= p.graphs[i+1] {
			return false
		}
		w.call(format.KindFree, "cuMemFreeAsync", format.MemoryAsync, ptr, 0)
		return true
	}
	p.graphs = append(p.graphs, ptr, w.end)
	return true
}

// fail makes a call without an effect.
func (w *world) fail() bool {
	kinds := []string{
		format.KindAlloc,
		format.KindFree,
		format.KindMap,
		format.KindUnmap,
		format.KindRetain,
		format.KindBorrow,
		format.KindReturn,
	}
	memory := []string{format.MemoryDevice, format.MemoryPhysical, format.MemoryArray}
	row := w.call(
		kinds[w.r.IntN(len(kinds))],
		"cuFail",
		memory[w.r.IntN(3)],
		0x7f0000000000+w.r.Int64N(20)*512,
		1+w.r.Int64N(1<<20),
	)
	row.SrcPtr = 0x7f0000000000
	switch w.r.IntN(4) {
	case 0:
		row.Flags = format.FlagOpen
	case 1:
		row.Flags = format.FlagAbandoned
	case 2:
		row.Kind, row.Name, row.Flags, row.Result = format.KindAPI, "cuCtxDestroy_v2", 0, 201
	default:
		row.Result = 1 + w.r.Int32N(3)
	}
	if w.r.IntN(3) == 0 { // successful calls with a null pointer
		row.Kind, row.Ptr, row.Bytes, row.Flags, row.Result = kinds[w.r.IntN(2)], 0, 0, 0, 0
		row.MemoryKind = format.MemoryDevice
	}
	return true
}

// stray frees memory from before the recording.
func (w *world) stray() bool {
	far := 0x100000000000 + w.r.Int64N(1<<20)*4096
	switch w.r.IntN(5) {
	case 0:
		w.call(format.KindFree, "cuMemFree_v2", format.MemoryDevice, far, 0)
	case 1:
		w.call(format.KindFree, "cuMemRelease", format.MemoryPhysical, far, 0)
	case 2:
		w.call(format.KindUnmap, "cuMemUnmap", "", far, 1<<21)
	case 3:
		w.call(format.KindReturn, "cuIpcCloseMemHandle", format.MemoryIPC, far, 0)
	default:
		w.call(format.KindRetain, "cuMemRetainAllocationHandle", format.MemoryPhysical, far, 0)
	}
	return true
}

// exit ends a process at random. The last process stays.
func (w *world) exit() bool {
	left := 0
	for _, p := range w.procs {
		if !p.exited {
			left++
		}
	}
	if left < 2 || w.r.IntN(40) > 0 {
		return false
	}
	at := w.start
	for th, ns := range w.clocks {
		if th.Pid == w.thread.Pid {
			at = max(at, ns)
		}
	}
	p := w.proc()
	p.exited, p.blocks, p.physical, p.mapped = true, nil, nil, nil
	w.recording.AddExit(w.thread.Pid, at+1)
	return true
}

// live returns the live bytes in the simulated driver, by process, kind and number.
func (w *world) live() map[string]int64 {
	live := make(map[string]int64)
	for pid, p := range w.procs {
		for _, b := range p.blocks {
			live[analyzetest.LiveBlockKey(pid, b.kind, b.name.ptr)] = b.bytes
		}
		for _, m := range p.physical {
			if !m.borrowed {
				live[analyzetest.LiveBlockKey(pid, format.MemoryPhysical, m.number)] = m.bytes
			}
		}
	}
	return live
}
