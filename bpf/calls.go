package bpf

// ProbedFunction is one row of the call table: a probed function, the kind of event that it becomes
// in the recording, and the positions of its arguments. To record one more function, add a row to
// CallTable.
type ProbedFunction struct {
	// Name is the exported symbol with its version suffix. Its per-thread-stream variants
	// (Name_ptds, Name_ptsz) have the same arguments and are probed, too. Other versions of a
	// function have their own rows, because their arguments may differ.
	Name string
	// Kind is the event's kind in the recording, one of the Kind constants of package format.
	Kind string
	// Memory is the memory_kind column of alloc and free events.
	Memory string
	// Copy is the direction of a memcpy function with a fixed direction: HtoD, DtoH, DtoD,
	// HtoA, …, with A for arrays. "": the direction depends on the arguments.
	Copy string

	Class  CudaCallClass
	Decode CudaCallDecode
	Effect CudaCallEffect
	// Columns selects how Ptr, Bytes and Src are written to columns.
	Columns EventColumns
	// CountOnly is set for frequent queries: calls are counted and send no event.
	CountOnly bool
	// Getter is set for frequent functions without side effects. Their probes are removed
	// during the recording if they are called too often.
	Getter bool
	// CallsOperations is set for operations of NCCL that may call other ones, which must not be recorded, too.
	CallsOperations bool
	// ForKernelArgs is set for functions that are probed only if the arguments of kernel launches
	// are recorded.
	ForKernelArgs bool

	// Ptr to Value locate the members of an event. Bytes is multiplied by the argument Times
	// and the constant Scale, if these are set.
	Ptr, Bytes, Times, Stream, Src, Value CudaArgSpec
	Scale                                 uint8
}

// EventColumns selects how the members of a CudaEvent are written to the columns of a recording. A
// CudaEvent has one handle, one number and a second handle; a recording has more columns.
type EventColumns uint8

// Kinds of EventColumns: what the members Ptr (ptr), Bytes (bytes) and Src (src) of a CudaEvent
// hold.
const (
	ColumnsPlain           EventColumns = iota // they are the columns ptr, bytes and src_ptr
	ColumnsLaunch                              // src is the launched function
	ColumnsNewFunction                         // ptr is a new function, bytes its module, src its name
	ColumnsFunction                            // ptr is a function handle
	ColumnsDevice                              // bytes is a device ordinal
	ColumnsFreeMemory                          // bytes is the free memory, src the total: column value
	ColumnsElapsedTime                         // bytes is a float32 in milliseconds: column value
	ColumnsLaunchList                          // src is the first launch's function, bytes their number
	ColumnsKernelNode                          // bytes is a kernel node's function; grid, block
	ColumnsGraphNode                           // depends on CudaEvent.Extra
	ColumnsPitched                             // bytes is the returned pitch, src height, value width
	ColumnsArray                               // bytes is the width; grid and block: see enum call_decode
	ColumnsCopyByType                          // grid[2] and block[0]: memory types of source, target
	ColumnsDeviceUUID                          // grid and block hold a device UUID of 16 bytes
	ColumnsAllocatorEvent                      // grid and block hold the action and the totals
	ColumnsAllocatorReport                     // the totals without action; bytes < 0 for a free
	ColumnsCollective                          // an operation of NCCL, see read_collective of collective.h
	ColumnsCommunicator                        // another call of NCCL: ptr is its communicator, or else 0
	ColumnsNCCLObject                          // a call of NCCL about a buffer or another object, without communicator
)

// argIn reads integer argument i (counted from 0) with 8 bytes.
func argIn(i uint8) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_VALUE), Index: i, Size: 8}
}

// argIn32 reads integer argument i with 4 bytes; the upper half of its register is undefined.
func argIn32(i uint8) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_VALUE), Index: i, Size: 4}
}

// argOut reads, at return, the 8-byte value that argument i points to.
func argOut(i uint8) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_OUT), Index: i, Size: 8}
}

// argPointee reads, at entry, 8 bytes at an offset in the structure that argument i points to.
func argPointee(i uint8, offset uint16) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_POINTEE), Index: i, Size: 8, Offset: offset}
}

// argPointee32 reads, at entry, 4 bytes at an offset in the structure that argument i points to.
func argPointee32(i uint8, offset uint16) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_POINTEE), Index: i, Size: 4, Offset: offset}
}

// argOutAt reads, at return, 8 bytes at an offset in the structure that argument i points to.
func argOutAt(i uint8, offset uint16) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_OUT), Index: i, Size: 8, Offset: offset}
}

// argOut32 reads, at return, the 4-byte value that argument i points to.
func argOut32(i uint8) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_OUT), Index: i, Size: 4}
}

// perThreadSuffixes are the suffixes of a function's exported names. Programs that were compiled
// with per-thread default streams call the names with a suffix.
var perThreadSuffixes = [...]string{"", "_ptds", "_ptsz"}

// ProbeSymbol is an exported function name that can be probed, and its attach cookie.
type ProbeSymbol struct {
	Name   string
	Cookie uint16
}

