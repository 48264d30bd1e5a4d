//go:build linux

package library

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"golang.org/x/arch/x86/x86asm"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/symbolize"
)

// Kind is the kind of a probed library.
type Kind uint8

const (
	KindDriver      Kind = iota // libcuda, the CUDA driver library
	KindAllocator               // libc10_cuda, with record_trace of PyTorch's caching allocator
	KindReports                 // libc10, with reportMemoryUsageToProfiler, which the allocator calls for each block
	KindCollectives             // libnccl, NVIDIA's library of collectives, or librccl
	KindEngine                  // libtorch_cpu, with PyTorch's autograd engine
)

// kindByFileName returns the kind of a library by its file name. ok is false for libraries that are
// not probed.
func kindByFileName(name string) (kind Kind, ok bool) {
	switch {
	case libcudaFileName.MatchString(name):
		return KindDriver, true
	case allocatorFileName.MatchString(name):
		return KindAllocator, true
	case reportFileName.MatchString(name):
		return KindReports, true
	case collectivesFileName.MatchString(name):
		return KindCollectives, true
	case engineFileName.MatchString(name):
		return KindEngine, true
	}
	return 0, false
}

// Library is a library file to probe, with its probes.
type Library struct {
	ID      process.FileID
	Path    string // path in the process's mount namespace, for messages
	BuildID string
	file    *os.File
	Probes  []Probe

	err error // reason why the file cannot be read; it is not read again

	// variable is the file offset that the allocator's variable would have in the executable segment, see
	// AllocatorVariable. 0: there is none.
	variable uint64

	Kind    Kind
	Missing string // reason why the library of an allocator or engine cannot be probed; "" for libcuda
}

// Probe is one instruction to probe in a library.
// Symbol is the name of the probed function. Cookie is its BPF attach cookie.
type Probe struct {
	Symbol     string
	Cookie     uint16
	FileOffset uint64 // file offset of the probed instruction
	Skipped    int    // bytes from the function's start to the probed instruction
	// Emulated reports whether the kernel emulates the instruction. Single-stepping an instruction
	// takes ten times as long (8.9 µs instead of 0.7 µs on an H200 machine).
	Emulated bool
	Return   bool // whether the return is probed too
	// Returns are the file offsets of the function's return instructions, if they are probed instead of its return
	// address. A probed return address hides the callers from unwinders.
	Returns []uint64
}

// Executable returns a path that opens exactly this file, even after it was renamed or deleted.
func (l *Library) Executable() string { return fmt.Sprintf("/proc/self/fd/%d", l.file.Fd()) }

var libcudaFileName = regexp.MustCompile(`^libcuda\.so(\.[0-9.]+)?$`)

// Cache holds all known libraries with their open files. Reading the symbols of a library takes
// milliseconds. The process in which a library was found may end before the library is probed. A
// Cache is safe for concurrent use.
type Cache struct {
	mu    sync.Mutex
	known map[process.FileID]*Library
	// others are the files that were searched for NCCL without success.
	others map[otherFile]bool
}

// NewCache returns an empty Cache.
func NewCache() *Cache {
	return &Cache{known: make(map[process.FileID]*Library), others: make(map[otherFile]bool)}
}

// maxOpenLibraries bounds the number of library files that the recorder keeps open. A process can
// create any number of libraries.
const maxOpenLibraries = 128

// Mapped returns the libraries to probe that the process has mapped. With an error, it still
// returns the libraries that can be probed.
func (c *Cache) Mapped(p *process.Process) ([]*Library, error) {
	maps, err := p.Maps()
	if err != nil {
		return nil, err
	}
	var found []*Library
	var failed error
	for _, m := range maps {
		if _, ok := kindByFileName(filepath.Base(m.Path)); !ok || !m.Executable() {
			continue
		}
		file, err := p.OpenMappedFile(m)
		var lib *Library
		if err == nil {
			lib, err = c.addFile(file, m.Path)
		}
		if err != nil {
			failed = p.WrapError(err)
		} else if !slices.Contains(found, lib) {
			found = append(found, lib)
		}
	}
	if FirstOfKind(found, KindDriver) != nil {
		found = append(found, c.otherCollectives(p, maps)...)
	}
	return found, failed
}

