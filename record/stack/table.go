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

// Table numbers distinct stacks and names their frames while the process lives.
type Table struct {
	stacks map[uint64]*Info   // by the kernel's hash
	chains map[chainKey]*Info // by process and addresses, after cutting
	spaces map[uint32]*addressSpace
	files  map[process.FileID]*module
	lastID int32
	keys   chainHasher
	room   int  // bytes that stacks may still take
	told   bool // that there is no more room

	unwinder *unwind.Unwinder // nil if stacks are not unwound
	unwound  map[*unwind.Module]*module
}

// Info is what the row of a call says about its stack.
type Info struct {
	ID     int32
	pid    int32
	Site   string
	Status string
}

// NewTable returns an empty Table. Without an unwinder, stacks are those of frame pointers.
func NewTable(unwinder *unwind.Unwinder) *Table {
	return &Table{
		unwinder: unwinder, unwound: make(map[*unwind.Module]*module),
		stacks: make(map[uint64]*Info), chains: make(map[chainKey]*Info), keys: newChainHasher(), room: maxStackBytes,
		spaces: make(map[uint32]*addressSpace), files: make(map[process.FileID]*module),
	}
}

// noStack is for events whose stack was lost on the way; it is sent again at its
// next hit.
var noStack = Info{Status: format.StackNone}

// Get returns a stack by its number in the BPF programs; never nil.
func (t *Table) Get(id uint64) *Info {
	if s, ok := t.stacks[id]; ok {
		return s
	}
	return &noStack
}

// Add names the frames of a stack and returns its row, after rows of modules that are new. Chains
// that differ only behind the point where the walk failed are one stack.
func (t *Table) Add(e *bpf.CudaStackEvent) []format.Row {
	space := t.space(e.Pid)
	chain, status := space.cut(callChain(e))
	key := t.keys.ofAddresses(e.Pid, chain)
	if known, ok := t.chains[key]; ok {
		return t.remember(e.StackId, known)
	}
	var rows []format.Row
	frames := make([]format.Frame, 0, len(chain))
	for i, pc := range chain {
		frame, m := space.frame(pc, i > 0)
		if m != nil && !m.noted {
			m.noted = true
			rows = append(rows, m.row(int32(e.Pid)))
		}
		frames = append(frames, frame)
	}
	return append(rows, t.keep(e.StackId, key, format.Row{Pid: int32(e.Pid), StackStatus: status, Frames: frames})...)
}

// callChain returns the stack's addresses, leaf first. At a function's entry the
// frame pointer is still the caller's, so a walk by frame pointers misses the caller
// itself; kernels since 6.11 add it when the probed instruction is push %rbp.
func callChain(e *bpf.CudaStackEvent) []uint64 {
	pcs := e.Pc[:min(int(e.Frames), len(e.Pc))]
	if len(pcs) == 0 || e.CallerPc == 0 || (len(pcs) > 1 && pcs[1] == e.CallerPc) {
		return pcs
	}
	chain := make([]uint64, 0, len(pcs)+1)
	chain = append(chain, pcs[0], e.CallerPc)
	return append(chain, pcs[1:]...)
}

// site is the short name of the place that made a call.
func site(frames []format.Frame) string {
	i := symbolize.SiteFrame(len(frames), func(i int) symbolize.SiteCandidate {
		f := &frames[i]
		return symbolize.SiteCandidate{Module: f.Module, Function: f.Func, File: f.File, Python: f.Type == "python"}
	})
	if i < 1 { // no stack, or nothing but the probed function
		return ""
	}
	return symbolize.NameWithLine(frameName(frames[i]), frames[i].File, frames[i].Line)
}

func frameName(f format.Frame) string { return symbolize.FrameName(f.Func, f.Module, f.Addr) }

// folded writes the stack in Brendan Gregg's format: root first, joined by ";".
func folded(frames []format.Frame) string {
	var b strings.Builder
	for i := len(frames) - 1; i >= 0; i-- {
		b.WriteString(strings.ReplaceAll(frameName(frames[i]), ";", ":"))
		if i > 0 {
			b.WriteByte(';')
		}
	}
	return b.String()
}

// module is one mapped ELF file. It is kept open from when it is first seen: when
// the process dies its stacks can still be named.
type module struct {
	path   string
	file   *os.File
	object *symbolize.Object
	err    error
	noted  bool
}

// load reads the symbols when they are first needed.
func (m *module) load() *symbolize.Object {
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

func (m *module) row(pid int32) format.Row {
	facts := struct {
		BuildID string `json:"build_id,omitempty"`
		Error   string `json:"error,omitempty"`
	}{}
	if o := m.load(); o != nil {
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
	modules map[uint64]*module // by start of mapping
	jit     *symbolize.PerfMap
	// jitBytes is the size of the file that jit was read from.
	jitBytes int64
	// nextRefresh keeps looking at the mappings from taking more than a twentieth of
	// the time: a process like PyTorch's has thousands.
	nextRefresh time.Time
}

func (t *Table) space(pid uint32) *addressSpace {
	s, ok := t.spaces[pid]
	if !ok {
		s = &addressSpace{table: t, process: &process.Process{Pid: int(pid)}, modules: make(map[uint64]*module)}
		t.spaces[pid] = s
		s.refresh(true)
	}
	return s
}

// Renew drops the mappings of a process, which has another program or is new, and reads them
// again.
func (t *Table) Renew(pid uint32) {
	delete(t.spaces, pid)
	t.space(pid)
}

// refresh reads the process's mappings and opens files that are new. When the
// process is gone, what was known stays.
func (s *addressSpace) refresh(force bool) {
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
			s.modules[m.Start] = s.table.open(s.process, m)
		}
	}
	s.readPerfMap()
}

