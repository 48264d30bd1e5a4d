package format

// Row is one row of a recording: a CUDA call, a stack, a sample or a fact. Which
// columns carry meaning depends on Kind; the others are zero or empty. There are no
// NULLs. All times are Unix nanoseconds (UTC) on the clock of Meta.ClockOffsetNs.
// Field by field: FORMAT.md.
type Row struct {
	Kind          string  `parquet:"kind,dict"`
	StartNs       int64   `parquet:"start_ns,delta"`
	DurNs         int64   `parquet:"dur_ns,delta"`
	Name          string  `parquet:"name,dict"`
	Pid           int32   `parquet:"pid,dict"`
	Tid           int32   `parquet:"tid,dict"`
	CPU           int32   `parquet:"cpu,dict"`
	Device        int32   `parquet:"device,dict"`
	Context       int64   `parquet:"context,dict"`
	Stream        int64   `parquet:"stream,dict"`
	ParentStartNs int64   `parquet:"parent_start_ns,dict"`
	Result        int32   `parquet:"result,dict"`
	Flags         int32   `parquet:"flags,dict"`
	MemoryKind    string  `parquet:"memory_kind,dict"`
	Ptr           int64   `parquet:"ptr,dict"`
	Bytes         int64   `parquet:"bytes,dict"`
	SrcPtr        int64   `parquet:"src_ptr,dict"`
	CopyKind      string  `parquet:"copy_kind,dict"`
	Function      int64   `parquet:"function,dict"`
	Kernel        string  `parquet:"kernel,dict"`
	GridX         int32   `parquet:"grid_x,dict"`
	GridY         int32   `parquet:"grid_y,dict"`
	GridZ         int32   `parquet:"grid_z,dict"`
	BlockX        int32   `parquet:"block_x,dict"`
	BlockY        int32   `parquet:"block_y,dict"`
	BlockZ        int32   `parquet:"block_z,dict"`
	SharedBytes   int32   `parquet:"shared_bytes,dict"`
	StackID       int32   `parquet:"stack_id,dict"`
	StackStatus   string  `parquet:"stack_status,dict"`
	Site          string  `parquet:"site,dict"`
	Value         float64 `parquet:"value,dict"`
	Message       string  `parquet:"message,dict"`
	Stack         string  `parquet:"stack"`
	Frames        []Frame `parquet:"frames,list"`
	// Since 1.1.
	AllocatedBytes int64 `parquet:"allocated_bytes,dict"`
	ReservedBytes  int64 `parquet:"reserved_bytes,dict"`
}

// Frame is one frame of a stack, as stored in the list column "frames" of rows of
// kind "stack". Frames are ordered leaf first: Frames[0] is the probed function.
type Frame struct {
	// Func is the demangled function name, or "" when no symbol covers Addr.
	Func string `parquet:"func"`
	// SystemName is the symbol as the ELF file has it; equal to Func when that was
	// not mangled.
	SystemName string `parquet:"system_name"`
	// File and Line are the source position; "" and 0 when unknown.
	File string `parquet:"file"`
	Line int32  `parquet:"line"`
	// Module is the path of the mapped file as the target saw it.
	Module string `parquet:"module"`
	// BuildID is the hex GNU build id of Module, "" when it has none.
	BuildID string `parquet:"build_id"`
	// Addr is the ELF virtual address of the call in Module; for frames outside of
	// any file (JIT) the address in the process.
	Addr int64 `parquet:"addr"`
	// Type is native, python or jit.
	Type string `parquet:"type"`
}

