package format

// Row is one row of a recording: a CUDA call, a stack, a sample or a fact. Kind determines which
// columns have a meaning; the others are zero or empty. There are no NULLs. All times are Unix
// nanoseconds (UTC) on the clock of Meta.ClockOffsetNs. FORMAT.md describes every column.
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
	// Columns since version 1.1.
	AllocatedBytes int64 `parquet:"allocated_bytes,dict"`
	ReservedBytes  int64 `parquet:"reserved_bytes,dict"`
	// Columns since version 1.2. Class is the name of the row's Class. Writer.Write sets it. It is
	// empty in older recordings.
	Class     string `parquet:"class,dict"`
	Channel   int32  `parquet:"channel,dict"`
	Counter   int64  `parquet:"counter,delta"`
	GPUTimeNs int64  `parquet:"gpu_time_ns,delta"`
	// Columns of class collective, since 1.2: see collective.go. Other rows have 0 or "" in them.
	Communicator     int64  `parquet:"communicator,dict"`
	CommunicatorRank int32  `parquet:"communicator_rank,dict"`
	CommunicatorSize int32  `parquet:"communicator_size,dict"`
	Sequence         int64  `parquet:"sequence,delta"`
	Group            int64  `parquet:"group_number,delta"`
	Root             int32  `parquet:"root,dict"`
	DataType         string `parquet:"data_type,dict"`
	Reduction        string `parquet:"reduction,dict"`
	// Columns since version 1.3. WakerPid and WakerTid are the thread that ended a wait; 0: none, or unknown. RanNs is
	// the time that the thread was on processors since its last row of kind wait, or since it is watched. They are 0
	// in other kinds.
	WakerPid int32 `parquet:"waker_pid,dict"`
	WakerTid int32 `parquet:"waker_tid,dict"`
	RanNs    int64 `parquet:"ran_ns,dict"`
	// ViaStackID is the stack of the call of PyTorch's autograd engine, such as loss.backward(), for which
	// the thread works. 0: it works for none, or that is unknown.
	ViaStackID int32 `parquet:"via_stack_id,dict"`
}

// Frame is one frame of a stack, stored in the list column "frames" of rows of kind "stack". Frames
// are ordered leaf first: Frames[0] is the probed function.
type Frame struct {
	// Func is the demangled function name. It is empty if no symbol covers Addr.
	Func string `parquet:"func"`
	// SystemName is the symbol in the ELF file. It equals Func if the symbol is not mangled.
	SystemName string `parquet:"system_name"`
	// File and Line are the source position. They are "" and 0 if unknown.
	File string `parquet:"file"`
	Line int32  `parquet:"line"`
	// Module is the path of the mapped ELF file, as the target process sees it.
	Module string `parquet:"module"`
	// BuildID is the GNU build id of Module in hexadecimal, "" if Module has none.
	BuildID string `parquet:"build_id"`
	// Addr is the ELF virtual address of the call in Module. For code outside of files (JIT), it is
	// the address in the process.
	Addr int64 `parquet:"addr"`
	// Type is native, python or jit.
	Type string `parquet:"type"`
	// SelfClass is the class of self in a Python frame with which PyTorch calls a module, ""
	// in other frames or if it could not be read. Since 1.2.
	SelfClass string `parquet:"self_class"`
}

