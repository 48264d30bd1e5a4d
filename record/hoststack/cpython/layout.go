//go:build linux

package cpython

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// layout has the offsets of members in structures of an interpreter, in bytes.
type layout struct {
	// _PyRuntimeState, PyInterpreterState
	interpreters, mainInterpreter, nextInterpreter, threads uint64
	// gil is the offset of the GIL in _PyRuntimeState, else of its address in PyInterpreterState. gc is the
	// offset of _gc_runtime_state in PyInterpreterState, 0 if it is unknown.
	isGILInRuntime bool
	gil, gc        uint64
	// PyThreadState
	nextThread, interpreter, threadID, nativeID, frame uint64
	// _PyCFrame, before 3.13
	hasCFrame   bool
	cframeFrame uint64
	// _PyInterpreterFrame
	previous, executable, instruction, owner uint64
	// isEntry is the offset of a flag in 3.11, 0 since 3.12: shim frames end a run of the loop.
	isEntry uint64
	// PyCodeObject
	filename, qualname, lineTable, firstLine, code uint64
	// PyASCIIObject, PyBytesObject
	asciiBytes, bytesData uint64
}

// ownerShim is the owner of a frame that the interpreter loop pushes when C code calls it.
const ownerShim = 3

// layouts are the offsets of versions that do not publish them.
var layouts = map[version]layout{
	{3, 11}: {
		interpreters: 40, mainInterpreter: 48, nextInterpreter: 0, threads: 16,
		isGILInRuntime: true, gil: 360, gc: 648,
		nextThread: 8, interpreter: 16, threadID: 152, nativeID: 160, frame: 56,
		hasCFrame: true, cframeFrame: 8,
		previous: 48, executable: 32, instruction: 56, owner: 69, isEntry: 68,
		filename: 112, qualname: 128, lineTable: 136, firstLine: 72, code: 184,
		asciiBytes: 48, bytesData: 32,
	},
	{3, 12}: {
		interpreters: 40, mainInterpreter: 48, nextInterpreter: 0, threads: 72,
		gil: 384, gc: 112,
		nextThread: 8, interpreter: 16, threadID: 136, nativeID: 144, frame: 56,
		hasCFrame: true, cframeFrame: 0,
		previous: 8, executable: 0, instruction: 56, owner: 70,
		filename: 112, qualname: 128, lineTable: 136, firstLine: 68, code: 192,
		asciiBytes: 40, bytesData: 32,
	},
}

// version is a version of CPython.
type version struct{ major, minor byte }

// String returns the version, such as 3.12.
func (v version) String() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

// Words of the structure _Py_DebugOffsets of 3.13, at the start of _PyRuntime.
const (
	offsetsCookie       = "xdebugpy"
	offsetsVersion      = 1
	offsetsFreeThreaded = 2
	offsetsInterpreters = 5
	offsetsNext         = 8
	offsetsThreads      = 9
	offsetsGC           = 10
	offsetsGIL          = 14
	offsetsGILStruct    = 15
	offsetsGILLocked    = 17
	offsetsGILHolder    = 18
	offsetsNextThread   = 21
	offsetsInterpreter  = 22
	offsetsFrame        = 23
	offsetsThreadID     = 24
	offsetsNativeID     = 25
	offsetsPrevious     = 29
	offsetsExecutable   = 30
	offsetsInstruction  = 31
	offsetsOwner        = 33
	offsetsFilename     = 35
	offsetsQualname     = 37
	offsetsLineTable    = 38
	offsetsFirstLine    = 39
	offsetsCode         = 43
	offsetsCollecting   = 72
	offsetsWords        = 73
)

// maxOffset bounds published offsets: an interpreter state has less than 1 MiB.
const maxOffset = 1 << 20

// errLayout is the reason if the layout of an interpreter is not as expected.
var errLayout = errors.New("the layout of its structures is unknown")

// readLayout returns the layout of an interpreter.
func readLayout(m Memory, runtime uint64, v version) (layout, error) {
	if l, ok := layouts[v]; ok {
		return l, nil
	}
	if v != (version{3, 13}) {
		return layout{}, fmt.Errorf("version %v is not supported, only 3.11 to 3.13", v)
	}
	var raw [8 * offsetsWords]byte
	if err := m.Read(runtime, raw[:]); err != nil {
		return layout{}, err
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(raw[8*i:]) }
	if string(raw[:8]) != offsetsCookie || word(offsetsVersion)>>16 != 0x030d {
		return layout{}, errLayout
	}
	if word(offsetsFreeThreaded) != 0 {
		return layout{}, errors.New("free-threaded builds are not supported")
	}
	l := layout{
		interpreters: word(offsetsInterpreters), mainInterpreter: word(offsetsInterpreters) + 8,
		nextInterpreter: word(offsetsNext), threads: word(offsetsThreads),
		gil: word(offsetsGIL), gc: word(offsetsGC),
		nextThread: word(offsetsNextThread), interpreter: word(offsetsInterpreter),
		threadID: word(offsetsThreadID), nativeID: word(offsetsNativeID), frame: word(offsetsFrame),
		previous: word(offsetsPrevious), executable: word(offsetsExecutable),
		instruction: word(offsetsInstruction), owner: word(offsetsOwner),
		filename: word(offsetsFilename), qualname: word(offsetsQualname), lineTable: word(offsetsLineTable),
		firstLine: word(offsetsFirstLine), code: word(offsetsCode),
		asciiBytes: 40, bytesData: 32,
	}
	for _, offset := range []uint64{
		l.interpreters, l.gil, l.gc, l.nextInterpreter, l.threads, l.nextThread, l.interpreter,
		l.threadID, l.nativeID, l.frame,
		l.filename, l.qualname, l.lineTable, l.firstLine, l.code,
	} {
		if offset >= maxOffset {
			return layout{}, errLayout
		}
	}
	for _, offset := range []uint64{l.previous, l.executable, l.instruction, l.owner} {
		if offset > frameBytes-8 {
			return layout{}, errLayout
		}
	}
	// Structures that these words do not describe completely are those of 3.11, or unknown.
	gil := word(offsetsGILStruct)
	if word(offsetsGILHolder)-gil != gilHolder || word(offsetsGILLocked)-gil != gilLocked {
		l.gil = 0
	}
	if word(offsetsCollecting) != gcCollecting {
		l.gc = 0
	}
	return l, nil
}
