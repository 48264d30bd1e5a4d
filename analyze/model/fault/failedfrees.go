package fault

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

// FailedFree is a call that freed something and returned an error that can be the pointer's fault.
type FailedFree struct {
	StartNs, endNs int64
	Ptr            int64
	Pid, Tid       int32
	Stack, Result  int32
	Name, Site     int32 // index cudaerrors.Scan.Names
	target         freeTarget
	memory         string // kind of memory that the function frees
}

// MaxFailedFrees bounds the failed frees of a recording that are kept; more are counted.
const MaxFailedFrees = 1 << 16

// FailedFrees collects the failed frees among failed calls. Its columns are those of the row group
// that is looked at.
type FailedFrees struct {
	List     []FailedFree
	LeftOut  int64
	group    *format.Group // that the columns are of
	ptr, dur []int64
	memory   format.Strings
}

// Next prepares for the next row group.
func (f *FailedFrees) Next() { f.group = nil }

// Add keeps row i of the row group, a failed call, if it frees something. The caller fills in call
// but for the pointer, the end and the target.
func (f *FailedFrees) Add(g *format.Group, i int, kind string, call FailedFree) {
	if _, ok := targetsByKind[kind]; !ok || !blamesPointer(call.Result) {
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
	if len(f.List) == MaxFailedFrees {
		f.LeftOut++
		return
	}
	call.Ptr, call.endNs = f.ptr[i], units.EndOf(call.StartNs, f.dur[i])
	call.memory = f.memory.At(i)
	call.target, _ = targetOf(kind, call.memory)
	f.List = append(f.List, call)
}

// Results with which the driver refuses to free something.
const (
	ResultInvalidValue      = 1
	ResultInvalidContext    = 201
	ResultInvalidHandle     = 400
	ResultContextDestroyed  = 709
	ResultHostNotRegistered = 713
)

// blamesPointer reports whether a free that returns the result can be wrong about its pointer.
func blamesPointer(result int32) bool {
	switch result {
	case ResultInvalidValue, ResultInvalidHandle, ResultHostNotRegistered:
		return true
	}
	return blamesContext(result)
}

// blamesContext reports whether a result says only that the context is gone.
func blamesContext(result int32) bool {
	return result == ResultInvalidContext || result == ResultContextDestroyed
}