// Kinds of rows: values of Row.Kind. The first group are CUDA calls, with one row for each call.
const (
	KindAlloc = "alloc" // allocates memory at Ptr if Result is 0
	KindFree  = "free"  // frees the memory at Ptr if Result is 0

	// The next kinds are calls about virtual memory and memory of other processes. Their class is ClassMemory.
	KindReserve   = "reserve"   // reserves an address range without memory
	KindUnreserve = "unreserve" // releases an address range
	KindMap       = "map"       // maps memory of handle SrcPtr, from offset Value on, at Ptr
	KindUnmap     = "unmap"     // unmaps Bytes bytes at Ptr
	KindRetain    = "retain"    // adds a reference to memory handle Ptr
	KindBorrow    = "borrow"    // maps memory of another process or API at Ptr
	KindReturn    = "return"    // unmaps borrowed memory

	KindLaunch = "launch" // a kernel or graph launch
	KindMemcpy = "memcpy"
	KindMemset = "memset"
	KindSync   = "sync" // makes the CPU wait for the GPU
	KindAPI    = "api"  // any other recorded call

	// KindAllocator is one event of a framework's caching allocator. Name is one of the Allocator
	// constants. Since 1.1.
	KindAllocator = "allocator"

	// KindProgress is one sample of a channel of a GPU: how many operations have begun, and when the
	// last of them did. ProgressRow has its columns. Since 1.2.
	KindProgress = "progress"
	// KindChannel is a channel whose progress is sampled. A later row for the channel replaces an
	// earlier one. Since 1.2.
	KindChannel = "channel"

	// Kinds of class host: what threads did outside of CUDA. host.go has the values of their columns.
	// Since 1.2.

	// KindWait is a time in which a thread was on no processor. Name is its state, Value the part of the
	// time in run queues in ns, Message a WaitFact as JSON.
	KindWait = "wait"
	// KindCPUSample is a thread that was found on a processor. DurNs is the time that the sample represents.
	KindCPUSample = "cpu_sample"
	// KindThreadState is the state of a thread at StartNs. Name is its state, DurNs the time since it last came
	// to a processor, Value its CPU time in ns, Message a WaitFact as JSON.
	KindThreadState = "thread_state"
	// KindGC is a pause for the garbage collection of an interpreter. Value and Message say how exact its
	// ends are. Tid is the thread that collects, 0 if unknown. Result is the generation, -1 if unknown.
	KindGC = "gc"
	// KindHost is a sample of a metric of a thread, process, cgroup or machine.
	KindHost = "host"

	// Kinds of class collective: calls of NCCL. collective.go has the values of their columns. Since 1.2.

	// KindCollective is an operation that moves data between ranks, such as ncclAllReduce or ncclSend.
	KindCollective = "collective"
	// KindCommunicatorCall is any other recorded call of NCCL: communicators, groups, buffers.
	KindCommunicatorCall = "communicator_call"
	// KindCommunicator is a communicator of a process, valid for the address Ptr from StartNs on. A later row
	// for the same process, address and StartNs replaces an earlier one. Message is a CommunicatorFact as JSON.
	KindCommunicator = "communicator"

	// KindKernelArgs has the arguments of one kernel launch. kernelargs.go has the values of its columns. Since 1.2.
	KindKernelArgs = "kernel_args"

	KindStack = "stack" // one distinct stack
	// KindStackAlias says which stack a rationed stack ID means: Value is the ID of a row of kind
	// stack, Site its call site. Since 1.2.
	KindStackAlias = "stack_alias"
	KindNVML       = "nvml"    // one NVML sample: Name is the metric, Value its value
	KindXid        = "xid"     // one Xid error of a GPU
	KindProcess    = "process" // a recorded process
	KindThread     = "thread"  // a thread that made recorded calls
	KindModule     = "module"  // an ELF file that a recorded process has mapped
	KindDevice     = "device"  // a GPU
	KindKernel     = "kernel"  // a kernel handle with the kernel's name
	// KindCount has Value calls of a frequent function that is only counted, since the last row of
	// this kind.
	KindCount = "count"
	KindLost  = "lost" // Value calls of class Name were lost in this interval
	KindNote  = "note" // a remark of the recorder about the recording
)

// Bits of Row.Flags in rows of calls.
const (
	// FlagOpen marks a call that had not returned when the row was written. DurNs is the time from
	// its entry to then. Result has no meaning.
	FlagOpen = 1 << iota
	// FlagAbandoned marks a call that never returned although its thread made later calls: an
	// exception or longjmp left it. DurNs and Result have no meaning.
	FlagAbandoned
	// FlagPerThreadStream marks a call of a _ptds or _ptsz entry point. Stream 0 is the calling
	// thread's own stream then.
	FlagPerThreadStream
	// FlagUnreadable marks a call with an argument in user memory that could not be read. The
	// columns of that argument are 0.
	FlagUnreadable
	// FlagCaptured marks work that stream capture added to a graph instead of running it.
	FlagCaptured
	// FlagNoReturn marks a call that was recorded at its entry only, because probing returns of
	// such frequent calls costs too much. DurNs and Result are unknown. Since 1.1.
	FlagNoReturn
	// FlagEarlyStart marks a launch whose kernel may begin before the operation before it on its stream has
	// ended: cuLaunchKernelEx with programmatic stream serialization. Since 1.2.
	FlagEarlyStart
)