// Kinds of rows. The first group are CUDA calls, one row per call.
const (
	KindAlloc = "alloc" // memory becomes live at Ptr when Result is 0
	KindFree  = "free"  // memory at Ptr ends when Result is 0

	// Virtual memory management and memory of others, like alloc and free in row groups
	// of memory calls.
	KindReserve   = "reserve"   // addresses, not memory
	KindUnreserve = "unreserve" // addresses are given back
	KindMap       = "map"       // memory handle SrcPtr, from byte Value on, appears at Ptr
	KindUnmap     = "unmap"     // Bytes from Ptr on lose their memory
	KindRetain    = "retain"    // one more reference to memory handle Ptr
	KindBorrow    = "borrow"    // Ptr is memory of another process or API
	KindReturn    = "return"    // borrowed memory is given back

	KindLaunch = "launch" // a kernel or graph launch
	KindMemcpy = "memcpy"
	KindMemset = "memset"
	KindSync   = "sync" // the CPU waits for the GPU
	KindAPI    = "api"  // every other recorded call

	// KindAllocator is one event of a framework's caching allocator, Name one of the
	// Allocator constants. Since 1.1.
	KindAllocator = "allocator"

	KindStack   = "stack"   // one distinct stack
	KindNVML    = "nvml"    // one sample: Name is the metric, Value its value
	KindXid     = "xid"     // one Xid error
	KindProcess = "process" // a recorded process
	KindThread  = "thread"  // a thread that made calls
	KindModule  = "module"  // an ELF file mapped by a recorded process
	KindDevice  = "device"  // a GPU
	KindKernel  = "kernel"  // a kernel handle and its names
	KindCount   = "count"   // hot calls that are only counted: Value calls since the last such row
	KindLost    = "lost"    // Value calls of class Name were lost in this interval
	KindNote    = "note"    // something the recorder wants the reader to know
)

// Flags of a call row.
const (
	// FlagOpen marks a call that had not returned when it was written; DurNs is the
	// time it had been open until then, Result means nothing.
	FlagOpen = 1 << iota
	// FlagAbandoned marks a call whose return was never seen although the thread
	// went on (an exception or longjmp passed it); DurNs and Result mean nothing.
	FlagAbandoned
	// FlagPerThreadStream marks a call through a _ptds or _ptsz entry point, where
	// stream 0 is the calling thread's own stream.
	FlagPerThreadStream
	// FlagUnreadable marks a call of which some argument in user memory could not
	// be read when it was needed; the columns concerned are 0.
	FlagUnreadable
	// FlagCaptured marks work put into a graph by stream capture: recorded, not run.
	FlagCaptured
	// FlagNoReturn marks a call that was written at its entry, because calls of its kind
	// came too often to probe their returns as well: DurNs and Result are not known. Since
	// 1.1.
	FlagNoReturn
)

// States of a call's stack, column stack_status.
const (
	StackComplete     = "complete"      // unwound to the thread's start
	StackFramePointer = "frame_pointer" // walked by frame pointers: frames may be missing
	StackTruncated    = "truncated"
	StackInferred     = "inferred" // re-used from an equal-looking call
	StackParent       = "parent"   // a nested call: the stack of the enclosing call
	StackNone         = "none"
)

// Reasons for which a stack is truncated, column message of its row. Readers take words
// that they do not know as TruncationOther.
const (
	TruncationDepth   = "depth"   // more frames than the kernel may walk
	TruncationMapping = "mapping" // a library that the unwinder did not know yet
	TruncationCode    = "code"    // machine code without unwind information, such as a JIT's
	TruncationPython  = "python"  // a Python frame could not be read
	TruncationProbe   = "probe"   // a return address that another tool's return probe has replaced
	TruncationOther   = "other"
)

// NoteStackInference is the name of notes whose message is a StackInference, as JSON. A
// later note for the same class replaces an earlier one.
const NoteStackInference = "stack_inference"

