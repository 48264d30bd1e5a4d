//go:build linux

package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/unwind"
	"github.com/gpurec/gpurec/symbolize"
)

// Table numbers distinct stacks and names their frames while the process is running. It is not safe
// for concurrent use.
type Table struct {
	stacks    map[uint64]*KnownStack   // by kernel stack ID
	chains    map[chainKey]*KnownStack // by process and frames
	spaces    map[uint32]*addressSpace
	files     map[process.FileID]*mappedModule
	lastID    int32
	keys      chainHasher
	roomBytes int  // free space for stacks in bytes
	fullNoted bool // whether the recording has the note about a full table

	unwinder *unwind.Unwinder // nil if stacks are walked by frame pointers
	unwound  map[*unwind.Module]*mappedModule
}

// KnownStack is the stack of a call as columns of its row: number, call site and status.
type KnownStack struct {
	ID     int32
	pid    int32
	Site   string
	Status string
	// NoTable says that the stack is cut at a library whose unwind table was not loaded yet.
	NoTable bool
}

// NewTable returns an empty Table. Without an unwinder, stacks are walked by frame pointers.
func NewTable(unwinder *unwind.Unwinder) *Table {
	return &Table{
		unwinder: unwinder,
		unwound:  make(map[*unwind.Module]*mappedModule),
		stacks: make(
			map[uint64]*KnownStack,
		),
		chains:    make(map[chainKey]*KnownStack),
		keys:      newChainHasher(),
		roomBytes: maxStackTableBytes,
		spaces:    make(map[uint32]*addressSpace),
		files:     make(map[process.FileID]*mappedModule),
	}
}

// lostStack is the stack of calls whose stack record was lost. The BPF programs send the stack
// again at the next hit.
var lostStack = KnownStack{Status: format.StackNone}

// GetStack returns the stack with a kernel stack ID. It never returns nil.
func (t *Table) GetStack(id uint64) *KnownStack {
	if s, ok := t.stacks[id]; ok {
		return s
	}
	return &lostStack
}

// GetCallStack returns the stack of a call. It never returns nil.
func (t *Table) GetCallStack(e *bpf.CudaEvent) *KnownStack {
	if isProvisional(e.StackId) {
		return t.getProvisional(e.StackId, int32(e.Pid))
	}
	return t.GetStack(e.StackId)
}

// AddStack names the frames of a stack and returns its row, preceded by rows of new modules. Chains
// that differ only after an invalid address are the same stack.
func (t *Table) AddStack(e *bpf.CudaStackEvent) []format.Row {
	space := t.addressSpaceOf(e.Pid)
	chain, status := space.cutInvalidAddresses(readCallChain(e))
	key := t.keys.hashAddresses(e.Pid, chain)
	if known, ok := t.chains[key]; ok {
		return t.aliasStackID(e.StackId, known)
	}
	var rows []format.Row
	frames := make([]format.Frame, 0, len(chain))
	for i, pc := range chain {
		frame, m := space.nameAddress(pc, i > 0)
		if m != nil && !m.noted {
			m.noted = true
			rows = append(rows, m.makeModuleRow(int32(e.Pid)))
		}
		frames = append(frames, frame)
	}
	return append(
		rows,
		t.insertStack(e.StackId, key, format.Row{Pid: int32(e.Pid), StackStatus: status, Frames: frames})...)
}

// readCallChain returns the stack's addresses, leaf first. At a function's entry, the frame pointer
// is the caller's, so a walk by frame pointers misses the direct caller. Kernels since 6.11 add the
// caller if the probed instruction is push %rbp.
func readCallChain(e *bpf.CudaStackEvent) []uint64 {
	pcs := e.Pc[:min(int(e.Frames), len(e.Pc))]
	if len(pcs) == 0 || e.CallerPc == 0 || (len(pcs) > 1 && pcs[1] == e.CallerPc) {
		return pcs
	}
	chain := make([]uint64, 0, len(pcs)+1)
	chain = append(chain, pcs[0], e.CallerPc)
	return append(chain, pcs[1:]...)
}

// nameCallSite returns the name of the call site, such as "step (train.py:12)". It is "" if there
// is none.
func nameCallSite(frames []format.Frame) string {
	i := symbolize.SiteFrame(len(frames), func(i int) symbolize.SiteCandidate {
		f := &frames[i]
		return symbolize.SiteCandidate{Module: f.Module, Function: f.Func, File: f.File, Python: f.Type == "python"}
	})
	if i < 1 { // no stack, or only the probed function
		return ""
	}
	return symbolize.NameWithLine(formatFrameName(frames[i]), frames[i].File, frames[i].Line)
}

// formatFrameName returns the display name of a frame.
func formatFrameName(f format.Frame) string { return symbolize.FrameName(f.Func, f.Module, f.Addr) }

