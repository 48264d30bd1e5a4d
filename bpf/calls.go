package bpf

// Call is one row of the table of probed calls: a driver API function, what kind of
// row it becomes, and where its arguments are. Adding a function to gpurec is adding
// a row to Calls.
type Call struct {
	// Name is the exported symbol with its version suffix. Its per-thread-stream
	// variants (Name_ptds, Name_ptsz) have the same arguments and are probed too;
	// other versions of a function have rows of their own, because their arguments
	// may differ.
	Name string
	// Kind is the kind of row in the recording, one of the Kind constants of
	// package format.
	Kind string
	// Memory is the memory_kind of alloc and free rows.
	Memory string
	// Copy is the direction of memcpy rows, as in the function names: HtoD, DtoH, ….
	Copy string

	Class  CudaCallClass
	Decode CudaCallDecode
	Effect CudaCallEffect
	// Meaning says how the row is made where ptr, bytes and src are not just that.
	Meaning Meaning
	// CountOnly is for hot queries: calls are counted, not recorded.
	CountOnly bool

	// Where the members of an event come from. Bytes is multiplied by Times (an
	// argument) and Scale (a constant) where they are set.
	Ptr, Bytes, Times, Stream, Src CudaArgSpec
	Scale                          uint8
}

// Meaning says what the members of an event stand for. The kernel half has one place
// for a handle, one for a number and one for a second handle; the row has more.
type Meaning uint8

// Meanings of ptr, bytes and src.
const (
	Plain       Meaning = iota // ptr, bytes, src_ptr
	Launch                     // src is the function
	NewFunction                // ptr is a new function handle, bytes the module it is from, src its name
	OfFunction                 // ptr is a function handle
	OnDevice                   // bytes is a device ordinal
	FreeOfTotal                // bytes is free memory, src the total: the row's value
	ElapsedTime                // bytes is a float, milliseconds: the row's value
)

// arg is integer argument i (counted from 0), 8 bytes wide.
func arg(i uint8) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_VALUE), Index: i, Size: 8}
}

// arg32 is a 4 byte integer argument; the upper half of its register is undefined.
func arg32(i uint8) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_VALUE), Index: i, Size: 4}
}

// out is the 8 byte value that the call stores where argument i points to.
func out(i uint8) CudaArgSpec { return CudaArgSpec{From: uint8(CudaArgFromARG_OUT), Index: i, Size: 8} }

// out32 is a 4 byte out value.
func out32(i uint8) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_OUT), Index: i, Size: 4}
}

const (
	memory = CudaCallClassCLASS_MEMORY
	launch = CudaCallClassCLASS_LAUNCH
	copies = CudaCallClassCLASS_COPY
	wait   = CudaCallClassCLASS_SYNC
	other  = CudaCallClassCLASS_API
)