// MappedAllocator returns the library with PyTorch's caching allocator that the process has mapped, nil if there is
// none. It reads no other library.
func (c *Cache) MappedAllocator(p *process.Process) (*Library, error) {
	maps, err := p.Maps()
	if err != nil {
		return nil, err
	}
	for _, m := range maps {
		if !allocatorFileName.MatchString(filepath.Base(m.Path)) || !m.Executable() {
			continue
		}
		file, err := p.OpenMappedFile(m)
		if err != nil {
			return nil, p.WrapError(err)
		}
		return c.addFileOfKind(file, m.Path, KindAllocator)
	}
	return nil, nil
}

// otherCollectives returns the mapped files of a CUDA process that contain NCCL under another name.
func (c *Cache) otherCollectives(p *process.Process, maps []symbolize.Mapping) (list []*Library) {
	program, _ := os.Readlink(p.Path("exe"))
	for i := range maps {
		m := &maps[i]
		if _, ok := kindByFileName(
			filepath.Base(m.Path),
		); ok || !m.Executable() ||
			!mayBeCollectives(m.Path, program) ||
			c.isOther(m) {
			continue
		}
		file, err := p.OpenMappedFile(*m)
		if err != nil {
			continue
		}
		if !hasCollectives(file, m.Path == program) {
			file.Close()
			c.addOther(m)
			continue
		}
		if lib, err := c.addFileOfKind(file, m.Path, KindCollectives); err == nil && !slices.Contains(list, lib) {
			list = append(list, lib)
		}
	}
	return list
}

// addFile returns the library in an open file. It stores the file in a new library, or closes it if
// the library is known. Messages use path.
func (c *Cache) addFile(file *os.File, path string) (*Library, error) {
	kind, _ := kindByFileName(filepath.Base(path))
	return c.addFileOfKind(file, path, kind)
}

// addFileOfKind is addFile for a library whose name does not say its kind.
func (c *Cache) addFileOfKind(file *os.File, path string, kind Kind) (*Library, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		file.Close()
		return nil, err
	}
	id := process.FileID{Dev: uint64(st.Dev), Inode: st.Ino}
	c.mu.Lock()
	defer c.mu.Unlock()
	lib, known := c.known[id]
	switch {
	case known:
		file.Close()
	case len(c.known) == maxOpenLibraries:
		file.Close()
		return nil, fmt.Errorf("%s is not probed: there are %d libraries already", path, maxOpenLibraries)
	default:
		lib = &Library{ID: id, Path: path, file: file, Kind: kind}
		lib.err = lib.chooseProbes(st.Size)
		c.known[id] = lib
	}
	return lib, lib.err
}

// chooseProbes reads symbols and code of the library and chooses the probes.
func (l *Library) chooseProbes(size int64) error {
	if l.Kind == KindEngine {
		l.Probes, l.Missing = findEngineProbe(l.file, size)
		return nil
	}
	object, err := symbolize.NewObject(l.file, size)
	if err != nil && (l.Kind == KindReports || l.Kind == KindCollectives) { // few programs need libc10's reports
		l.Missing = err.Error()
		return nil
	}
	if err != nil {
		return fmt.Errorf("read symbols of %s: %w", l.Path, err)
	}
	l.BuildID = object.BuildID()
	switch l.Kind {
	case KindDriver:
		l.Probes, err = findProbes(object, l.file, bpf.ListProbeSymbols())
	case KindAllocator:
		l.Probes, l.Missing, err = findRecordTraceProbe(object, l.file)
		l.variable = findAllocatorVariable(l.file, size)
	case KindReports:
		l.Probes, l.Missing = findReportProbe(object, l.file)
	case KindCollectives:
		l.Probes, err = findProbes(object, l.file, listCollectives())
	}
	if err != nil {
		return fmt.Errorf("read code of %s: %w", l.Path, err)
	}
	if len(l.Probes) == 0 && l.Kind == KindDriver {
		return fmt.Errorf("%s exports no CUDA driver function", l.Path)
	}
	return nil
}

// Path returns the path of a known library, "" for others.
func (c *Cache) Path(id process.FileID) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lib := c.known[id]; lib != nil {
		return lib.Path
	}
	return ""
}

// Close closes the files of all libraries.
func (c *Cache) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, lib := range c.known {
		lib.file.Close()
		delete(c.known, id)
	}
}

