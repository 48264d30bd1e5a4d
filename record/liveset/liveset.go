package liveset

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/format"
)

// DefaultMaxBlocks is the number of blocks of all processes that a Set keeps: about 20 MiB of memory.
const DefaultMaxBlocks = 1 << 16

const (
	// maxProcesses bounds the processes of a Set.
	maxProcesses = 4096
	// maxAllocBytes is larger than any successful allocation. A larger size would overflow sums.
	maxAllocBytes = 1 << 47
)

// Set is the live driver memory of all recorded processes. It is not safe for concurrent use.
type Set struct {
	maxBlocks int
	blocks    map[key]block
	processes map[int32]*process
	omitted   int64 // allocations of processes above maxProcesses
}

// process has the totals of a process. low is the smallest value of bytes since EachProcess.
type process struct {
	bytes, low int64
	omitted    int64 // allocations that did not fit into the set
}

// key identifies a block. Handles of arrays and of physical memory are no addresses: space distinguishes them.
type key struct {
	pid   int32
	space uint8
	ptr   int64
}

// block is one allocation: the columns of its row that reports use, and the rotation with the row.
type block struct {
	startNs, durNs, bytes, context, stream, srcPtr int64

	tid, device, stack, flags, rotation int32

	name, memory, status, site string
}

// New returns an empty Set of at most maxBlocks blocks.
func New(maxBlocks int) *Set {
	return &Set{maxBlocks: maxBlocks, blocks: make(map[key]block), processes: make(map[int32]*process)}
}

// spaces are the memory kinds that count, with the number space of their addresses or handles. Memory of a graph is
// live while the graph runs only, and imported memory belongs to another process.
var spaces = map[string]uint8{
	format.MemoryDevice: 0, format.MemoryAsync: 0, format.MemoryManaged: 0, format.MemoryHost: 0,
	format.MemoryArray: 1, format.MemoryPhysical: 2,
}

// AddMemory applies rows of class memory, in the order in which calls returned. rotation is the number of the rotation
// of segments that has the rows.
func (s *Set) AddMemory(rows []format.Row, rotation int) {
	const unusable = format.FlagOpen | format.FlagAbandoned | format.FlagUnreadable | format.FlagCaptured
	for i := range rows {
		row := &rows[i]
		if row.Result != 0 || row.Ptr == 0 || row.Flags&unusable != 0 {
			continue
		}
		space, counts := spaces[row.MemoryKind]
		if !counts {
			continue
		}
		switch k := (key{row.Pid, space, row.Ptr}); row.Kind {
		case format.KindAlloc:
			s.add(k, row, rotation)
		case format.KindFree:
			s.free(k, row.StartNs)
		}
	}
}

// add adds the block of an allocation. One at the same address was freed by a call without a row, or is the same one:
// an entry point of the driver that calls another one.
func (s *Set) add(k key, row *format.Row, rotation int) {
	if row.Bytes <= 0 || row.Bytes > maxAllocBytes {
		return
	}
	s.remove(k)
	p := s.processes[k.pid]
	if p == nil {
		if len(s.processes) == maxProcesses {
			s.omitted++
			return
		}
		p = new(process)
		s.processes[k.pid] = p
	}
	if len(s.blocks) >= s.maxBlocks {
		p.omitted++
		return
	}
	p.bytes += row.Bytes
	s.blocks[k] = block{
		startNs: row.StartNs, durNs: row.DurNs, bytes: row.Bytes, context: row.Context, stream: row.Stream,
		srcPtr: row.SrcPtr, tid: row.Tid, device: row.Device, stack: row.StackID,
		flags: row.Flags, rotation: int32(rotation), name: row.Name, memory: row.MemoryKind, status: row.StackStatus,
		site: row.Site,
	}
}

