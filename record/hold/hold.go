//go:build linux

package hold

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/process"
)

// Options configure a Holder. All are needed.
type Options struct {
	Targets *ebpf.Map     // of the BPF programs: only threads of these processes are held
	Threads *ebpf.Map     // of the BPF programs: calls that have not returned exclude holds
	Max     time.Duration // the longest hold
	Child   int           // the process that gpurec started itself: it and its children are held
	Multi   bool          // attach by uprobe_multi, whose removal is quick; else by perf uprobes
}

// Request is a thread that is held until Release.
type Request struct {
	Pid, Tid int
	SinceNs  int64 // CLOCK_MONOTONIC
	// ForTables says that the thread is about to call CUDA: its stacks need unwind tables. Otherwise
	// probes are enough.
	ForTables bool
	// inKernel says that the thread must wait in the BPF program, not in a ptrace stop.
	inKernel bool
}

// Stats counts holds.
type Stats struct {
	Holds  int64 // times that a thread was held
	HeldNs int64 // duration of the holds, summed over threads
	// Unreleased are threads that ran before Release: the hold lasted longer than Options.Max, the
	// recorder was too slow, or there was no room for the request.
	Unreleased int64
}

// Holder holds threads. Its methods may be called from several goroutines.
type Holder struct {
	opt      Options
	objects  bpf.HoldObjects
	requests chan Request  // from the tracer to the session
	asked    chan Request  // from the ring buffer to the tracer
	released chan release  // from the session to the tracer
	ending   chan struct{} // closed by End: from then on, no thread is held
	ended    chan struct{} // closed by the tracer when it holds no thread after that
	stop     chan struct{} // closed by Close
	running  sync.WaitGroup

	mu     sync.Mutex
	links  []link.Link
	probed map[process.FileID]bool // loaders and libraries of the driver

	hasUnheldForks atomic.Bool // a C library could not be probed: forked children may run on

	holds, heldNs, late atomic.Int64 // as in Stats
}

const (
	// tick is the interval at which the tracer checks held threads.
	tick = time.Millisecond
	// beat is the interval at which the tracer updates alive_ns of the BPF programs. patience is the
	// age at which these ignore it: long enough for a machine whose processors are all busy.
	beat     = 20 * time.Millisecond
	patience = 3 * time.Second
	// endLimit limits the time until seized threads have stopped and were let go.
	endLimit = 100 * time.Millisecond
)

// Start loads the BPF programs and starts the tracer. Nothing is held before ProbeLoader and ProbeDriver.
func Start(opt Options) (*Holder, error) {
	h := &Holder{
		opt:      opt,
		requests: make(chan Request, 64),
		asked:    make(chan Request),
		released: make(chan release),
		ending: make(
			chan struct{},
		),
		ended:  make(chan struct{}),
		stop:   make(chan struct{}),
		probed: make(map[process.FileID]bool),
	}
	spec, err := bpf.LoadHold()
	if err != nil {
		return nil, fmt.Errorf("read BPF programs: %w", err)
	}
	if opt.Multi {
		for _, name := range []string{bpf.HoldProgLibrariesChanged, bpf.HoldProgCudaCalled, bpf.HoldProgForked} {
			spec.Programs[name].AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
	if err := spec.LoadAndAssign(&h.objects, &ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{"targets": opt.Targets, "threads": opt.Threads},
	}); err != nil {
		return nil, fmt.Errorf("load the BPF program that holds threads: %w", err)
	}
	if err := h.start(); err != nil {
		h.objects.Close()
		return nil, err
	}
	return h, nil
}

func (h *Holder) start() error {
	if err := errors.Join(
		h.objects.Commands.Put(uint32(h.opt.Child), uint32(1)),
		h.objects.PatienceNs.Set(uint64(patience)),
		h.objects.MaxHoldNs.Set(uint64(h.opt.Max)),
		h.showLife(),
	); err != nil {
		return fmt.Errorf("set BPF variables: %w", err)
	}
	reader, err := ringbuf.NewReader(h.objects.HoldRequests)
	if err != nil {
		return fmt.Errorf("read hold requests: %w", err)
	}
	for _, program := range []*ebpf.Program{h.objects.ForgetLibraries, h.objects.InheritLibraries} {
		l, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			h.closeLinks()
			reader.Close()
			return fmt.Errorf("attach to execs and forks: %w", err)
		}
		h.links = append(h.links, l)
	}
	h.running.Go(func() { h.read(reader) })
	h.running.Go(h.trace)
	h.running.Go(func() { <-h.stop; reader.Close() })
	return nil
}

// ProbeLoader probes a loader for all processes, once. From then on, threads of targets are held
// when they have loaded libraries.
func (h *Holder) ProbeLoader(l *Loader) error {
	return h.attach(site{
		id: l.ID, path: l.executable(), program: h.objects.LibrariesChanged,
		offsets: l.sites, cookies: l.toList,
	})
}

// firstFunctions are those that programs and the CUDA runtime call before all others.
var firstFunctions = []string{
	"cuInit", "cuDriverGetVersion", "cuGetProcAddress", "cuGetProcAddress_v2", "cuGetExportTable",
}