// maxPerfMaps bounds the perf maps of all processes together, in bytes: each may be as
// large as symbolize reads, and there may be any number of processes.
const maxPerfMaps = 256 << 20

// readPerfMap reads the symbols that a JIT compiler left for the process.
func (s *addressSpace) readPerfMap() {
	file, err := s.openPerfMap()
	if err != nil {
		return
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() > maxPerfMaps || s.table.perfMaps()-s.jitBytes+info.Size() > maxPerfMaps {
		return
	}
	if jit, err := symbolize.ReadPerfMap(io.LimitReader(file, info.Size())); err == nil {
		s.jit, s.jitBytes = jit, info.Size()
	}
}

// perfMaps returns how many bytes of perf maps are known.
func (t *Table) perfMaps() (sum int64) {
	for _, s := range t.spaces {
		sum += s.jitBytes
	}
	return sum
}

// openPerfMap opens the symbols that a JIT compiler left for the process. They are
// in a folder where anybody may write: only a plain file of the process's own user
// counts.
func (s *addressSpace) openPerfMap() (*os.File, error) {
	file, err := s.process.OpenRegular(fmt.Sprintf("/tmp/perf-%s.map", s.process.OwnPid()), unix.O_NOFOLLOW)
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

// maxModules bounds the files that are kept open: a process may map any number of them, and
// who has no file left to open cannot write a recording. PyTorch's have 400.
const maxModules = 1536

var errTooManyModules = fmt.Errorf("is not named: there are %d modules already", maxModules)

// open returns the module behind a mapping, opened through the kernel's own link.
func (t *Table) open(p *process.Process, m symbolize.Mapping) *module {
	file, err := process.OpenRegular(p.MapFile(m))
	if err != nil {
		return &module{path: m.Path, err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		file.Close()
		return &module{path: m.Path, err: err}
	}
	id := process.FileID{Dev: uint64(st.Dev), Inode: st.Ino}
	if known, ok := t.files[id]; ok {
		file.Close()
		return known
	}
	if len(t.files) == maxModules {
		file.Close()
		return &module{path: m.Path, err: errTooManyModules}
	}
	mod := &module{path: m.Path, file: file}
	t.files[id] = mod
	return mod
}

// cut drops what a walk by frame pointers found after it went astray: the first
// address that no code of the process can have, and all behind it.
func (s *addressSpace) cut(chain []uint64) ([]uint64, string) {
	for i, pc := range chain {
		// The function and its caller are certain; if they lie in nothing known, the
		// mappings are old. What comes behind them may be anything.
		if !s.isCode(pc, i < 2) {
			return chain[:i], format.StackTruncated
		}
	}
	return chain, format.StackFramePointer
}

// userEnd is the end of the addresses that processes get if they ask for none: with four levels
// of page tables arm64 has a bit more for them than x86-64.
var userEnd = map[string]uint64{"amd64": 1 << 47, "arm64": 1 << 48}[runtime.GOARCH]

func (s *addressSpace) isCode(pc uint64, certain bool) bool {
	if pc < 4096 || pc >= userEnd {
		return false
	}
	m, ok := symbolize.FindMapping(s.maps, pc)
	if !ok || certain && !m.Executable() {
		s.refresh(certain) // a library loaded since?
		m, ok = symbolize.FindMapping(s.maps, pc)
	}
	return ok && m.Executable()
}

// frame names one address. Return addresses point behind the call: one byte less is
// still inside of it.
func (s *addressSpace) frame(pc uint64, isReturn bool) (format.Frame, *module) {
	if isReturn && pc > 0 {
		pc--
	}
	m, ok := symbolize.FindMapping(s.maps, pc)
	frame := format.Frame{Type: "native", Addr: int64(pc)}
	mod := s.modules[m.Start]
	if !ok || mod == nil {
		return s.jitFrame(frame, pc, m)
	}
	frame.Module = mod.path
	object := mod.load()
	if object == nil {
		return frame, mod
	}
	frame.BuildID = object.BuildID()
	addr, ok := object.VAddr(pc - m.Start + m.Offset)
	if !ok {
		return frame, mod
	}
	frame.Addr = int64(addr)
	nameFrame(&frame, object)
	return frame, mod
}

// nameFrame looks up the function at the frame's address.
func nameFrame(frame *format.Frame, object *symbolize.Object) {
	if symbol, _, ok := object.Lookup(uint64(frame.Addr)); ok {
		frame.SystemName = symbol.Name
		frame.Func = symbolize.Demangle(symbol.Name)
	}
}

func (s *addressSpace) jitFrame(frame format.Frame, pc uint64, m symbolize.Mapping) (format.Frame, *module) {
	frame.Module = m.Path
	if s.jit == nil {
		return frame, nil
	}
	if symbol, _, ok := s.jit.Lookup(pc); ok {
		frame.Func, frame.SystemName, frame.Type = symbol.Name, symbol.Name, "jit"
	}
	return frame, nil
}

// Close closes the modules.
func (t *Table) Close() {
	for _, m := range t.files {
		m.file.Close()
	}
}