// StackInference is how the stacks of a class of calls were inferred, and how often that
// was wrong.
type StackInference struct {
	Class string `json:"class"` // memory, launch, copy, sync, api or allocator
	Key   string `json:"key"`   // what calls with the same stack have in common, in words
	// Inferred calls have the stack of an earlier one; of these BySequence could be told
	// from others by the stack of the call before and the innermost Python frame, ByPython
	// and ByPath only by all their Python frames or the return addresses on the stack.
	Inferred   int64 `json:"inferred"`
	BySequence int64 `json:"by_sequence,omitempty"`
	ByPython   int64 `json:"by_python,omitempty"`
	ByPath     int64 `json:"by_path,omitempty"`
	// Checked calls could have had, were chosen at random and unwound instead; of these
	// Wrong had another stack. Young fingerprints are checked more often than old ones, so
	// the share of inferred calls that are wrong is not Wrong / Checked but
	// WrongEstimated / Inferred: each wrong one counted for as many inferred calls as one
	// was checked of (the Horvitz-Thompson estimator).
	Checked        int64 `json:"checked"`
	Wrong          int64 `json:"wrong"`
	WrongEstimated int64 `json:"wrong_estimated"`
	// Busy calls met another thread at the CPU's unwinder and have a stack by frame
	// pointers, or none.
	Busy int64 `json:"busy,omitempty"`
}

// NoteSampling is the name of notes whose message is a Sampling, as JSON: one per switch. It
// holds from the row's start_ns until that of the next one about the same. Since 1.1.
const NoteSampling = "sampling"

// Classes of calls that can be sampled, and what of them.
const (
	SampledLaunch = "launch" // of kernels; launches of graphs are always recorded

	SampledCalls  = "calls"  // the calls themselves
	SampledStacks = "stacks" // their stacks: calls have stack status none meanwhile
)

// Sampling says whether calls of a class are recorded from now on (--max-overhead). Of calls,
// the times are exact: all that began while they were recorded are there, and no others.
type Sampling struct {
	Class    string `json:"class"`
	What     string `json:"what"`
	Recorded bool   `json:"recorded"`
	// OverheadPct is how much of its time probes cost the busiest thread before the switch,
	// MaxOverheadPct the limit, both in percent.
	OverheadPct    float64 `json:"overhead_pct"`
	MaxOverheadPct float64 `json:"max_overhead_pct"`
}

// NoteAllocator is the name of notes whose message is an AllocatorFact, as JSON: one per process
// that has a caching allocator gpurec knows. Since 1.1.
const NoteAllocator = "allocator"

// AllocatorFact says which caching allocator a process has, and whether its events are recorded.
type AllocatorFact struct {
	Allocator string `json:"allocator"` // a memory_kind: torch
	Library   string `json:"library"`   // path, as the process has it mapped
	BuildID   string `json:"build_id,omitempty"`
	Version   string `json:"version,omitempty"` // of the framework, if it tells: 2.11.0+cu130
	// Conf is the allocator's configuration as the process was started with
	// (PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF).
	Conf string `json:"conf,omitempty"`
	// Missing says in words why events are not recorded, or not completely; empty if they are.
	Missing string `json:"missing,omitempty"`
	// Source is the function whose calls are recorded, one of the Source constants; empty: none
	// is, or, if Missing is empty too, SourceTrace.
	Source string `json:"source,omitempty"`
	// Limits says in words why that is SourceReports, and what it does not tell.
	Limits string `json:"limits,omitempty"`
}

// Names of rows of kind xid. Value is the code, Pid the process (0: not told), Device the NVML
// index (-1: none), Message an XidFact as JSON.
const (
	NameXid  = "xid"  // an error of a GPU
	NameSXid = "sxid" // of an NVSwitch
)

// XidFact is what was said about an Xid beside its code. Since 1.1.
type XidFact struct {
	PCI     string `json:"pci"`               // domain:bus:device.function, as the driver wrote it
	Process string `json:"process,omitempty"` // name of the process
	Text    string `json:"text"`              // the driver's words after the code
	// Sources saw it: tracepoint, kmsg, nvml. One Xid seen by several is one row.
	Sources []string `json:"sources"`
	// Before is set if it happened before the recording began.
	Before bool `json:"before,omitempty"`
}