// free removes a block, unless the call began before the block was allocated: the driver gives an address to another
// thread before the call that frees it returns.
func (s *Set) free(k key, startNs int64) {
	if b, ok := s.blocks[k]; ok && b.startNs+b.durNs > startNs {
		return
	}
	s.remove(k)
}

func (s *Set) remove(k key) {
	b, ok := s.blocks[k]
	if !ok {
		return
	}
	delete(s.blocks, k)
	if p := s.processes[k.pid]; p != nil {
		p.bytes -= b.bytes
		p.low = min(p.low, p.bytes)
	}
}

// AddCalls applies rows of class call: the end of a context frees its memory. The release of a primary context does
// not, because its last reference may be of a time before the recording.
func (s *Set) AddCalls(rows []format.Row) {
	for i := range rows {
		row := &rows[i]
		if row.Kind != format.KindAPI || row.Result != 0 {
			continue
		}
		switch row.Name {
		case "cuCtxDestroy", "cuCtxDestroy_v2":
			s.removeIf(func(k key, b *block) bool { return k.pid == row.Pid && b.context == row.Ptr })
		case "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2":
			s.removeIf(func(k key, b *block) bool { return k.pid == row.Pid && b.device == int32(row.Value) })
		}
	}
}

func (s *Set) removeIf(ends func(key, *block) bool) {
	for k, b := range s.blocks {
		if ends(k, &b) {
			s.remove(k)
		}
	}
}

// ForgetProcess forgets a process that has ended or called exec.
func (s *Set) ForgetProcess(pid int32) {
	if s.processes[pid] == nil {
		return
	}
	s.removeIf(func(k key, _ *block) bool { return k.pid == pid })
	delete(s.processes, pid)
}

// EachProcess calls use for each process with recorded allocations, with the smallest number of live bytes since the
// call before. It leaves out processes with allocations that did not fit into the set.
func (s *Set) EachProcess(use func(pid int32, low int64)) {
	for pid, p := range s.processes {
		if p.omitted == 0 {
			use(pid, p.low)
		}
		p.low = p.bytes
	}
}

// Snapshot is the live memory of one moment.
type Snapshot struct {
	blocks  []entry
	missing int64
}

type entry struct {
	key
	block
}

// Snapshot returns the live memory of all processes now. Later changes do not affect it.
func (s *Set) Snapshot() *Snapshot {
	n := &Snapshot{blocks: make([]entry, 0, len(s.blocks)), missing: s.omitted}
	for k, b := range s.blocks {
		n.blocks = append(n.blocks, entry{k, b})
	}
	for _, p := range s.processes {
		n.missing += p.omitted
	}
	return n
}

// Missing returns the number of allocations that did not fit into the set.
func (s *Snapshot) Missing() int64 { return s.missing }

// RowsUntil returns the rows of allocations in rotations up to one, as rows of a recording that begins at beginNs, Unix
// ns: they start then, and their message has the time of the allocation. They are in order of that time.
func (s *Snapshot) RowsUntil(rotation int, beginNs int64) (rows []format.Row) {
	slices.SortFunc(s.blocks, func(a, b entry) int { return cmp.Compare(a.startNs, b.startNs) })
	for i := range s.blocks {
		if e := &s.blocks[i]; int(e.rotation) <= rotation {
			rows = append(rows, e.row(beginNs))
		}
	}
	return rows
}

// row returns the row of the allocation.
func (e *entry) row(beginNs int64) format.Row {
	return format.Row{
		Kind: format.KindAlloc, Name: e.name, StartNs: beginNs, Pid: e.pid, Tid: e.tid, CPU: -1, Device: e.device,
		Context: e.context, Stream: e.stream, Flags: e.flags, MemoryKind: e.memory, Ptr: e.ptr, Bytes: e.bytes,
		SrcPtr: e.srcPtr, StackID: e.stack, StackStatus: e.status, Site: e.site,
		Message: fmt.Sprintf(`{"allocated_ns":%d}`, e.startNs+e.durNs),
	}
}