// Values of Row.StackStatus.
const (
	StackComplete     = "complete"      // unwound to the first function of the thread
	StackFramePointer = "frame_pointer" // unwound by frame pointers: frames may be missing
	StackTruncated    = "truncated"     // ends before the first function of the thread
	StackInferred     = "inferred"      // copied from an earlier call with the same fingerprint
	StackParent       = "parent"        // in a nested call: the stack of the enclosing call
	StackNone         = "none"          // no stack was recorded
	// StackRationed marks a call that was not unwound because of --max-overhead. If a row of kind
	// stack_alias has its stack ID, the stack became known later. Since 1.2.
	StackRationed = "rationed"
)

// Reasons why a stack is truncated: values of Row.Message in stack rows. Readers treat unknown
// values as TruncationOther.
const (
	TruncationDepth   = "depth"   // more frames than the kernel's limit
	TruncationMapping = "mapping" // a library that the unwinder did not know yet
	TruncationCode    = "code"    // machine code without unwind information, such as JIT code
	TruncationPython  = "python"  // a Python frame could not be read
	TruncationProbe   = "probe"   // a return address that another tool's return probe has replaced
	TruncationOther   = "other"   // any other reason
)

// NoteStackInference is the name of notes whose message is a StackInference as JSON. A later note
// for a class replaces an earlier one.
const NoteStackInference = "stack_inference"

// StackInference counts the inferred stacks of a class of calls, and how many of them were wrong.
// An inferred stack is a copy of an earlier call's stack.
type StackInference struct {
	Class string `json:"class"` // memory, launch, copy, sync, api or allocator
	Key   string `json:"key"`   // in words: the fingerprint of calls that share a stack
	// Inferred counts calls with the stack of an earlier call. BySequence of them needed the stack
	// of the preceding call and the innermost Python frame to identify the stack. ByPython needed
	// all Python frames, ByPath the return addresses on the stack.
	Inferred   int64 `json:"inferred"`
	BySequence int64 `json:"by_sequence,omitempty"`
	ByPython   int64 `json:"by_python,omitempty"`
	ByPath     int64 `json:"by_path,omitempty"`
	// Checked counts calls that were unwound at random although an inferred stack existed. Wrong of
	// them had another stack. New fingerprints are checked more often than old ones. So the share
	// of wrong inferred stacks is WrongEstimated / Inferred, not Wrong / Checked. WrongEstimated
	// weights each wrong call by the sampling rate of its check (Horvitz-Thompson estimator).
	Checked        int64 `json:"checked"`
	Wrong          int64 `json:"wrong"`
	WrongEstimated int64 `json:"wrong_estimated"`
	// Busy counts calls that found the CPU's unwinder in use by another thread. They have a stack
	// by frame pointers, or none.
	Busy int64 `json:"busy,omitempty"`
	// Rationed counts calls that were not unwound because of --max-overhead: their status is
	// StackRationed. Unchecked counts inferred calls that checks would represent, but for
	// --max-overhead. WrongEstimated assumes that as many of them are wrong as of the checked ones.
	// Since 1.2.
	Rationed  int64 `json:"rationed,omitempty"`
	Unchecked int64 `json:"unchecked,omitempty"`
}

// NoteBeginning is the name of notes whose message is a Beginning as JSON. A later note about the same
// process and library replaces an earlier one. Since 1.2.
const NoteBeginning = "beginning"

// Beginning says that calls of a process before a row's start_ns are missing.
type Beginning struct {
	// Library is the library whose calls are missing; "": all probed libraries.
	Library string `json:"library,omitempty"`
	Why     string `json:"why"` // a clause: why the calls were not recorded
	// Missed is the number of missing calls or events, UnknownMissed if it is unknown.
	Missed int64 `json:"missed"`
}

// UnknownMissed says that the number of missing calls is unknown.
const UnknownMissed = -1

