//go:build linux

package interpreter

import (
	"errors"
	"path"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/hoststack/cpython"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/unwind/remote"
	"github.com/gpurec/gpurec/symbolize"
	"github.com/gpurec/gpurec/symbolize/elffile"
)

// reading is the state of an interpreter at one moment between two times.
type reading struct {
	fromNs, toNs int64 // before and after the reading, on CLOCK_MONOTONIC
	gil          cpython.GIL
	locked       bool
	holder       cpython.Thread // the zero value if unknown
	hasGC        bool
	gc           cpython.GC
}

// state reads the state of a process's main interpreter by one system call, two if the holder of the GIL
// has changed.
type state struct {
	pid         int
	interpreter *cpython.Interpreter
	places      cpython.Places
	holder      uint64 // the thread state of the last holder
	gil         [cpython.GILHeadBytes]byte
	gc          [cpython.GCBytes]byte
	thread      [cpython.ThreadBytes]byte
	local       [3]unix.Iovec
	remote      [3]unix.RemoteIovec
}

// errTorn is the error of a reading that has no content.
var errTorn = errors.New("the state of the interpreter is not readable")

// findState finds the main interpreter of a process. It returns nil without an error if the process has
// none. An error says why it cannot be read.
func findState(p *process.Process) (*state, error) {
	maps, err := p.Maps()
	if err != nil {
		return nil, err
	}
	var firstErr error
	for _, m := range maps {
		if !m.Executable() || m.Inode == 0 || !cpython.IsInterpreter(path.Base(m.Path)) {
			continue
		}
		symbols, err := findSymbols(p, m)
		if err != nil {
			firstErr = errors.Join(firstErr, err)
			continue
		}
		found, err := cpython.Find(memory(p.Pid), symbols)
		if err != nil {
			return nil, err
		}
		if found == nil {
			continue
		}
		places, err := found.MainPlaces()
		if err != nil {
			return nil, err
		}
		return newState(p.Pid, found, places), nil
	}
	return nil, firstErr
}

// findSymbols returns the addresses of the interpreter's symbols in a process.
func findSymbols(p *process.Process, m symbolize.Mapping) (map[string]cpython.Symbol, error) {
	file, err := p.OpenMappedFile(m)
	if err != nil {
		return nil, p.WrapError(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	elf, err := elffile.New(file, info.Size())
	if err != nil {
		return nil, err
	}
	found, err := remote.DynamicSymbols(file, cpython.SymbolNames)
	if err != nil {
		return nil, err
	}
	symbols := make(map[string]cpython.Symbol)
	for i := range elf.Segments {
		s := &elf.Segments[i]
		if !elffile.IsExecutable(s) || m.Offset-s.Off >= s.Filesz {
			continue
		}
		vaddr := m.Offset - s.Off + s.Vaddr
		for name, symbol := range found {
			symbols[name] = cpython.Symbol{Addr: symbol.VAddr + m.Start - vaddr, Size: symbol.Size}
		}
		break
	}
	return symbols, nil
}

func newState(pid int, p *cpython.Interpreter, places cpython.Places) *state {
	s := &state{pid: pid, interpreter: p, places: places}
	s.local[0].Base, s.local[1].Base, s.local[2].Base = &s.gil[0], &s.gc[0], &s.thread[0]
	for i, size := range []int{len(s.gil), len(s.gc), len(s.thread)} {
		s.local[i].SetLen(size)
		s.remote[i].Len = size
	}
	s.remote[0].Base, s.remote[1].Base = uintptr(places.GIL), uintptr(places.GC)
	if places.GC == 0 {
		s.remote[1].Base = uintptr(places.GIL) // not used
		s.local[1].SetLen(1)
		s.remote[1].Len = 1
	}
	return s
}

// read takes one reading.
func (s *state) read() (reading, error) {
	r := reading{fromNs: clock.ReadNs(unix.CLOCK_MONOTONIC), hasGC: s.places.GC != 0}
	hasThread, err := s.readParts()
	r.toNs = clock.ReadNs(unix.CLOCK_MONOTONIC)
	if err != nil {
		return r, err
	}
	gil, holder, err := cpython.DecodeGIL(s.places.GIL, s.gil[:])
	if err != nil {
		return r, err
	}
	r.gil, r.locked = gil, gil.Locked
	if r.hasGC {
		if r.gc, err = cpython.DecodeGC(s.gc[:]); err != nil {
			return r, err
		}
	}
	if holder == 0 {
		return r, nil
	}
	if holder != s.holder || !hasThread {
		s.holder = holder
		hasThread = memory(s.pid).Read(holder, s.thread[:]) == nil
	}
	if t, _, ok := s.interpreter.DecodeThread(holder, s.thread[:]); hasThread && ok {
		r.holder = t
	}
	return r, nil
}

// readParts reads GIL, garbage collection and the thread state of the last holder. The last one may be
// missing: the thread may have ended.
func (s *state) readParts() (hasThread bool, err error) {
	parts := 2
	if s.holder != 0 {
		parts = 3
		s.remote[2].Base = uintptr(s.holder)
	}
	n, err := unix.ProcessVMReadv(s.pid, s.local[:parts], s.remote[:parts], 0)
	if err != nil {
		return false, err
	}
	needed := s.remote[0].Len + s.remote[1].Len
	if n < needed {
		return false, errTorn
	}
	return n == needed+len(s.thread), nil
}

// memory reads the memory of the process with this PID.
type memory int

// Read fills a buffer from an address of the process.
func (m memory) Read(addr uint64, into []byte) error {
	if len(into) == 0 {
		return nil
	}
	local := []unix.Iovec{{Base: &into[0]}}
	local[0].SetLen(len(into))
	n, err := unix.ProcessVMReadv(int(m), local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(into)}}, 0)
	if err != nil {
		return err
	}
	if n != len(into) {
		return errTorn
	}
	return nil
}
