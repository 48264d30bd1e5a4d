package format

// Rows of class host describe what threads of recorded processes did outside of CUDA. Since 1.2.

// States of threads: values of Row.Name in rows of kind wait and thread_state.
const (
	StateRunning         = "running"         // on a processor
	StateRunnable        = "runnable"        // in a run queue
	StateSleeping        = "sleeping"        // waits; a signal ends the wait
	StateUninterruptible = "uninterruptible" // waits; a signal does not end the wait
	StateStopped         = "stopped"         // stopped by a signal
	StateTraced          = "traced"          // stopped by a debugger
)

// FrameKernel is the Type of frames of the kernel. Only stacks of rows of class host have them.
const FrameKernel = "kernel"

// Why a thread waits: values of WaitFact.Reason. The empty reason means that it is unknown.
const (
	ReasonSleep      = "sleep"      // clock_nanosleep and others, for a time that the program chose
	ReasonGIL        = "gil"        // the global interpreter lock of Python
	ReasonLock       = "lock"       // a lock of the program: a mutex with an owner
	ReasonCondition  = "condition"  // a condition, a semaphore, or a lock without an owner
	ReasonImportLock = "import"     // the import of a Python module in another thread
	ReasonPipe       = "pipe"       // data of a pipe, a socket pair or an event descriptor
	ReasonNetwork    = "network"    // a network socket
	ReasonFile       = "file"       // a file or a disk
	ReasonPageFault  = "page_fault" // a page of a mapped file, or of swapped memory
	ReasonPoll       = "poll"       // one of several descriptors: poll, epoll, select
	ReasonChild      = "child"      // the end of a child process
	ReasonCUDA       = "cuda"       // a call of the CUDA driver waits for the GPU
	ReasonStopped    = "stopped"    // a signal or a debugger stopped the thread
	ReasonRunQueue   = "run_queue"  // a processor: the thread is runnable
	ReasonThrottled  = "throttled"  // the CPU limit of its cgroup
)

// What ended a wait: values of WaitFact.EndedBy, since 1.3.
const (
	EndedByThread    = "thread"    // a thread: see Row.WakerTid
	EndedBySender    = "sender"    // the network's interrupt inside of a thread's call that sends, to this host
	EndedBySignal    = "signal"    // a signal that a thread sent
	EndedByInterrupt = "interrupt" // a timer or a device
	EndedByKernel    = "kernel"    // a thread of the kernel
	EndedByUnknown   = "unknown"   // no wake-up was seen
)

// FlagContinues is a bit of Row.Flags in rows of kind wait: the wait continues that of the thread's last row that is not
// runnable. A timer or a signal had cut it. Since 1.3.
const FlagContinues = 2

// WaitFact is the message of rows of kind wait and thread_state: why a thread waits. All members are
// optional.
type WaitFact struct {
	Reason     string `json:"reason,omitempty"`      // one of the Reason constants
	SystemCall string `json:"system_call,omitempty"` // the system call in which it waits, such as futex
	// CUDACall is the function of libcuda on its stack, which the program called.
	CUDACall string `json:"cuda_call,omitempty"`
	// OwnerPid and OwnerTid are the thread that holds the lock, the process that is waited for, or
	// the thread that took the processor of a runnable thread. Owner is its name. 0: unknown.
	OwnerPid int32  `json:"owner_pid,omitempty"`
	OwnerTid int32  `json:"owner_tid,omitempty"`
	Owner    string `json:"owner,omitempty"`
	// Target is the path of the file, or "pipe", or the address of the socket.
	Target string `json:"target,omitempty"`
	// When says why the thread_state was recorded, as in the States constants. Thread is the name of
	// the thread. Python is the version of its interpreter. They are set in rows of kind thread_state only.
	When   string `json:"when,omitempty"`
	Thread string `json:"thread,omitempty"`
	Python string `json:"python,omitempty"`
	// Missing says why the stack is not complete.
	Missing string `json:"missing,omitempty"`
	// EndedBy says what ended the wait: one of the EndedBy constants. It is "" if the wait had not ended, if the
	// thread was runnable, and where wake-ups were not recorded. Since 1.3.
	EndedBy string `json:"ended_by,omitempty"`
	// Waker is the name of the thread Row.WakerTid, and WakerCall the system call by which it ended the wait.
	// Since 1.3.
	Waker     string `json:"waker,omitempty"`
	WakerCall string `json:"waker_call,omitempty"`
}

