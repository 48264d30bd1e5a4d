package analyze

import (
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// freeTarget is the kind of thing that a call gives back. Equal numbers of different targets
// name different things.
type freeTarget uint8

const (
	freesPointer   freeTarget = iota // memory of the device or the host
	freesMapping                     // what is mapped at an address
	freesAddresses                   // reserved addresses
	freesIPC                         // memory of another process
	freesArray
	freesPhysical // a handle of physical memory
	freesExternal // memory of another API
	numFreeTargets
)

var targetsByKind = map[string]freeTarget{
	format.KindFree: freesPointer, format.KindUnmap: freesMapping,
	format.KindUnreserve: freesAddresses, format.KindReturn: freesIPC,
}

var targetsByMemory = map[string]freeTarget{
	format.MemoryArray: freesArray, format.MemoryPhysical: freesPhysical,
	format.MemoryExternal: freesExternal,
}

// targetOf returns the target of calls of a kind and memory kind, false if they free nothing.
func targetOf(kind, memory string) (freeTarget, bool) {
	target, ok := targetsByKind[kind]
	if special, is := targetsByMemory[memory]; ok && is {
		target = special
	}
	return target, ok
}

// failedFree is a call that freed something and returned an error that can be the pointer's fault.
type failedFree struct {
	startNs, endNs int64
	ptr            int64
	pid, tid       int32
	stack, result  int32
	name, site     int32 // index errorUse.names
	target         freeTarget
	memory         string // kind of memory that the function frees
}

// maxFailedFrees bounds the failed frees of a recording that are kept; more are counted.
const maxFailedFrees = 1 << 16

// failedFrees collects the failed frees among failed calls. Its columns are those of the row group
// that is looked at.
type failedFrees struct {
	list     []failedFree
	leftOut  int64
	group    *format.Group // that the columns are of
	ptr, dur []int64
	memory   format.Strings
}

// next prepares for the next row group.
func (f *failedFrees) next() { f.group = nil }

// add keeps row i of the row group, a failed call, if it frees something. The caller fills in call
// but for the pointer, the end and the target.
func (f *failedFrees) add(g *format.Group, i int, kind string, call failedFree) {
	if _, ok := targetsByKind[kind]; !ok || !blamesPointer(call.result) {
		return
	}
	if f.group != g {
		f.group = g
		f.ptr, f.dur = g.Int64("ptr", f.ptr), g.Int64("dur_ns", f.dur)
		f.memory = g.StringsInto("memory_kind", f.memory)
	}
	if g.Err() != nil || f.ptr[i] == 0 {
		return // null is no memory
	}
	if len(f.list) == maxFailedFrees {
		f.leftOut++
		return
	}
	call.ptr, call.endNs = f.ptr[i], units.EndOf(call.startNs, f.dur[i])
	call.memory = f.memory.At(i)
	call.target, _ = targetOf(kind, call.memory)
	f.list = append(f.list, call)
}

// Results with which the driver refuses to free something.
const (
	resultInvalidValue      = 1
	resultInvalidContext    = 201
	resultInvalidHandle     = 400
	resultContextDestroyed  = 709
	resultHostNotRegistered = 713
)

// blamesPointer reports whether a free that returns the result can be wrong about its pointer.
func blamesPointer(result int32) bool {
	switch result {
	case resultInvalidValue, resultInvalidHandle, resultHostNotRegistered:
		return true
	}
	return blamesContext(result)
}

// blamesContext reports whether a result says only that the context is gone.
func blamesContext(result int32) bool {
	return result == resultInvalidContext || result == resultContextDestroyed
}
