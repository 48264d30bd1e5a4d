package fault

import (
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// freeTarget is the kind of resource that a call frees. Equal numbers with different targets name
// different resources.
type freeTarget uint8

const (
	freeTargetPointer   freeTarget = iota // the call frees device or host memory, by address
	freeTargetMapping                     // the call unmaps memory at an address
	freeTargetAddresses                   // the call frees reserved addresses
	freeTargetIPC                         // the call closes memory imported from another process
	freeTargetArray
	freeTargetPhysical // the call releases physical memory, by handle
	freeTargetExternal // the call destroys memory imported from another API
	numFreeTargets
)

var freeTargetsByKind = map[string]freeTarget{
	format.KindFree: freeTargetPointer, format.KindUnmap: freeTargetMapping,
	format.KindUnreserve: freeTargetAddresses, format.KindReturn: freeTargetIPC,
}

var freeTargetsByMemoryKind = map[string]freeTarget{
	format.MemoryArray: freeTargetArray, format.MemoryPhysical: freeTargetPhysical,
	format.MemoryExternal: freeTargetExternal,
}

// freeTargetOf returns the target of calls of a kind and memory kind. It returns false for calls
// that free nothing.
func freeTargetOf(kind, memory string) (freeTarget, bool) {
	target, ok := freeTargetsByKind[kind]
	if special, is := freeTargetsByMemoryKind[memory]; ok && is {
		target = special
	}
	return target, ok
}

// FailedFree is a call that failed to free something, with an error that an invalid pointer can
// cause.
type FailedFree struct {
	StartNs, endNs int64
	Ptr            int64
	Pid, Tid       int32
	Stack, Result  int32
	Name, Site     int32 // indexes into the Names of cudaerrors.Scan
	target         freeTarget
	memory         string // memory kind that the called function frees
}

// MaxFailedFrees is the maximum number of failed frees that FailedFrees keeps. Further ones are
// only counted.
const MaxFailedFrees = 1 << 16

// FailedFrees collects the failed frees of a recording. Its columns belong to the current row
// group.
type FailedFrees struct {
	List     []FailedFree
	LeftOut  int64         // number of failed frees that were not kept, beyond MaxFailedFrees
	group    *format.Group // the row group that the columns were read from
	ptr, dur []int64
	memory   format.Strings
}

// StartRowGroup must be called before the rows of the next row group.
func (f *FailedFrees) StartRowGroup() { f.group = nil }

// AddFailedFree keeps row i of the row group, a failed call, if the call frees something. The
// caller sets all exported fields of call except Ptr.
func (f *FailedFrees) AddFailedFree(g *format.Group, i int, kind string, call FailedFree) {
	if _, ok := freeTargetsByKind[kind]; !ok || !canBlamePointer(call.Result) {
		return
	}
	if f.group != g {
		f.group = g
		f.ptr, f.dur = g.Int64("ptr", f.ptr), g.Int64("dur_ns", f.dur)
		f.memory = g.StringsInto("memory_kind", f.memory)
	}
	if g.Err() != nil || f.ptr[i] == 0 {
		return // freeing a null pointer is valid
	}
	if len(f.List) == MaxFailedFrees {
		f.LeftOut++
		return
	}
	call.Ptr, call.endNs = f.ptr[i], units.EndOfRange(call.StartNs, f.dur[i])
	call.memory = f.memory.At(i)
	call.target, _ = freeTargetOf(kind, call.memory)
	f.List = append(f.List, call)
}

// CUDA results of calls that fail to free something.
const (
	ResultInvalidValue      = 1
	ResultInvalidContext    = 201
	ResultInvalidHandle     = 400
	ResultContextDestroyed  = 709
	ResultHostNotRegistered = 713
)

// canBlamePointer reports whether an invalid pointer can cause this result of a free.
func canBlamePointer(result int32) bool {
	switch result {
	case ResultInvalidValue, ResultInvalidHandle, ResultHostNotRegistered:
		return true
	}
	return blamesDestroyedContext(result)
}

// blamesDestroyedContext reports whether the result only means that the context is destroyed.
func blamesDestroyedContext(result int32) bool {
	return result == ResultInvalidContext || result == ResultContextDestroyed
}