// Calls is the table. Argument positions: the public cuda.h, CUDA 11.4 to 13.0.
var Calls = []Call{
	// Memory.
	{Name: "cuMemAlloc_v2", Kind: "alloc", Memory: "device", Class: memory, Ptr: out(0), Bytes: arg(1)},
	{Name: "cuMemAllocPitch_v2", Kind: "alloc", Memory: "device", Class: memory, Ptr: out(0), Bytes: out(1), Times: arg(3)},
	{Name: "cuMemAllocManaged", Kind: "alloc", Memory: "managed", Class: memory, Ptr: out(0), Bytes: arg(1)},
	{Name: "cuMemAllocAsync", Kind: "alloc", Memory: "async", Class: memory, Ptr: out(0), Bytes: arg(1), Stream: arg(2)},
	{Name: "cuMemAllocFromPoolAsync", Kind: "alloc", Memory: "async", Class: memory, Ptr: out(0), Bytes: arg(1), Src: arg(2), Stream: arg(3)},
	{Name: "cuMemHostAlloc", Kind: "alloc", Memory: "host", Class: memory, Ptr: out(0), Bytes: arg(1)},
	{Name: "cuMemAllocHost_v2", Kind: "alloc", Memory: "host", Class: memory, Ptr: out(0), Bytes: arg(1)},
	{Name: "cuMemFree_v2", Kind: "free", Memory: "device", Class: memory, Ptr: arg(0)},
	{Name: "cuMemFreeAsync", Kind: "free", Memory: "async", Class: memory, Ptr: arg(0), Stream: arg(1)},
	{Name: "cuMemFreeHost", Kind: "free", Memory: "host", Class: memory, Ptr: arg(0)},
	{Name: "cuMemGetInfo_v2", Kind: "api", Class: other, Meaning: FreeOfTotal, Bytes: out(0), Src: out(1)},

	// Launches.
	{Name: "cuLaunchKernel", Kind: "launch", Class: launch, Decode: CudaCallDecodeDECODE_LAUNCH, Meaning: Launch},
	{Name: "cuLaunchKernelEx", Kind: "launch", Class: launch, Decode: CudaCallDecodeDECODE_LAUNCH_EX, Meaning: Launch},
	{Name: "cuLaunchCooperativeKernel", Kind: "launch", Class: launch, Decode: CudaCallDecodeDECODE_LAUNCH, Meaning: Launch},
	{Name: "cuGraphLaunch", Kind: "launch", Class: launch, Ptr: arg(0), Stream: arg(1)},

	// Copies and memsets.
	{Name: "cuMemcpy", Kind: "memcpy", Class: copies, Ptr: arg(0), Src: arg(1), Bytes: arg(2)},
	{Name: "cuMemcpyAsync", Kind: "memcpy", Class: copies, Ptr: arg(0), Src: arg(1), Bytes: arg(2), Stream: arg(3)},
	{Name: "cuMemcpyHtoD_v2", Kind: "memcpy", Copy: "HtoD", Class: copies, Ptr: arg(0), Src: arg(1), Bytes: arg(2)},
	{Name: "cuMemcpyDtoH_v2", Kind: "memcpy", Copy: "DtoH", Class: copies, Ptr: arg(0), Src: arg(1), Bytes: arg(2)},
	{Name: "cuMemcpyDtoD_v2", Kind: "memcpy", Copy: "DtoD", Class: copies, Ptr: arg(0), Src: arg(1), Bytes: arg(2)},
	{Name: "cuMemcpyHtoDAsync_v2", Kind: "memcpy", Copy: "HtoD", Class: copies, Ptr: arg(0), Src: arg(1), Bytes: arg(2), Stream: arg(3)},
	{Name: "cuMemcpyDtoHAsync_v2", Kind: "memcpy", Copy: "DtoH", Class: copies, Ptr: arg(0), Src: arg(1), Bytes: arg(2), Stream: arg(3)},
	{Name: "cuMemcpyDtoDAsync_v2", Kind: "memcpy", Copy: "DtoD", Class: copies, Ptr: arg(0), Src: arg(1), Bytes: arg(2), Stream: arg(3)},
	{Name: "cuMemsetD8_v2", Kind: "memset", Class: copies, Ptr: arg(0), Bytes: arg(2)},
	{Name: "cuMemsetD16_v2", Kind: "memset", Class: copies, Ptr: arg(0), Bytes: arg(2), Scale: 2},
	{Name: "cuMemsetD32_v2", Kind: "memset", Class: copies, Ptr: arg(0), Bytes: arg(2), Scale: 4},
	{Name: "cuMemsetD8Async", Kind: "memset", Class: copies, Ptr: arg(0), Bytes: arg(2), Stream: arg(3)},
	{Name: "cuMemsetD16Async", Kind: "memset", Class: copies, Ptr: arg(0), Bytes: arg(2), Scale: 2, Stream: arg(3)},
	{Name: "cuMemsetD32Async", Kind: "memset", Class: copies, Ptr: arg(0), Bytes: arg(2), Scale: 4, Stream: arg(3)},

	// The CPU waits.
	{Name: "cuStreamSynchronize", Kind: "sync", Class: wait, Stream: arg(0)},
	{Name: "cuCtxSynchronize", Kind: "sync", Class: wait},
	{Name: "cuCtxSynchronize_v2", Kind: "sync", Class: wait, Ptr: arg(0)},
	{Name: "cuEventSynchronize", Kind: "sync", Class: wait, Ptr: arg(0)},
	{Name: "cuStreamQuery", Kind: "sync", Class: wait, Stream: arg(0), CountOnly: true},
	{Name: "cuEventQuery", Kind: "sync", Class: wait, Ptr: arg(0), CountOnly: true},

	// Streams and events.
	{Name: "cuStreamCreate", Kind: "api", Class: other, Ptr: out(0)},
	{Name: "cuStreamCreateWithPriority", Kind: "api", Class: other, Ptr: out(0)},
	{Name: "cuStreamDestroy_v2", Kind: "api", Class: other, Ptr: arg(0), Stream: arg(0)},
	{Name: "cuStreamWaitEvent", Kind: "api", Class: other, Stream: arg(0), Ptr: arg(1)},
	{Name: "cuEventCreate", Kind: "api", Class: other, Ptr: out(0)},
	{Name: "cuEventDestroy_v2", Kind: "api", Class: other, Ptr: arg(0)},
	{Name: "cuEventElapsedTime", Kind: "api", Class: other, Meaning: ElapsedTime, Bytes: out32(0), Ptr: arg(1), Src: arg(2)},
	{Name: "cuEventElapsedTime_v2", Kind: "api", Class: other, Meaning: ElapsedTime, Bytes: out32(0), Ptr: arg(1), Src: arg(2)},
	{Name: "cuEventRecord", Kind: "api", Class: other, Ptr: arg(0), Stream: arg(1)},
	{Name: "cuEventRecordWithFlags", Kind: "api", Class: other, Ptr: arg(0), Stream: arg(1)},

	// Modules and kernels.
	{Name: "cuModuleLoad", Kind: "api", Class: other, Ptr: out(0)},
	{Name: "cuModuleLoadData", Kind: "api", Class: other, Ptr: out(0)},
	{Name: "cuModuleLoadDataEx", Kind: "api", Class: other, Ptr: out(0)},
	{Name: "cuModuleLoadFatBinary", Kind: "api", Class: other, Ptr: out(0)},
	{Name: "cuModuleUnload", Kind: "api", Class: other, Ptr: arg(0)},
	{Name: "cuLibraryLoadData", Kind: "api", Class: other, Ptr: out(0)},
	{Name: "cuLibraryUnload", Kind: "api", Class: other, Ptr: arg(0)},
	{Name: "cuModuleGetFunction", Kind: "api", Class: other, Effect: CudaCallEffectEFFECT_NAME, Meaning: NewFunction, Ptr: out(0), Bytes: arg(1), Src: arg(2)},
	{Name: "cuLibraryGetKernel", Kind: "api", Class: other, Effect: CudaCallEffectEFFECT_NAME, Meaning: NewFunction, Ptr: out(0), Bytes: arg(1), Src: arg(2)},
	{Name: "cuKernelGetFunction", Kind: "api", Class: other, Meaning: NewFunction, Ptr: out(0), Bytes: arg(1)},
	{Name: "cuFuncGetName", Kind: "api", Class: other, Meaning: OfFunction, Ptr: arg(1)},

	// Contexts and devices. The hot ones only keep the thread's current context.
	{Name: "cuInit", Kind: "api", Class: other},
	{Name: "cuCtxCreate_v2", Kind: "api", Class: other, Effect: CudaCallEffectEFFECT_CONTEXT_CREATE, Meaning: OnDevice, Ptr: out(0), Bytes: arg32(2)},
	{Name: "cuCtxCreate_v3", Kind: "api", Class: other, Effect: CudaCallEffectEFFECT_CONTEXT_CREATE, Meaning: OnDevice, Ptr: out(0), Bytes: arg32(4)},
	{Name: "cuCtxCreate_v4", Kind: "api", Class: other, Effect: CudaCallEffectEFFECT_CONTEXT_CREATE, Meaning: OnDevice, Ptr: out(0), Bytes: arg32(3)},
	{Name: "cuCtxDestroy_v2", Kind: "api", Class: other, Effect: CudaCallEffectEFFECT_CONTEXT_DESTROY, Meaning: OnDevice, Ptr: arg(0)},
	{Name: "cuDevicePrimaryCtxRetain", Kind: "api", Class: other, Effect: CudaCallEffectEFFECT_CONTEXT_RETAIN, Meaning: OnDevice, Ptr: out(0), Bytes: arg32(1)},
	{Name: "cuDevicePrimaryCtxRelease_v2", Kind: "api", Class: other, Meaning: OnDevice, Bytes: arg32(0)},
	{Name: "cuDevicePrimaryCtxReset_v2", Kind: "api", Class: other, Meaning: OnDevice, Bytes: arg32(0)},
	{Name: "cuCtxSetCurrent", Kind: "api", Class: other, CountOnly: true, Effect: CudaCallEffectEFFECT_CONTEXT_SET, Meaning: OnDevice, Ptr: arg(0)},
	{Name: "cuCtxGetCurrent", Kind: "api", Class: other, CountOnly: true, Effect: CudaCallEffectEFFECT_CONTEXT_GET, Meaning: OnDevice, Ptr: out(0)},
	{Name: "cuCtxPushCurrent_v2", Kind: "api", Class: other, CountOnly: true, Effect: CudaCallEffectEFFECT_CONTEXT_PUSH, Meaning: OnDevice, Ptr: arg(0)},
	{Name: "cuCtxPopCurrent_v2", Kind: "api", Class: other, CountOnly: true, Effect: CudaCallEffectEFFECT_CONTEXT_POP, Meaning: OnDevice, Ptr: out(0)},
	{Name: "cuCtxGetDevice", Kind: "api", Class: other, CountOnly: true, Effect: CudaCallEffectEFFECT_DEVICE_GET, Meaning: OnDevice, Bytes: out32(0)},
}