// CookiesPerFunction is the number of attach cookies of a row of CallTable, one for each of
// perThreadSuffixes.
const CookiesPerFunction = len(perThreadSuffixes)

// ListProbeSymbols returns all exported names of the functions in CallTable.
func ListProbeSymbols() []ProbeSymbol {
	symbols := make([]ProbeSymbol, 0, len(CallTable)*len(perThreadSuffixes))
	for i := range CallTable {
		for v, suffix := range perThreadSuffixes {
			symbols = append(
				symbols,
				ProbeSymbol{Name: CallTable[i].Name + suffix, Cookie: uint16(i*len(perThreadSuffixes) + v)},
			)
		}
	}
	return symbols
}

// FunctionByCookie returns the row of CallTable, AllocatorFunctions, CollectiveFunctions or EngineFunctions for an
// attach cookie (CudaEvent.Call), the exported name of the function, and whether it is a per-thread-stream
// variant. For an invalid cookie, ok is false.
func FunctionByCookie(cookie uint16) (call *ProbedFunction, name string, perThreadStream, ok bool) {
	row, v := int(cookie)/len(perThreadSuffixes), int(cookie)%len(perThreadSuffixes)
	if i := int(cookie) - NumDriverCookies(); i >= 0 && i < len(AllocatorFunctions) {
		return &AllocatorFunctions[i], AllocatorFunctions[i].Name, false, true
	}
	if i := int(cookie) - int(CollectiveCookie(0)); i >= 0 && i < len(CollectiveFunctions) {
		return &CollectiveFunctions[i], CollectiveFunctions[i].Name, false, true
	}
	if i := int(cookie) - int(EngineCookie(0)); i >= 0 && i < len(EngineFunctions) {
		return &EngineFunctions[i], EngineFunctions[i].Name, false, true
	}
	if row >= len(CallTable) {
		return nil, "", false, false
	}
	return &CallTable[row], CallTable[row].Name + perThreadSuffixes[v], v != 0, true
}

// NumDriverCookies returns the number of cookies of CallTable. Cookies count from 0; those of
// AllocatorFunctions, CollectiveFunctions and EngineFunctions follow.
func NumDriverCookies() int { return len(CallTable) * len(perThreadSuffixes) }

// BPFSpec returns the row in the layout that the BPF programs read.
func (f *ProbedFunction) BPFSpec() CudaCallSpec {
	spec := CudaCallSpec{
		Class: uint8(f.Class), Decode: uint8(f.Decode), Effect: uint8(f.Effect), Scale: f.Scale,
		Ptr: f.Ptr, Bytes: f.Bytes, Times: f.Times, Stream: f.Stream, Src: f.Src, Value: f.Value,
	}
	if f.CountOnly {
		spec.CountOnly = 1
	}
	spec.ReturnProbe = uint8(f.returnProbeMode())
	if f.Getter {
		spec.IsGetter = 1
	}
	return spec
}

// NeedsReturnProbe reports whether the function's return is probed. Functions that are only
// counted, without another effect, and functions of allocators need no return probe.
func (f *ProbedFunction) NeedsReturnProbe() bool {
	return f.returnProbeMode() != CudaReturnProbeRETURN_NEVER && (!f.CountOnly || f.Effect != CudaCallEffectEFFECT_NONE)
}

// SamplesReturnProbes reports whether the return probes of the function may be removed for a share
// of the time, because its calls are too frequent. That is so for kernel launches.
func (f *ProbedFunction) SamplesReturnProbes() bool {
	return f.returnProbeMode() == CudaReturnProbeRETURN_SAMPLED
}

// HasOptionalReturn reports whether the return probe of the function may be removed for good, because a thread calls
// NCCL too often. That is so for operations that call no other operation.
func (f *ProbedFunction) HasOptionalReturn() bool {
	return f.returnProbeMode() == CudaReturnProbeRETURN_OPTIONAL
}

// IsGroupCall reports whether the function begins or ends a group of operations of NCCL.
func (f *ProbedFunction) IsGroupCall() bool {
	return f.Decode == CudaCallDecodeDECODE_GROUP_START || f.Decode == CudaCallDecodeDECODE_GROUP_END
}

// returnProbeMode returns whether the function's return is probed: never, always, for a share of the time, or
// until a thread calls NCCL too often.
func (f *ProbedFunction) returnProbeMode() CudaReturnProbe {
	switch {
	case f.Class == CudaCallClassCLASS_ALLOCATOR, f.Class == CudaCallClassCLASS_ENGINE,
		f.Decode == CudaCallDecodeDECODE_GROUP_START:
		return CudaReturnProbeRETURN_NEVER
	case f.Effect == CudaCallEffectEFFECT_LAUNCH:
		return CudaReturnProbeRETURN_SAMPLED
	case f.Class == CudaCallClassCLASS_COLLECTIVE && f.Columns == ColumnsCollective && !f.CallsOperations:
		return CudaReturnProbeRETURN_OPTIONAL
	}
	return CudaReturnProbeRETURN_ALWAYS
}
