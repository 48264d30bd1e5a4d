//go:build linux

// Package unwind records complete stacks, with Python and native frames, of the calls that gpurec
// probes. The OpenTelemetry eBPF profiler does the unwinding, in the kernel, with .eh_frame and
// CPython's frames. Only this package and package remote use the profiler's module, whose interface
// changes often.
// make build applies the patches in record/unwind/patches.
//
// The profiler's BPF programs are loaded a second time, as a chain for gpurec. gpurec's probe
// enters the chain by a tail call. gpurec's stop program ends it, in place of the profiler's
// program that sends stacks. Both copies share the unwind tables and the data about processes,
// which the profiler's Go code maintains.
package unwind

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/interpreter/interpreterconfig"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	otellog "go.opentelemetry.io/ebpf-profiler/log"
	"go.opentelemetry.io/ebpf-profiler/tracer"

	"github.com/gpurec/gpurec/record/unwind/tablecache"
)

// Unwinder is a running profiler with gpurec's chain of BPF programs.
type Unwinder struct {
	opt    Options
	tracer *tracer.Tracer
	cancel context.CancelFunc
	chain  *chain
	layout Layout
	watch  *mappingWatch

	reporter reporter

	// isSyncing says that the profiler will read the map of PID events within syncDelay.
	isSyncing atomic.Bool

	// The profiler's maps of processes.
	pidEvents, pages, pythons *ebpf.Map
	// tables are the maps of unwind tables by file: one map, but one for each size if not Patched.
	tables []*ebpf.Map

	mu        sync.Mutex
	processes map[int]bool // processes that Add added
}

// Layout has the offsets in bytes that gpurec's BPF programs need: in the profiler's record of a
// stack, and in the kernel's task_struct.
type Layout struct {
	Error       uint32 // s32: error code for TruncationCause, 0 for a complete stack
	PC          uint32 // u64: address at which unwinding stopped
	Words       uint32 // u16: length of Data in words
	KernelWords uint32 // u16: number of words at the start of Data that are kernel frames
	Data        uint32 // u64[3072]: the frames, as Frames decodes them
	// ThreadPointer is the offset of the thread pointer in task_struct.
	ThreadPointer uint32
}

// Options configure the chain of BPF programs.
type Options struct {
	// AttachType is the attach type of the probes. All programs of a chain must have the same.
	AttachType ebpf.AttachType
	// EntrySlot is the index of the first program in the program array. The stop program has index
	// 0.
	EntrySlot uint32
	// Pids are processes to add at the start, as with Add.
	Pids []int
	// Tables keeps the unwind tables of files between recordings. nil: they are read again.
	Tables *tablecache.Cache
	// Mapped, if not nil, is called when an added process has mapped executable memory. It must not
	// block.
	Mapped func(pid int)
}

// Start starts the profiler, and begins to load the chain: verifying the programs takes a tenth of a
// second. SetStop waits for them. Call Close to stop the Unwinder.
func Start(opt Options) (*Unwinder, error) {
	often := intervals{monitor: syncDelay}
	if canSyncOnDemand {
		often.monitor = time.Second
	}
	return start(opt, often)
}

// canSyncOnDemand reports whether the profiler reads the map of PID events on demand (see patches).
var canSyncOnDemand = func() bool {
	_, ok := any((*tracer.Tracer)(nil)).(interface{ ProcessPIDEvents() })
	return ok
}()