// NoteCommunicators is the name of notes that name the processes with unknown communicators, and the reason.
const NoteCommunicators = "communicators"

// NoteSampling is the name of notes whose message is a Sampling as JSON. A note holds from its
// start_ns until the next note about the same class and part. Since 1.1.
const NoteSampling = "sampling"

// Values of Sampling.Class and Sampling.What.
const (
	SampledLaunch = "launch" // class: kernel launches; graph launches are always recorded
	// SampledAllocator is the class of the events of caching allocators. Its only part is SampledCalls. Since 1.5.
	SampledAllocator = "allocator"

	SampledCalls  = "calls"  // part: the calls themselves
	SampledStacks = "stacks" // part: stacks of calls, whose stack status is none without them
)

// Sampling reports that recording a class of calls starts or stops at this time (--max-overhead).
// For SampledCalls, the times are exact: all calls that began between start and stop are recorded,
// and no others. While allocator events are left out, rows of kind block have readings of the allocators.
type Sampling struct {
	Class    string `json:"class"`
	What     string `json:"what"`
	Recorded bool   `json:"recorded"`
	// OverheadPct is the probe overhead of the busiest thread before the switch, in percent of its
	// time. MaxOverheadPct is the limit in percent.
	OverheadPct    float64 `json:"overhead_pct"`
	MaxOverheadPct float64 `json:"max_overhead_pct"`
}

// NoteAutograd is the name of notes that say why the column via_stack_id of a process is always 0. Since 1.3.
const NoteAutograd = "autograd"

// NoteAllocator is the name of notes whose message is an AllocatorFact as JSON. There is one for
// each process with a caching allocator that gpurec supports. Since 1.1.
const NoteAllocator = "allocator"

// AllocatorFact describes the caching allocator of a process, and whether its events are recorded.
type AllocatorFact struct {
	Allocator string `json:"allocator"` // value of memory_kind: torch
	Library   string `json:"library"`   // path of the allocator's library in the process
	BuildID   string `json:"build_id,omitempty"`
	Version   string `json:"version,omitempty"` // version of the framework if known: 2.11.0+cu130
	// Conf is the allocator's configuration in the process's environment: PYTORCH_CUDA_ALLOC_CONF
	// or PYTORCH_ALLOC_CONF.
	Conf string `json:"conf,omitempty"`
	// Missing explains why events are not recorded, or not all. It is empty if all events are
	// recorded.
	Missing string `json:"missing,omitempty"`
	// Source is the PyTorch function whose calls are recorded: SourceTrace or SourceReports. If it
	// is empty, no events are recorded. Exception: with an empty Missing it means SourceTrace.
	Source string `json:"source,omitempty"`
	// Limits explains why Source is SourceReports, and which data that source lacks.
	Limits string `json:"limits,omitempty"`
}

// Names of rows of kind xid. Value is the error code, Pid the process (0: unknown), Device the NVML
// index (-1: none). Message is an XidFact as JSON.
const (
	NameXid  = "xid"  // an error of a GPU
	NameSXid = "sxid" // an error of an NVSwitch
)

// XidFact describes an Xid error. Since 1.1.
type XidFact struct {
	PCI     string `json:"pci"`               // domain:bus:device.function, as the driver wrote it
	Process string `json:"process,omitempty"` // name of the process that the driver reported
	Text    string `json:"text"`              // text that the driver printed after the code
	// Sources have reported the error: tracepoint, kmsg, nvml. One error from several sources has
	// one row.
	Sources []string `json:"sources"`
	// Before is true if the error occurred before the recording began.
	Before bool `json:"before,omitempty"`
}

// Kinds of memory: values of Row.MemoryKind in alloc and free rows. A free row may have a less
// exact kind than its alloc row (cuMemFree_v2 frees managed memory too). Match the rows by Ptr.
const (
	MemoryDevice  = "device"
	MemoryAsync   = "async" // stream-ordered memory from a pool
	MemoryManaged = "managed"
	MemoryHost    = "host" // pinned host memory

	MemoryRegistered = "registered" // host memory of the program that CUDA has pinned
	MemoryArray      = "array"      // a CUDA array; Ptr is its handle
	MemoryPhysical   = "physical"   // physical memory of cuMemCreate; Ptr is the handle
	MemoryGraph      = "graph"      // allocated by a memory node of a graph
	MemoryIPC        = "ipc"        // memory of another process
	MemoryExternal   = "external"   // memory of another API
)

