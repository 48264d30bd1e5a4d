//go:build linux

package cpython

import (
	"encoding/binary"
	"errors"
)

// Sizes of structures, in bytes.
const (
	// gilBytes is the size of struct _gil_runtime_state of glibc on 64-bit processors. Threads that wait for
	// the GIL wait for the conditions and mutexes in it.
	gilBytes = 208
	// GILHeadBytes is the size of the part before them: interval, last holder, locked and switches.
	GILHeadBytes = 32
	// ThreadBytes is the size of the part of a thread state that names its thread.
	ThreadBytes = 192
)

// Offsets in struct _gil_runtime_state, in bytes.
const (
	gilInterval = 0
	gilHolder   = 8
	gilLocked   = 16
	gilSwitches = 24
)

// maxSwitchInterval bounds the interval after which a thread asks for the GIL: 1,000 s in µs. The
// default is 5,000.
const maxSwitchInterval = 1e9

// ErrGIL is the reason if the structure of the GIL is not as expected.
var ErrGIL = errors.New("the layout of its GIL is unknown")

// GIL is a global interpreter lock at the time of a reading.
type GIL struct {
	// Start and End enclose its structure. A thread that waits for the GIL has a futex address in it.
	Start, End uint64
	Locked     bool
	// Switches counts how often another thread than the last one has taken the GIL.
	Switches uint64
	// Holder is the thread that holds the GIL. It is the zero value if the GIL is not locked, or if the
	// holder changed during the reading.
	Holder Thread
}

// Contains reports whether an address is in the structure of the GIL.
func (g GIL) Contains(addr uint64) bool { return addr >= g.Start && addr < g.End }

// GILs reads the GILs of all interpreters of the process, of the main interpreter first. Most processes
// have one GIL. Since 3.12, an interpreter can have its own. An error is ErrGIL, or that of a reading.
func (i *Interpreter) GILs() ([]GIL, error) {
	main, err := i.word(i.runtime + i.layout.mainInterpreter)
	if err != nil {
		return nil, err
	}
	var found []GIL
	add := func(interpreter uint64) error {
		at, err := i.gilAddress(interpreter)
		if err != nil || at == 0 || len(found) > 0 && found[0].Start == at {
			return err // an interpreter that begins or ends has no GIL
		}
		g, err := i.readGIL(at)
		if err == nil {
			found = append(found, g)
		}
		return err
	}
	if err := add(main); err != nil || len(found) == 0 {
		return nil, errors.Join(ErrGIL, err)
	}
	interpreter, err := i.word(i.runtime + i.layout.interpreters)
	for n := 0; err == nil && interpreter != 0; n++ {
		if n == maxInterpreters {
			return nil, ErrGIL
		}
		if err := add(interpreter); err != nil {
			return found, nil // it may have ended meanwhile
		}
		interpreter, err = i.word(interpreter + i.layout.nextInterpreter)
	}
	return found, nil
}

// gilAddress returns the address of an interpreter's GIL, or 0 if it has none.
func (i *Interpreter) gilAddress(interpreter uint64) (uint64, error) {
	if i.layout.gil == 0 {
		return 0, ErrGIL
	}
	if interpreter == 0 {
		return 0, nil
	}
	if i.layout.isGILInRuntime {
		_, err := i.word(interpreter) // it must be an address
		return i.runtime + i.layout.gil, err
	}
	return i.word(interpreter + i.layout.gil)
}

// readGIL reads a GIL and its holder.
func (i *Interpreter) readGIL(at uint64) (GIL, error) {
	var head [GILHeadBytes]byte
	if err := i.memory.Read(at, head[:]); err != nil {
		return GIL{}, err
	}
	g, holder, err := DecodeGIL(at, head[:])
	if err != nil || holder == 0 {
		return g, err
	}
	var state [ThreadBytes]byte
	if err := i.memory.Read(holder, state[:]); err != nil {
		return g, nil // the thread has ended
	}
	if t, _, ok := i.DecodeThread(holder, state[:]); ok {
		g.Holder = t
	}
	return g, nil
}

// DecodeGIL decodes the first GILHeadBytes of the GIL at an address. holder is the thread state of the
// holder, 0 if the GIL is not locked. The error is ErrGIL if these bytes are of no GIL.
func DecodeGIL(at uint64, head []byte) (g GIL, holder uint64, err error) {
	if len(head) < GILHeadBytes {
		return GIL{}, 0, ErrGIL
	}
	word := func(offset int) uint64 { return binary.LittleEndian.Uint64(head[offset:]) }
	interval, locked := word(gilInterval), int32(word(gilLocked))
	if interval == 0 || interval > maxSwitchInterval || locked < -1 || locked > 1 {
		return GIL{}, 0, ErrGIL
	}
	g = GIL{Start: at, End: at + gilBytes, Locked: locked == 1, Switches: word(gilSwitches)}
	if g.Locked {
		holder = word(gilHolder)
	}
	return g, holder, nil
}

// DecodeThread decodes the first ThreadBytes of the thread state at an address. interpreter is the
// interpreter that it belongs to. ok is false if the bytes are of no thread state.
func (i *Interpreter) DecodeThread(state uint64, raw []byte) (t Thread, interpreter uint64, ok bool) {
	if len(raw) < ThreadBytes || i.layout.nativeID > ThreadBytes-8 || i.layout.threadID > ThreadBytes-8 ||
		i.layout.interpreter > ThreadBytes-8 {
		return Thread{}, 0, false
	}
	word := func(offset uint64) uint64 { return binary.LittleEndian.Uint64(raw[offset:]) }
	t = Thread{State: state, Pointer: word(i.layout.threadID), NativeID: word(i.layout.nativeID)}
	interpreter = word(i.layout.interpreter)
	return t, interpreter, interpreter != 0 && t.NativeID != 0 && t.NativeID < 1<<31
}