// start starts an Unwinder with the profiler's intervals.
func start(opt Options, often intervals) (_ *Unwinder, err error) {
	otellog.SetLogger(*slog.New(slog.NewTextHandler(io.Discard, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	u := &Unwinder{opt: opt, cancel: cancel, processes: make(map[int]bool)}
	defer func() {
		if err != nil {
			u.Close()
		}
	}()
	interpreters := interpreterconfig.NoInterpreters()
	if IsPatched() {
		interpreters.Python = interpreterconfig.AllInterpreters().Python
	}
	u.tracer, err = tracer.NewTracer(ctx, &tracer.Config{
		TraceReporter: &u.reporter, ExecutableReporter: &u.reporter, Intervals: often,
		InterpretersConfig: interpreters, SamplesPerSecond: 1, KernelVersionCheck: true, LoadProbe: true,
		ProbabilisticThreshold: tracer.ProbabilisticThresholdMax, IncludeEnvVars: libpf.Set[string]{},
	})
	if err != nil && strings.Contains(err.Error(), "rlimit") {
		return nil, errors.New("this build of gpurec needs CAP_SYS_RESOURCE to unwind; build it with make build")
	}
	if err != nil {
		return nil, startError(err)
	}
	if t, ok := any(u.tracer).(interface{ SetTableStore(tableStore) }); ok && opt.Tables != nil {
		t.SetTableStore(opt.Tables)
	}
	u.tracer.StartPIDEventProcessor(ctx)
	traces := make(chan *libpf.EbpfTrace)
	if err := u.tracer.StartMapMonitors(ctx, traces); err != nil {
		return nil, fmt.Errorf("start unwinder: %w", err)
	}
	go discardTraces(ctx, traces)
	u.chain = &chain{opt: opt, haveMaps: u.storeProfilerMaps}
	if err := u.tracer.Enable(ctx, u.chain); err != nil {
		return nil, fmt.Errorf("load unwinder: %w", err)
	}
	u.layout = u.chain.layout
	u.watch = watchMappings(ctx, u.onNewMapping)
	return u, nil
}

// tableStore is the type nativeunwind.TableStore of the patched module. A tablecache.Cache implements it.
type tableStore = interface {
	Load(key [32]byte) (firstPage uint64, pages []uint16, deltas []uint32, infos []byte, release func(), ok bool)
	Store(key [32]byte, firstPage uint64, pages []uint16, deltas []uint32, infos []byte)
}

// startError shortens the profiler's error about kernels that may freeze. Some kernels from 5.19 to
// 6.3 have this bug. The profiler checks the kernel's code through tracefs for the fix.
func startError(err error) error {
	text, cause, found := strings.Cut(err.Error(), "\nError: ")
	if !found || !strings.Contains(text, "Linux kernel bug") {
		return fmt.Errorf("start unwinder: %w", err)
	}
	if strings.Contains(cause, "/tracing/") && strings.Contains(cause, "permission denied") {
		cause = "the check needs root, or CAP_DAC_READ_SEARCH to read /sys/kernel/tracing"
	}
	return fmt.Errorf("this kernel may freeze when stacks are read (copy_from_user_nofault, fixed in 6.1.36, "+
		"6.3.10 and 6.4) and gpurec cannot check for the fix: %s", cause)
}

// discardTraces receives the traces of the profiler's own chain. That chain is not attached, so
// there are none.
func discardTraces(ctx context.Context, traces <-chan *libpf.EbpfTrace) {
	for {
		select {
		case <-traces:
		case <-ctx.Done():
			return
		}
	}
}

// intervals are the profiler's intervals. At each MonitorInterval it synchronises processes and
// collects metrics, which takes 0.4 ms. It also synchronises processes that its BPF programs report, and those
// of Unwinder.sync.
type intervals struct{ monitor time.Duration }

func (i intervals) MonitorInterval() time.Duration     { return i.monitor }
func (intervals) TracePollInterval() time.Duration     { return time.Second }
func (intervals) PIDCleanupInterval() time.Duration    { return time.Minute }
func (intervals) ExecutableUnloadDelay() time.Duration { return time.Hour }

// Programs returns the program array of the chain. Probes tail-call into its slot
// Options.EntrySlot.
func (u *Unwinder) Programs() *ebpf.Map { return u.chain.programs }

// Record returns the per-CPU map with the record in which the chain stores a stack.
func (u *Unwinder) Record() *ebpf.Map { return u.chain.record }

// Pythons returns the map from pid to the layout of its Python interpreter, the profiler's
// PyProcInfo. It is empty if the build is not Patched.
func (u *Unwinder) Pythons() *ebpf.Map { return u.pythons }

// Layout returns the offsets that gpurec's BPF programs need.
func (u *Unwinder) Layout() Layout { return u.layout }

// SetStop waits until the chain is loaded, and sets its last program. It returns the error of
// loading the chain.
func (u *Unwinder) SetStop(stop *ebpf.Program) error {
	if err := u.chain.await(); err != nil {
		return fmt.Errorf("load unwinder: %w", err)
	}
	if err := u.chain.programs.Put(uint32(stopProgramSlot), uint32(stop.FD())); err != nil {
		return fmt.Errorf("set end of unwinder: %w", err)
	}
	return nil
}

// storeProfilerMaps stores the profiler's maps and adds the processes of Options.Pids. Reading
// their mappings takes seconds, in parallel to loading the chain.
func (u *Unwinder) storeProfilerMaps(maps map[string]*ebpf.Map) error {
	u.pidEvents, u.pages, u.pythons = maps["pid_events"], maps["pid_page_to_mapping_info"], maps[pythonsMapName]
	for name, m := range maps {
		if strings.HasPrefix(name, "exe_id_to_") && !slices.Contains(u.tables, m) {
			u.tables = append(u.tables, m)
		}
	}
	if u.pidEvents == nil || u.pages == nil || u.pythons == nil || len(u.tables) == 0 {
		return errors.New("the unwinder's maps are not as expected")
	}
	for _, pid := range u.opt.Pids {
		u.Add(pid)
	}
	return nil
}

// Close stops the profiler and frees all its resources. The probes must be detached before.
func (u *Unwinder) Close() {
	u.cancel()
	if u.watch != nil {
		u.watch.close()
	}
	if u.tracer != nil {
		u.tracer.Close()
	}
	if u.chain != nil {
		u.chain.close()
	}
	u.reporter.close()
}

// Module is an ELF file that a process has mapped.
type Module struct {
	// Path is the path of the file, as the process sees it.
	Path string
	// File is the open file, or nil if it could not be opened. The Unwinder owns and closes it.
	File *os.File
}

// reporter receives the profiler's reports. The profiler's goroutines and Unwinder.Frames call it.
type reporter struct {
	mu      sync.Mutex
	modules map[fileKey]*Module
	trace   *libpf.Trace // result of the last HandleTrace
}
