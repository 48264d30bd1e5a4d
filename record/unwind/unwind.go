//go:build linux

// Package unwind takes complete stacks, Python and native frames in one, of the calls
// that gpurec probes. The unwinding itself, in the kernel, through .eh_frame and CPython's
// frames, is that of the OpenTelemetry eBPF profiler; this package is the only one that
// knows that module, whose interface changes often. make builds it with the patches in
// record/unwind/patches.
//
// The profiler's programs are loaded a second time, as a chain of our own: entered by a
// tail call from our probe, ended by our program in the slot where the profiler has the
// one that sends stacks. With it this chain shares the unwind tables and what is known
// of processes, which the profiler's Go half maintains.
package unwind

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"go.opentelemetry.io/ebpf-profiler/interpreter/interpreterconfig"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	otellog "go.opentelemetry.io/ebpf-profiler/log"
	"go.opentelemetry.io/ebpf-profiler/tracer"
)

// Unwinder is the profiler, ready to unwind.
type Unwinder struct {
	opt    Options
	tracer *tracer.Tracer
	cancel context.CancelFunc
	chain  *chain
	layout Layout
	watch  *watch

	reporter reporter

	// What the profiler knows of processes; the maps are its own.
	pidEvents, pages, pythons *ebpf.Map
	tables                    []*ebpf.Map // unwind tables of files, by size

	mu        sync.Mutex
	processes map[int]bool // to be unwound
	// waiting has the files without an unwind table, and since when they are known.
	waiting map[uint64]time.Time
}

// Layout is what the programs that begin and end unwinding must know of the profiler's
// structures: offsets in its record of a stack, in bytes, and in the kernel's task.
type Layout struct {
	Error       uint32 // s32: why unwinding ended early, see Why; 0: it did not
	PC          uint32 // u64: the instruction at which it ended
	Words       uint32 // u16: length of Data in words
	KernelWords uint32 // u16: of these, so many at the beginning are no frames of the process
	Data        uint32 // u64[3072]: the frames, as Frames reads them
	// ThreadPointer is the offset of the thread pointer in task_struct.
	ThreadPointer uint32
}

// Options say how the chain is entered.
type Options struct {
	// AttachType is that of the probes: programs of one chain must have the same.
	AttachType ebpf.AttachType
	// EntrySlot is the slot of the program array for the first program. The last one,
	// ours, belongs into slot 0.
	EntrySlot uint32
	// Pids are processes to begin with, as if Add were called.
	Pids []int
	// Mapped is called, if it is not nil, when one of the processes has mapped executable
	// memory. It must not block.
	Mapped func(pid int)
}

// Start loads the profiler. It takes the kernel's verifier a second or two.
func Start(opt Options) (*Unwinder, error) {
	return start(opt, intervals{monitor: 50 * time.Millisecond})
}