// foldStack returns the stack in Brendan Gregg's folded format: root first, joined by ";".
func foldStack(frames []format.Frame) string {
	var b strings.Builder
	for i := len(frames) - 1; i >= 0; i-- {
		b.WriteString(strings.ReplaceAll(formatFrameName(frames[i]), ";", ":"))
		if i > 0 {
			b.WriteByte(';')
		}
	}
	return b.String()
}

// mappedModule is one mapped ELF file. Its file stays open, so that stacks can be named after the
// process has ended.
type mappedModule struct {
	path   string
	file   *os.File
	object *symbolize.Object
	err    error
	noted  bool // whether the recording has its module row
}

// loadSymbols reads the symbols of the ELF file at the first call. It returns nil if they cannot be
// read.
func (m *mappedModule) loadSymbols() *symbolize.Object {
	if m.object != nil || m.err != nil || m.file == nil {
		return m.object
	}
	info, err := m.file.Stat()
	if err == nil {
		m.object, err = symbolize.NewObject(m.file, info.Size())
	}
	m.err = err
	return m.object
}

// makeModuleRow returns the row of kind module for the file.
func (m *mappedModule) makeModuleRow(pid int32) format.Row {
	facts := struct {
		BuildID string `json:"build_id,omitempty"`
		Error   string `json:"error,omitempty"`
	}{}
	if o := m.loadSymbols(); o != nil {
		facts.BuildID = o.BuildID()
	}
	if m.err != nil {
		facts.Error = m.err.Error()
	}
	text, err := json.Marshal(facts)
	if err != nil {
		text = nil // two strings always encode
	}
	return format.Row{Kind: format.KindModule, Pid: pid, Name: m.path, Message: string(text), Device: -1}
}

// addressSpace names addresses of one process.
type addressSpace struct {
	table   *Table
	process *process.Process
	maps    []symbolize.Mapping
	modules map[uint64]*mappedModule // by start address of the mapping
	// jit has the functions in the process's perf map, nil without one.
	jit *symbolize.PerfMap
	// jitBytes is the size of the perf map file.
	jitBytes int64
	// nextRefresh limits the time for reading mappings to a twentieth. A PyTorch process has
	// thousands of mappings.
	nextRefresh time.Time
}

// addressSpaceOf returns the address space of a process, and reads the mappings of a new process.
func (t *Table) addressSpaceOf(pid uint32) *addressSpace {
	s, ok := t.spaces[pid]
	if !ok {
		s = &addressSpace{table: t, process: &process.Process{Pid: int(pid)}, modules: make(map[uint64]*mappedModule)}
		t.spaces[pid] = s
		s.refreshMappings(true)
	}
	return s
}

// RenewProcess reads the mappings of a process again. Call it for a new process and after an exec.
func (t *Table) RenewProcess(pid uint32) {
	delete(t.spaces, pid)
	t.addressSpaceOf(pid)
}

// refreshMappings reads the process's mappings and opens new files. If the process has ended, it
// keeps the known mappings.
func (s *addressSpace) refreshMappings(force bool) {
	begin := time.Now()
	if begin.Before(s.nextRefresh) && !force {
		return
	}
	defer func() { s.nextRefresh = time.Now().Add(20 * time.Since(begin)) }()
	maps, err := s.process.Maps()
	if err != nil || len(maps) == 0 {
		return
	}
	s.maps = maps
	clear(s.modules)
	for _, m := range maps {
		if m.Executable() && strings.HasPrefix(m.Path, "/") {
			s.modules[m.Start] = s.table.openModule(s.process, m)
		}
	}
	s.readPerfMap()
}

// maxPerfMapBytes bounds the total size of the perf maps of all processes, in bytes.
const maxPerfMapBytes = 256 << 20

