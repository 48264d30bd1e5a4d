//go:build linux

package library

import (
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

// Kind says which of the probed libraries a file is.
type Kind uint8

const (
	Driver    Kind = iota // libcuda
	Allocator             // libc10_cuda: record_trace of PyTorch's caching allocator
	Reports               // libc10: what that reports of its blocks
)

// kindOf tells by a library's name what it is; ok is false for all others.
func kindOf(name string) (kind Kind, ok bool) {
	switch {
	case libcudaName.MatchString(name):
		return Driver, true
	case allocatorName.MatchString(name):
		return Allocator, true
	case reportName.MatchString(name):
		return Reports, true
	}
	return 0, false
}

// Library is a file of libcuda, of a caching allocator or of its reports, with the places to
// probe.
type Library struct {
	ID      process.FileID
	Path    string // in the root of the process, for messages
	BuildID string
	file    *os.File
	Probes  []Probe

	err error // why it cannot be read, and is not tried again

	Kind    Kind
	Missing string // why an allocator's library cannot be probed; "" for libcuda
}

// Probe is a place to probe in a library.
type Probe struct {
	Symbol     string
	Cookie     uint16
	FileOffset uint64 // of the probed instruction
	Skipped    int    // bytes between the function's start and that instruction
	// Emulated is whether the kernel emulates the instruction; one that it has to
	// single-step costs ten times as much (8.9 µs against 0.7 µs on an H200 machine).
	Emulated bool
	Return   bool // the return is probed, too
}

// Executable returns a path by which the kernel opens exactly this file, also after it was renamed
// or deleted.
func (l *Library) Executable() string { return fmt.Sprintf("/proc/self/fd/%d", l.file.Fd()) }

var libcudaName = regexp.MustCompile(`^libcuda\.so(\.[0-9.]+)?$`)

// Cache holds the libraries that were found, open. Reading the symbols of one takes milliseconds,
// and the process through which it was found may have ended when it is probed. Safe for concurrent
// use.
type Cache struct {
	mu    sync.Mutex
	known map[process.FileID]*Library
}

// NewCache returns an empty Cache.
func NewCache() *Cache { return &Cache{known: make(map[process.FileID]*Library)} }

// maxLibraries bounds the files that are kept open: a process may make as many as it likes.
const maxLibraries = 128

// Mapped returns the libraries to probe that the process has mapped. With an error it returns
// those that can be probed nevertheless.
func (c *Cache) Mapped(p *process.Process) ([]*Library, error) {
	maps, err := p.Maps()
	if err != nil {
		return nil, err
	}
	var found []*Library
	var failed error
	for _, m := range maps {
		if _, ok := kindOf(filepath.Base(m.Path)); !ok || !m.Executable() {
			continue
		}
		file, err := p.OpenMapped(m)
		var lib *Library
		if err == nil {
			lib, err = c.take(file, m.Path)
		}
		if err != nil {
			failed = p.Wrap(err)
		} else if !slices.Contains(found, lib) {
			found = append(found, lib)
		}
	}
	return found, failed
}

// take returns the library that a file is, and keeps the file or closes it; path is
// what it is called in messages.
func (c *Cache) take(file *os.File, path string) (*Library, error) {
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
	case len(c.known) == maxLibraries:
		file.Close()
		return nil, fmt.Errorf("%s is not probed: there are %d libraries already", path, maxLibraries)
	default:
		kind, _ := kindOf(filepath.Base(path))
		lib = &Library{ID: id, Path: path, file: file, Kind: kind}
		lib.err = lib.read(st.Size)
		c.known[id] = lib
	}
	return lib, lib.err
}