func start(opt Options, often intervals) (_ *Unwinder, err error) {
	otellog.SetLogger(*slog.New(slog.NewTextHandler(io.Discard, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	u := &Unwinder{opt: opt, cancel: cancel, processes: make(map[int]bool), waiting: make(map[uint64]time.Time)}
	defer func() {
		if err != nil {
			u.Close()
		}
	}()
	interpreters := interpreterconfig.NoInterpreters()
	if Patched() {
		interpreters.Python = interpreterconfig.AllInterpreters().Python
	}
	u.tracer, err = tracer.NewTracer(ctx, &tracer.Config{
		TraceReporter: &u.reporter, ExecutableReporter: &u.reporter, Intervals: often,
		InterpretersConfig: interpreters, SamplesPerSecond: 1, KernelVersionCheck: true, LoadProbe: true,
		ProbabilisticThreshold: tracer.ProbabilisticThresholdMax, IncludeEnvVars: libpf.Set[string]{},
	})
	if err != nil && strings.Contains(err.Error(), "rlimit") {
		return nil, errors.New("this build of gpurec needs CAP_SYS_RESOURCE to unwind; one made by make build does not")
	}
	if err != nil {
		return nil, startError(err)
	}
	u.tracer.StartPIDEventProcessor(ctx)
	traces := make(chan *libpf.EbpfTrace)
	if err := u.tracer.StartMapMonitors(ctx, traces); err != nil {
		return nil, fmt.Errorf("start unwinder: %w", err)
	}
	go discard(ctx, traces)
	u.chain = &chain{opt: opt, haveMaps: u.haveMaps}
	if err := u.tracer.Enable(ctx, u.chain); err != nil {
		return nil, fmt.Errorf("load unwinder: %w", err)
	}
	u.layout = u.chain.layout
	u.watch = watchMappings(ctx, u.mapped)
	return u, nil
}

// startError makes one sentence of what the profiler says of kernels that may freeze: some
// between 5.19 and 6.3. Whether one is mended, it reads in the kernel's code, through tracefs.
func startError(err error) error {
	text, cause, found := strings.Cut(err.Error(), "\nError: ")
	if !found || !strings.Contains(text, "Linux kernel bug") {
		return fmt.Errorf("start unwinder: %w", err)
	}
	if strings.Contains(cause, "/tracing/") && strings.Contains(cause, "permission denied") {
		cause = "that takes root, or CAP_DAC_READ_SEARCH to read /sys/kernel/tracing"
	}
	return fmt.Errorf("this kernel may freeze when stacks are read (copy_from_user_nofault, mended in 6.1.36, "+
		"6.3.10 and 6.4) and it could not be found out whether it is mended: %s", cause)
}

// discard reads what the profiler's own chain sends: nothing, as it is not attached.
func discard(ctx context.Context, traces <-chan *libpf.EbpfTrace) {
	for {
		select {
		case <-traces:
		case <-ctx.Done():
			return
		}
	}
}

// intervals are the profiler's. It looks for processes to synchronise at MonitorInterval,
// when it also collects metrics of its own, which costs 0.4 ms.
type intervals struct{ monitor time.Duration }

func (i intervals) MonitorInterval() time.Duration     { return i.monitor }
func (intervals) TracePollInterval() time.Duration     { return time.Second }
func (intervals) PIDCleanupInterval() time.Duration    { return time.Minute }
func (intervals) ExecutableUnloadDelay() time.Duration { return time.Hour }

// Programs is the program array to make the tail call into, to Options.EntrySlot.
func (u *Unwinder) Programs() *ebpf.Map { return u.chain.programs }

// Record is the record per CPU in which the chain leaves a stack.
func (u *Unwinder) Record() *ebpf.Map { return u.chain.record }

// Pythons maps a pid to the layout of its interpreter, the profiler's PyProcInfo. It is empty if
// the build is not Patched.
func (u *Unwinder) Pythons() *ebpf.Map { return u.pythons }

// Layout returns the offsets for the programs at both ends.
func (u *Unwinder) Layout() Layout { return u.layout }

// SetStop makes the program the end of the chain.
func (u *Unwinder) SetStop(stop *ebpf.Program) error {
	if err := u.chain.programs.Put(uint32(stopSlot), uint32(stop.FD())); err != nil {
		return fmt.Errorf("set end of unwinder: %w", err)
	}
	return nil
}

// haveMaps takes the profiler's maps and has it read the processes' mappings, which takes
// seconds and goes on while the chain is loaded.
func (u *Unwinder) haveMaps(maps map[string]*ebpf.Map) error {
	u.pidEvents, u.pages, u.pythons = maps["pid_events"], maps["pid_page_to_mapping_info"], maps[pythonsMap]
	for name, m := range maps {
		if strings.HasPrefix(name, "exe_id_to_") {
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

// Close ends the profiler and forgets everything. The probes must be gone.
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
	// Path is the file as the process sees it.
	Path string
	// File is the file itself; nil if it could not be opened. It is the Unwinder's.
	File *os.File
}

// reporter takes what the profiler reports. It is called by the profiler's goroutines
// and by Unwinder.Frames.
type reporter struct {
	mu      sync.Mutex
	modules map[fileKey]*Module
	trace   *libpf.Trace // of the frames handed in last
}