// readPerfMap reads the functions in the perf map that a JIT compiler wrote for the process.
func (s *addressSpace) readPerfMap() {
	file, err := s.openPerfMap()
	if err != nil {
		return
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() > maxPerfMapBytes ||
		s.table.sumPerfMapBytes()-s.jitBytes+info.Size() > maxPerfMapBytes {
		return
	}
	if jit, err := symbolize.ReadPerfMap(io.LimitReader(file, info.Size())); err == nil {
		s.jit, s.jitBytes = jit, info.Size()
	}
}

// sumPerfMapBytes returns the total size of all loaded perf maps in bytes.
func (t *Table) sumPerfMapBytes() (sum int64) {
	for _, s := range t.spaces {
		sum += s.jitBytes
	}
	return sum
}

// openPerfMap opens the perf map of the process. Everyone may write to its folder, so it accepts
// only a regular file of the process's user.
func (s *addressSpace) openPerfMap() (*os.File, error) {
	file, err := s.process.OpenRegular(fmt.Sprintf("/tmp/perf-%s.map", s.process.PidInOwnNamespace()), unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	var have, want unix.Stat_t
	err = errors.Join(unix.Fstat(int(file.Fd()), &have), unix.Stat(s.process.Path("."), &want))
	if err != nil || have.Uid != want.Uid {
		file.Close()
		return nil, os.ErrPermission
	}
	return file, nil
}

// maxOpenModules bounds the number of mapped ELF files that the recorder keeps open. A process can
// map any number of files, and a recorder without free file descriptors cannot write the recording.
// PyTorch processes have 400.
const maxOpenModules = 1536

// errTooManyModules is the error of modules beyond maxOpenModules.
var errTooManyModules = fmt.Errorf("has no function names: %d ELF files are open already", maxOpenModules)

// openModule returns the module of a mapping. It opens the file through /proc/PID/map_files.
func (t *Table) openModule(p *process.Process, m symbolize.Mapping) *mappedModule {
	file, err := process.OpenRegular(p.MapFile(m))
	if err != nil {
		return &mappedModule{path: m.Path, err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		file.Close()
		return &mappedModule{path: m.Path, err: err}
	}
	id := process.FileID{Dev: uint64(st.Dev), Inode: st.Ino}
	if known, ok := t.files[id]; ok {
		file.Close()
		return known
	}
	if len(t.files) == maxOpenModules {
		file.Close()
		return &mappedModule{path: m.Path, err: errTooManyModules}
	}
	mod := &mappedModule{path: m.Path, file: file}
	t.files[id] = mod
	return mod
}

// cutInvalidAddresses removes the first address outside of the process's code, and all addresses
// after it: the frame pointer was wrong there.
func (s *addressSpace) cutInvalidAddresses(chain []uint64) ([]uint64, string) {
	for i, pc := range chain {
		// The function and its direct caller are certain. If they are in no known mapping, the
		// mappings are outdated. Later addresses can be wrong.
		if !s.isCode(pc, i < 2) {
			return chain[:i], format.StackTruncated
		}
	}
	return chain, format.StackFramePointer
}

// userSpaceEnd is the end of the user address space with four-level page tables. arm64 has one bit
// more than x86-64.
var userSpaceEnd = map[string]uint64{"amd64": 1 << 47, "arm64": 1 << 48}[runtime.GOARCH]

// isCode reports whether an address is in executable memory. For certain addresses it refreshes
// outdated mappings.
func (s *addressSpace) isCode(pc uint64, certain bool) bool {
	if pc < 4096 || pc >= userSpaceEnd {
		return false
	}
	m, ok := symbolize.FindMapping(s.maps, pc)
	if !ok || certain && !m.Executable() {
		s.refreshMappings(certain) // a library may have been loaded
		m, ok = symbolize.FindMapping(s.maps, pc)
	}
	return ok && m.Executable()
}

// nameAddress returns the frame of one address, with its function and module. A return address is
// the instruction after the call, so frame looks up the byte before it.
func (s *addressSpace) nameAddress(pc uint64, isReturn bool) (format.Frame, *mappedModule) {
	if isReturn && pc > 0 {
		pc--
	}
	m, ok := symbolize.FindMapping(s.maps, pc)
	frame := format.Frame{Type: "native", Addr: int64(pc)}
	mod := s.modules[m.Start]
	if !ok || mod == nil {
		return s.nameJITFrame(frame, pc, m)
	}
	frame.Module = mod.path
	object := mod.loadSymbols()
	if object == nil {
		return frame, mod
	}
	frame.BuildID = object.BuildID()
	addr, ok := object.VAddr(pc - m.Start + m.Offset)
	if !ok {
		return frame, mod
	}
	frame.Addr = int64(addr)
	setFunctionName(&frame, object)
	return frame, mod
}

// setFunctionName sets the function name of the frame's address.
func setFunctionName(frame *format.Frame, object *symbolize.Object) {
	if symbol, _, ok := object.Lookup(uint64(frame.Addr)); ok {
		frame.SystemName = symbol.Name
		frame.Func = symbolize.Demangle(symbol.Name)
	}
}

// nameJITFrame names a frame outside of files by the perf map.
func (s *addressSpace) nameJITFrame(frame format.Frame, pc uint64, m symbolize.Mapping) (format.Frame, *mappedModule) {
	frame.Module = m.Path
	if s.jit == nil {
		return frame, nil
	}
	if symbol, _, ok := s.jit.Lookup(pc); ok {
		frame.Func, frame.SystemName, frame.Type = symbol.Name, symbol.Name, "jit"
	}
	return frame, nil
}

// Close closes the mapped ELF files that the table has opened.
func (t *Table) Close() {
	for _, m := range t.files {
		m.file.Close()
	}
}
