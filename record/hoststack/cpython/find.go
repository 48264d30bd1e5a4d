//go:build linux

package cpython

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
)

// Memory reads memory of the process.
type Memory interface {
	// Read fills a buffer from an address, or returns an error.
	Read(addr uint64, into []byte) error
}

// IsInterpreter reports whether a file of this name can contain an interpreter.
func IsInterpreter(base string) bool { return interpreterNames.MatchString(base) }

var interpreterNames = regexp.MustCompile(`^(lib)?python[23](\.\d+)?[a-z]?(\.so.*)?$`)

// Limits of an interpreter.
const (
	maxInterpreters = 64
	maxThreads      = 1 << 16
	frameBytes      = 80
)

// Interpreter is the CPython of a process.
type Interpreter struct {
	memory   Memory
	layout   layout
	version  version
	runtime  uint64
	codeType uint64 // address of PyCode_Type
	// loopStart and loopEnd enclose _PyEval_EvalFrameDefault in the process.
	loopStart, loopEnd uint64
	codes              map[uint64]codeObject
}

// Symbol is a dynamic symbol of an interpreter: its address in the process and its size in bytes.
type Symbol struct{ Addr, Size uint64 }

// SymbolNames are the symbols that Find needs.
var SymbolNames = []string{symbolRuntime, symbolVersion, symbolCodeType, symbolLoop}

const (
	symbolRuntime  = "_PyRuntime"
	symbolVersion  = "Py_Version" // since 3.11
	symbolCodeType = "PyCode_Type"
	symbolLoop     = "_PyEval_EvalFrameDefault"
)

// Find returns the interpreter with these symbols. It returns nil without an error if they are of no
// interpreter. An error says why its frames cannot be read.
func Find(m Memory, symbols map[string]Symbol) (*Interpreter, error) {
	if _, ok := symbols[symbolRuntime]; !ok {
		return nil, nil
	}
	number, ok := symbols[symbolVersion]
	if !ok {
		return nil, errors.New("interpreters before 3.11 are not supported")
	}
	loop := symbols[symbolLoop]
	p := &Interpreter{
		memory: m, runtime: symbols[symbolRuntime].Addr, codeType: symbols[symbolCodeType].Addr,
		loopStart: loop.Addr, loopEnd: loop.Addr + loop.Size, codes: make(map[uint64]codeObject),
	}
	if p.codeType == 0 || loop.Size == 0 {
		return nil, errors.New("the interpreter has no dynamic symbols")
	}
	var raw [4]byte
	if err := m.Read(number.Addr, raw[:]); err != nil {
		return nil, fmt.Errorf("read version: %w", err)
	}
	p.version = version{raw[3], raw[2]}
	var err error
	p.layout, err = readLayout(m, p.runtime, p.version)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Version returns the version of the interpreter, such as 3.12.
func (i *Interpreter) Version() string { return i.version.String() }

// InLoop reports whether an address is in the interpreter loop.
func (i *Interpreter) InLoop(pc uint64) bool { return pc >= i.loopStart && pc < i.loopEnd }

// Thread is a thread of the interpreter.
type Thread struct {
	State    uint64 // address of its PyThreadState
	Pointer  uint64 // pthread_self()
	NativeID uint64 // thread ID in the PID namespace of the process
}

// Threads returns the threads of all interpreters. The error is errLayout if the structures are not
// as expected. isThread reports whether a thread pointer belongs to a thread of the process.
func (i *Interpreter) Threads(isThread func(pointer, nativeID uint64) bool) ([]Thread, error) {
	var found []Thread
	matches := 0
	interpreter, err := i.word(i.runtime + i.layout.interpreters)
	for n := 0; err == nil && interpreter != 0; n++ {
		if n == maxInterpreters {
			return nil, errLayout
		}
		var state uint64
		for state, err = i.word(interpreter + i.layout.threads); err == nil && state != 0; {
			t, owner, next, terr := i.thread(state)
			if terr != nil || owner != interpreter || len(found) == maxThreads {
				return nil, errLayout
			}
			if isThread(t.Pointer, t.NativeID) {
				matches++
			}
			found = append(found, t)
			state = next
		}
		if err == nil {
			interpreter, err = i.word(interpreter + i.layout.nextInterpreter)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(found) > 0 && matches == 0 {
		return nil, errLayout
	}
	return found, nil
}

// thread reads a thread state: its thread, its interpreter and the next thread state.
func (i *Interpreter) thread(state uint64) (t Thread, interpreter, next uint64, err error) {
	var errs [4]error
	t.State = state
	interpreter, errs[0] = i.word(state + i.layout.interpreter)
	next, errs[1] = i.word(state + i.layout.nextThread)
	t.Pointer, errs[2] = i.word(state + i.layout.threadID)
	t.NativeID, errs[3] = i.word(state + i.layout.nativeID)
	return t, interpreter, next, errors.Join(errs[:]...)
}

// Root says where the frames of a thread begin, for a program that reads them elsewhere.
type Root struct {
	State              uint64
	Frame, CFrameFrame uint32
	HasCFrame          bool
	Previous           uint32
}

// Root returns where the frames of a thread begin.
func (i *Interpreter) Root(t Thread) Root {
	return Root{
		State: t.State, Frame: uint32(i.layout.frame), CFrameFrame: uint32(i.layout.cframeFrame),
		HasCFrame: i.layout.hasCFrame, Previous: uint32(i.layout.previous),
	}
}

// word reads one word of the process.
func (i *Interpreter) word(addr uint64) (uint64, error) {
	var raw [8]byte
	if err := i.memory.Read(addr, raw[:]); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(raw[:]), nil
}