// ProbeDriver probes a file of libcuda for all processes, once. From then on, the first call of a
// target waits.
func (h *Holder) ProbeDriver(lib *library.Library) error {
	var offsets []uint64
	for _, at := range lib.Probes {
		if slices.Contains(firstFunctions, at.Symbol) {
			offsets = append(offsets, at.FileOffset)
		}
	}
	return h.attach(site{
		id: lib.ID, path: lib.Executable(), program: h.objects.CudaCalled,
		offsets: offsets, cookies: make([]uint64, len(offsets)),
	})
}

// IsWatched reports whether no code of a probed library ran in a process before the process had waited
// for its probes. Then none of its calls is missing, even if a library is mapped before it is probed.
func (h *Holder) IsWatched(pid int) bool {
	var known bpf.HoldLoaded
	if h.objects.Processes.Lookup(uint32(pid), &known) != nil || known.IsWatched == 0 {
		return false
	}
	return known.HasDriver == 0 || !h.hasUnheldForks.Load()
}

// site is where a BPF program is attached: offsets in an executable, and the cookie of each.
type site struct {
	id               process.FileID
	path             string
	program          *ebpf.Program
	offsets, cookies []uint64
	atReturn         bool // the program runs at the returns of the functions
}

// attach attaches a program, unless the file is probed already.
func (h *Holder) attach(at site) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.probed[at.id] || len(at.offsets) == 0 {
		return nil
	}
	executable, err := link.OpenExecutable(at.path)
	if err == nil {
		err = h.attachTo(executable, at)
	}
	if err != nil {
		return fmt.Errorf("attach the program that holds threads: %w", err)
	}
	h.probed[at.id] = true
	return nil
}

func (h *Holder) attachTo(executable *link.Executable, at site) error {
	if h.opt.Multi {
		attach := executable.UprobeMulti
		if at.atReturn {
			attach = executable.UretprobeMulti
		}
		l, err := attach(nil, at.program, &link.UprobeMultiOptions{Addresses: at.offsets, Cookies: at.cookies})
		if err == nil {
			h.links = append(h.links, l)
		}
		return err
	}
	attach := executable.Uprobe
	if at.atReturn {
		attach = executable.Uretprobe
	}
	for i, offset := range at.offsets {
		l, err := attach("", at.program, &link.UprobeOptions{Address: offset, Cookie: at.cookies[i]})
		if err != nil {
			return err
		}
		h.links = append(h.links, l)
	}
	return nil
}

// Requests returns the threads that are held. Each must be released.
func (h *Holder) Requests() <-chan Request { return h.requests }

// release is a request of the session to let a thread run.
type release struct {
	Request
	wasHeld chan bool // receives whether the thread was held until now
}

// Release lets a thread continue. It reports false if the thread already runs again: the hold lasted too
// long, or the recorder was too slow.
func (h *Holder) Release(r Request) (wasHeld bool) {
	wait := make(chan bool, 1)
	select {
	case h.released <- release{r, wait}:
		return <-wait
	case <-h.ending:
		return true
	}
}

// End lets all threads run, and returns the counts of the whole recording. From then on, no thread is
// held. It must be called once, before Close. Probes that are quick to remove are gone then.
func (h *Holder) End() Stats {
	close(h.ending) // removing a probe waits for the threads that are in its program
	if h.opt.Multi {
		h.closeLinks()
	}
	select {
	case <-h.ended:
	case <-time.After(endLimit): // a thread in an uninterruptible sleep stops later
	}
	var expired uint64
	_ = h.objects.Unreleased.Get(&expired) // a variable in memory: it cannot fail before Close
	_ = h.objects.AliveNs.Set(0)           // threads do not even ask
	return Stats{h.holds.Load(), h.heldNs.Load(), int64(expired) + h.late.Load()}
}

// Close removes the remaining probes. Removing a perf uprobe takes 0.05 to 0.3 s.
func (h *Holder) Close() {
	h.closeLinks()
	close(h.stop)
	h.running.Wait()
	_ = h.objects.Close() // the kernel frees the programs at the latest when gpurec exits
}

// closeLinks removes all probes.
func (h *Holder) closeLinks() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.links {
		_ = l.Close() // the kernel removes it at the latest when gpurec exits
	}
	h.links = nil
}

// requestBytes is the size of struct hold_request.
const requestBytes = 24

// read passes requests from the ring buffer to the tracer.
func (h *Holder) read(reader *ringbuf.Reader) {
	for {
		record, err := reader.Read()
		if err != nil || len(record.RawSample) < requestBytes {
			return // closed
		}
		raw := record.RawSample
		reason := bpf.HoldHoldReason(binary.LittleEndian.Uint32(raw[16:]))
		r := Request{
			Pid: int(binary.LittleEndian.Uint32(raw)), Tid: int(binary.LittleEndian.Uint32(raw[4:])),
			SinceNs:   int64(binary.LittleEndian.Uint64(raw[8:])),
			ForTables: reason != bpf.HoldHoldReasonHOLD_FOR_PROBES,
			inKernel:  reason == bpf.HoldHoldReasonHOLD_IN_KERNEL,
		}
		select {
		case h.asked <- r:
		case <-h.stop:
			return
		}
	}
}