// findProbes returns a probe for each of the functions that the library defines. A function with several
// names is probed once, with its first name.
func findProbes(object *symbolize.Object, code *os.File, symbols []bpf.ProbeSymbol) ([]Probe, error) {
	machine, err := readELFMachine(code)
	if err != nil {
		return nil, err
	}
	var probes []Probe
	at := make(map[uint64]bool)
	for _, s := range symbols {
		symbol, ok := object.Find(s.Name)
		if !ok {
			continue
		}
		offset, ok := object.FileOffset(symbol.Start)
		if !ok || at[offset] {
			continue
		}
		at[offset] = true
		text := make([]byte, 32)
		n, err := code.ReadAt(text, int64(offset))
		if n == 0 {
			return nil, err
		}
		call, _, _, _ := bpf.FunctionByCookie(s.Cookie)
		skip, emulated := chooseProbeOffset(machine, text[:n])
		probes = append(probes, Probe{
			Symbol: s.Name, Cookie: s.Cookie, FileOffset: offset + uint64(skip), Skipped: skip,
			Emulated: emulated, Return: call.NeedsReturnProbe(),
		})
	}
	return probes, nil
}

// readELFMachine returns the CPU architecture of an ELF file: e_machine in its header.
func readELFMachine(file *os.File) (elf.Machine, error) {
	var header [20]byte
	if _, err := file.ReadAt(header[:], 0); err != nil {
		return elf.EM_NONE, err
	}
	return elf.Machine(binary.LittleEndian.Uint16(header[18:])), nil
}

// chooseProbeOffset chooses the instruction to probe at the start of a function. It is the first
// instruction that the kernel emulates. All instructions before it must keep the arguments, the
// stack pointer and memory unchanged. If there is no such instruction, chooseProbeOffset returns 0:
// the first instruction.
func chooseProbeOffset(machine elf.Machine, text []byte) (offset int, emulated bool) {
	if machine != elf.EM_X86_64 {
		return 0, false
	}
	for at := 0; at < len(text); {
		if isEndbr(text[at:]) {
			at += endbrBytes
			continue
		}
		in, err := x86asm.Decode(text[at:], 64)
		if err != nil {
			return 0, false
		}
		if isEmulatedInstruction(in) {
			return at, true
		}
		if !isHarmlessInstruction(in) {
			return 0, false
		}
		at += in.Len
	}
	return 0, false
}

// endbrBytes is the length of endbr64, which x86asm does not know.
const endbrBytes = 4

// isEndbr reports whether code begins with endbr64.
func isEndbr(code []byte) bool { return bytes.HasPrefix(code, []byte{0xf3, 0x0f, 0x1e, 0xfa}) }

// isEmulatedInstruction reports whether the kernel's uprobes emulate the instruction: see
// branch_setup_xol_ops and push_setup_xol_ops in arch/x86/kernel/uprobes.c.
func isEmulatedInstruction(in x86asm.Inst) bool {
	switch in.Op {
	case x86asm.PUSH:
		_, register := in.Args[0].(x86asm.Reg)
		return register
	case x86asm.NOP:
		return in.Len == 1
	case x86asm.JCXZ, x86asm.JECXZ, x86asm.JRCXZ:
		return false
	case x86asm.CALL:
		_, relative := in.Args[0].(x86asm.Rel)
		return relative
	}
	_, relative := in.Args[0].(x86asm.Rel)
	return relative && in.Op >= x86asm.JA && in.Op <= x86asm.JS
}

// isHarmlessInstruction reports whether an instruction may execute before the probe: it changes no
// argument register, no stack pointer and no memory.
func isHarmlessInstruction(in x86asm.Inst) bool {
	switch in.Op {
	case x86asm.CMP, x86asm.TEST, x86asm.NOP:
		return true
	case x86asm.MOV, x86asm.LEA, x86asm.XOR, x86asm.MOVZX, x86asm.MOVSX:
		r, ok := in.Args[0].(x86asm.Reg)
		return ok && !mayHoldArgument(r)
	}
	return false
}

// mayHoldArgument reports whether a register may hold an argument. It returns true for all
// registers except scratch registers.
func mayHoldArgument(r x86asm.Reg) bool {
	switch r {
	case x86asm.RAX, x86asm.EAX, x86asm.R10, x86asm.R10L, x86asm.R11, x86asm.R11L:
		return false // scratch registers of the System V ABI
	}
	return true
}