// Kinds of memory, column memory_kind of alloc and free rows. A free row may be
// less exact than the alloc it ends (cuMemFree_v2 frees managed memory too); the
// pair is found by Ptr.
const (
	MemoryDevice  = "device"
	MemoryAsync   = "async" // stream-ordered, from a pool
	MemoryManaged = "managed"
	MemoryHost    = "host" // pinned host memory

	MemoryRegistered = "registered" // host memory of the program, pinned
	MemoryArray      = "array"      // a CUDA array; Ptr is its handle
	MemoryPhysical   = "physical"   // a handle of cuMemCreate; Ptr is the handle
	MemoryGraph      = "graph"      // allocated by a node of a graph
	MemoryIPC        = "ipc"        // borrowed from another process
	MemoryExternal   = "external"   // borrowed from another API
)

// Events of a caching allocator, column name of rows of kind allocator: the actions of
// PyTorch's c10::CachingDeviceAllocator::TraceEntry. A block is what a tensor gets; it lies in
// a segment, which is what the allocator has from the driver.
const (
	AllocatorAlloc         = "alloc"          // a block of Bytes (as asked for) is handed out
	AllocatorFreeRequested = "free_requested" // its owner needs it no more
	AllocatorFreeCompleted = "free_completed" // and no stream does: it can be handed out again
	AllocatorSegmentAlloc  = "segment_alloc"
	AllocatorSegmentFree   = "segment_free"
	AllocatorSegmentMap    = "segment_map"   // expandable segments: Bytes at Ptr become usable
	AllocatorSegmentUnmap  = "segment_unmap" // and go back to the driver
	AllocatorSnapshot      = "snapshot"      // somebody looked
	AllocatorOOM           = "oom"           // Bytes could not be had; Value is what the device had free

	// What reports tell, see AllocatorFact.Source. Bytes are those of the block, and
	// AllocatedBytes and ReservedBytes are after the event.
	AllocatorReportedAlloc = "reported_alloc"
	AllocatorReportedFree  = "reported_free" // its owner needs it no more
)

// Values of AllocatorFact.Source: functions of PyTorch.
const (
	// SourceTrace tells everything: the events from AllocatorAlloc to AllocatorOOM.
	SourceTrace = "record_trace"
	// SourceReports tells of AllocatorReportedAlloc and AllocatorReportedFree.
	SourceReports = "reportMemoryUsageToProfiler"
)

// MemoryTorch is the memory_kind of rows of PyTorch's allocator.
const MemoryTorch = "torch"

// Class says in which row groups a kind of row is stored. A row group holds rows of
// one class only, so that a reader skips what it does not need.
type Class int

// Classes in the order in which their row groups stand in a finished file.
const (
	ClassFact      Class = iota // processes, threads, modules, devices, kernels, losses, notes
	ClassStack                  // distinct stacks
	ClassSample                 // NVML samples, counts and Xids
	ClassMemory                 // calls of kind alloc and free
	ClassCall                   // all other calls
	ClassAllocator              // events of caching allocators
	numClasses
)

// String returns the class's name as it appears in segment file names.
func (c Class) String() string {
	return [...]string{"fact", "stack", "sample", "memory", "call", "allocator"}[c]
}

// ClassOf returns the class that rows of the kind belong to; unknown kinds (written
// by a newer minor version) count as facts.
func ClassOf(kind string) Class {
	switch kind {
	case KindAlloc, KindFree, KindReserve, KindUnreserve, KindMap, KindUnmap, KindRetain, KindBorrow, KindReturn:
		return ClassMemory
	case KindLaunch, KindMemcpy, KindMemset, KindSync, KindAPI:
		return ClassCall
	case KindAllocator:
		return ClassAllocator
	case KindStack:
		return ClassStack
	case KindNVML, KindXid, KindCount:
		return ClassSample
	}
	return ClassFact
}