// read reads symbols and code.
func (l *Library) read(size int64) error {
	object, err := symbolize.NewObject(l.file, size)
	if err != nil && l.Kind == Reports { // most programs that have it never need it
		l.Missing = err.Error()
		return nil
	}
	if err != nil {
		return fmt.Errorf("read symbols of %s: %w", l.Path, err)
	}
	l.BuildID = object.BuildID()
	switch l.Kind {
	case Driver:
		l.Probes, err = choose(object, l.file)
	case Allocator:
		l.Probes, l.Missing, err = chooseAllocator(object, l.file)
	case Reports:
		l.Probes, l.Missing = chooseReports(object, l.file)
	}
	if err != nil {
		return fmt.Errorf("read code of %s: %w", l.Path, err)
	}
	if len(l.Probes) == 0 && l.Kind == Driver {
		return fmt.Errorf("%s exports no CUDA driver function", l.Path)
	}
	return nil
}

// Close closes the files of the libraries.
func (c *Cache) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, lib := range c.known {
		lib.file.Close()
		delete(c.known, id)
	}
}

// choose returns a probe for every function of the table that the library defines.
// Several names of one function are probed once, under the first name of the table.
func choose(object *symbolize.Object, code *os.File) ([]Probe, error) {
	machine, err := machineOf(code)
	if err != nil {
		return nil, err
	}
	var probes []Probe
	at := make(map[uint64]bool)
	for _, s := range bpf.Symbols() {
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
		call, _, _, _ := bpf.ByCookie(s.Cookie)
		skip, emulated := probeOffset(machine, text[:n])
		probes = append(probes, Probe{
			Symbol: s.Name, Cookie: s.Cookie, FileOffset: offset + uint64(skip), Skipped: skip,
			Emulated: emulated, Return: call.NeedsReturn(),
		})
	}
	return probes, nil
}

// machineOf reads for which processor an ELF file is: e_machine in its header.
func machineOf(file *os.File) (elf.Machine, error) {
	var header [20]byte
	if _, err := file.ReadAt(header[:], 0); err != nil {
		return elf.EM_NONE, err
	}
	return elf.Machine(binary.LittleEndian.Uint16(header[18:])), nil
}

// probeOffset chooses the instruction to probe at the start of a function: the first
// that the kernel emulates instead of single-stepping, as long as everything before
// it leaves the arguments, the stack pointer and memory as they were. If there is
// none, the first instruction it is.
func probeOffset(machine elf.Machine, text []byte) (offset int, emulated bool) {
	if machine != elf.EM_X86_64 {
		return 0, false
	}
	endbr64 := []byte{0xf3, 0x0f, 0x1e, 0xfa}
	for at := 0; at < len(text); {
		if len(text)-at >= 4 && slices.Equal(text[at:at+4], endbr64) {
			at += 4
			continue
		}
		in, err := x86asm.Decode(text[at:], 64)
		if err != nil {
			return 0, false
		}
		if isEmulated(in) {
			return at, true
		}
		if !isHarmless(in) {
			return 0, false
		}
		at += in.Len
	}
	return 0, false
}

// isEmulated reports whether the kernel's uprobes emulate the instruction; see
// branch_setup_xol_ops and push_setup_xol_ops in arch/x86/kernel/uprobes.c.
func isEmulated(in x86asm.Inst) bool {
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

// isHarmless reports whether an instruction may run before the probe: it changes
// neither an argument register nor the stack pointer nor memory.
func isHarmless(in x86asm.Inst) bool {
	switch in.Op {
	case x86asm.CMP, x86asm.TEST, x86asm.NOP:
		return true
	case x86asm.MOV, x86asm.LEA, x86asm.XOR, x86asm.MOVZX, x86asm.MOVSX:
		r, ok := in.Args[0].(x86asm.Reg)
		return ok && !isArgumentRegister(r)
	}
	return false
}

func isArgumentRegister(r x86asm.Reg) bool {
	switch r {
	case x86asm.RAX, x86asm.EAX, x86asm.R10, x86asm.R10L, x86asm.R11, x86asm.R11L:
		return false // scratch by the System V ABI; everything else is kept away from
	}
	return true
}