// When a thread_state was recorded: values of WaitFact.When.
const (
	WhenEnd     = "end"     // at the end of the recording
	WhenSilence = "silence" // after the process made no CUDA call for a while
	WhenTrigger = "trigger" // on demand
)

// Names of rows of kind gc.
const (
	// SourceSampled is the message of pauses that are seen by reading the interpreter's state again and
	// again. Value is then the time between two readings in ns: both ends of the pause are uncertain by it. Flags
	// has FlagOpen if the pause had not ended.
	SourceSampled = "sampled"
)

// Metrics of a thread, a process, a cgroup or the machine: values of Row.Name in rows of kind host. All
// are counters from the first row of their subject on, unless noted.
const (
	// Of a thread: Pid and Tid.
	HostRunning         = "running_nanoseconds"         // on a processor
	HostRunnable        = "runnable_nanoseconds"        // in a run queue
	HostSleeping        = "sleeping_nanoseconds"        // waits that a signal ends
	HostUninterruptible = "uninterruptible_nanoseconds" // waits that no signal ends
	HostSwitches        = "context_switches"
	HostMajorFaults     = "major_faults"       // page faults that waited for a disk
	HostGILHeld         = "gil_held_samples"   // readings that found the GIL locked by this thread
	HostGILWaited       = "gil_waited_samples" // readings that found this thread waiting for the GIL
	// Of a process: Tid is 0.
	HostInterpreterReads = "interpreter_samples" // readings of GIL and GC
	HostCollecting       = "collecting_samples"  // readings that found a garbage collection
	HostCollections0     = "gc_collections_0"    // collections of the youngest generation
	HostCollections1     = "gc_collections_1"
	HostCollections2     = "gc_collections_2" // collections of all generations
	HostReadBytes        = "read_bytes"       // read from disks
	HostWriteBytes       = "write_bytes"
	// Of the cgroups of a process: Tid is 0, Message is the path of the cgroup that has the limit.
	HostCPULimit    = "cgroup_cpu_limit_cores" // a value, not a counter
	HostPeriods     = "cgroup_periods"         // periods of the limit in which a thread was runnable
	HostThrottled   = "cgroup_throttled_periods"
	HostThrottledNs = "cgroup_throttled_nanoseconds"
	// HostMemoryPressure is the time in which some thread of the process's cgroup v2 waited for memory.
	HostMemoryPressure = "cgroup_memory_pressure_nanoseconds"
	// Of the machine: Pid and Tid are 0.
	HostMachineCPUPressure    = "cpu_pressure_nanoseconds"    // some thread waited for a processor
	HostMachineIOPressure     = "io_pressure_nanoseconds"     // some thread waited for a disk
	HostMachineMemoryPressure = "memory_pressure_nanoseconds" // some thread waited for memory
)

// NoteHost is the name of the note whose message is a HostFact as JSON. A later note replaces an earlier
// one.
const NoteHost = "host"

// HostFact says how class host was recorded.
type HostFact struct {
	Mode string `json:"mode"` // auto or full, as in --host
	// SampleHz is the rate of snapshots and CPU samples.
	SampleHz float64 `json:"sample_hz"`
	// MinWaitNs is the length from which all waits have rows, or are counted as lost. Shorter ones of at least
	// a millisecond may have rows, too.
	MinWaitNs int64 `json:"min_wait_ns"`
	// InterpreterHz is the rate at which GIL and GC of an interpreter are read.
	InterpreterHz float64 `json:"interpreter_hz,omitempty"`
	// Missing names what was not recorded, and why.
	Missing []string `json:"missing,omitempty"`
	// Switches counts the context switches of the whole machine that the switch program has seen, and
	// TargetSwitches those of recorded threads. SwitchNs and TargetSwitchNs are the measured price of one.
	Switches       int64   `json:"switches,omitempty"`
	TargetSwitches int64   `json:"target_switches,omitempty"`
	SwitchNs       float64 `json:"switch_ns,omitempty"`
	TargetSwitchNs float64 `json:"target_switch_ns,omitempty"`
	// Wakings counts the wake-ups of the whole machine that the waking program has seen, and TargetWakings
	// those of recorded threads. WakingNs and TargetWakingNs are the measured price of one. Since 1.3.
	Wakings        int64   `json:"wakings,omitempty"`
	TargetWakings  int64   `json:"target_wakings,omitempty"`
	WakingNs       float64 `json:"waking_ns,omitempty"`
	TargetWakingNs float64 `json:"target_waking_ns,omitempty"`
	// CPUNs is the CPU time of the recorder for class host.
	CPUNs int64 `json:"cpu_ns,omitempty"`
}