// variants are the suffixes under which a function is exported again for programs
// that were compiled with per-thread default streams.
var variants = [...]string{"", "_ptds", "_ptsz"}

// Symbol is one exported function name that may be probed, and its attach cookie.
type Symbol struct {
	Name   string
	Cookie uint16
}

// Symbols returns every name that the table stands for.
func Symbols() []Symbol {
	symbols := make([]Symbol, 0, len(Calls)*len(variants))
	for i := range Calls {
		for v, suffix := range variants {
			symbols = append(symbols, Symbol{Name: Calls[i].Name + suffix, Cookie: uint16(i*len(variants) + v)})
		}
	}
	return symbols
}

// ByCookie returns the row that a cookie (CudaEvent.Call) names, the exported name
// of the call and whether it is a per-thread-stream variant; ok is false for a
// number that is no cookie.
func ByCookie(cookie uint16) (call *Call, name string, perThreadStream, ok bool) {
	row, v := int(cookie)/len(variants), int(cookie)%len(variants)
	if row >= len(Calls) {
		return nil, "", false, false
	}
	return &Calls[row], Calls[row].Name + variants[v], v != 0, true
}

// NumCookies is the number of cookies; they count from 0.
func NumCookies() int { return len(Calls) * len(variants) }

// Spec returns the row as the BPF programs need it.
func (c *Call) Spec() CudaCallSpec {
	spec := CudaCallSpec{
		Class: uint8(c.Class), Decode: uint8(c.Decode), Effect: uint8(c.Effect), Scale: c.Scale,
		Ptr: c.Ptr, Bytes: c.Bytes, Times: c.Times, Stream: c.Stream, Src: c.Src,
	}
	if c.CountOnly {
		spec.CountOnly = 1
	}
	return spec
}

// NeedsReturn reports whether the call's return must be probed too: all but those
// that are counted and change nothing.
func (c *Call) NeedsReturn() bool {
	return !c.CountOnly || c.Effect != CudaCallEffectEFFECT_NONE
}