// Events of a caching allocator: values of Row.Name in rows of kind allocator. They equal the
// actions in PyTorch's c10::CachingDeviceAllocator::TraceEntry. A block is the memory of one
// tensor. Blocks are parts of segments, which the allocator allocates from the driver.
const (
	AllocatorAlloc         = "alloc"          // allocates a block; Bytes is the requested size
	AllocatorFreeRequested = "free_requested" // the program frees the block
	AllocatorFreeCompleted = "free_completed" // all streams have finished with the block: it can be reused
	AllocatorSegmentAlloc  = "segment_alloc"  // allocates a segment from the driver
	AllocatorSegmentFree   = "segment_free"   // returns a segment to the driver
	AllocatorSegmentMap    = "segment_map"    // maps Bytes at Ptr in an expandable segment
	AllocatorSegmentUnmap  = "segment_unmap"  // unmaps Bytes at Ptr in an expandable segment
	AllocatorSnapshot      = "snapshot"       // the program took a memory snapshot
	AllocatorOOM           = "oom"            // Bytes could not be allocated; Value is the free device memory in bytes

	// Events of SourceReports. Bytes is the size of the block. AllocatedBytes and ReservedBytes are
	// the totals after the event.
	AllocatorReportedAlloc = "reported_alloc" // allocates a block
	AllocatorReportedFree  = "reported_free"  // the program frees the block
)

// Values of AllocatorFact.Source: PyTorch functions whose calls gpurec records.
const (
	// SourceTrace reports all events from AllocatorAlloc to AllocatorOOM.
	SourceTrace = "record_trace"
	// SourceReports reports only AllocatorReportedAlloc and AllocatorReportedFree.
	SourceReports = "reportMemoryUsageToProfiler"
)

// MemoryTorch is the memory_kind of rows of PyTorch's caching allocator.
const MemoryTorch = "torch"

// Class groups kinds of rows for storage. A row group holds rows of one class, so readers skip row
// groups of other classes.
type Class int

// Classes in the order of their row groups in a finished file.
const (
	ClassFact       Class = iota // processes, threads, modules, devices, kernels, channels, losses, notes
	ClassStack                   // distinct stacks
	ClassSample                  // NVML samples, counts and Xids
	ClassMemory                  // calls that allocate, free or map memory
	ClassCall                    // all other calls
	ClassAllocator               // events of caching allocators
	ClassProgress                // progress of the channels of GPUs
	ClassHost                    // what threads did outside of CUDA
	ClassCollective              // calls of NCCL
	ClassArguments               // arguments of kernel launches
	ClassBlock                   // readings of the blocks of caching allocators
	numRowClasses
)

// String returns the class's name, as in the column class: fact, stack, sample, memory, call,
// allocator, progress, host, collective, arguments or block.
func (c Class) String() string {
	return [...]string{
		"fact", "stack", "sample", "memory", "call", "allocator", "progress", "host", "collective",
		"arguments", "block",
	}[c]
}

// ClassOf returns the class of rows of a kind. Unknown kinds, which a newer minor version wrote,
// are facts.
func ClassOf(kind string) Class {
	switch kind {
	case KindAlloc, KindFree, KindReserve, KindUnreserve, KindMap, KindUnmap, KindRetain, KindBorrow, KindReturn:
		return ClassMemory
	case KindLaunch, KindMemcpy, KindMemset, KindSync, KindAPI:
		return ClassCall
	case KindAllocator:
		return ClassAllocator
	case KindProgress:
		return ClassProgress
	case KindWait, KindCPUSample, KindThreadState, KindGC, KindHost:
		return ClassHost
	case KindCollective, KindCommunicatorCall:
		return ClassCollective
	case KindKernelArgs:
		return ClassArguments
	case KindBlock:
		return ClassBlock
	case KindStack, KindStackAlias:
		return ClassStack
	case KindNVML, KindXid, KindCount:
		return ClassSample
	}
	return ClassFact
}
