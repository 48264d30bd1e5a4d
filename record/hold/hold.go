//go:build linux

package hold

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/process"
)

// Options configure a Holder.
type Options struct {
	Targets *ebpf.Map     // of the BPF programs: threads of these processes are held
	Max     time.Duration // the longest hold
	Child   int           // the process that gpurec started itself
	Multi   bool          // attach by uprobe_multi, whose removal is quick; else by perf uprobes
}

// Request is a thread that is held until Release.
type Request struct {
	Pid, Tid int
	SinceNs  int64 // CLOCK_MONOTONIC
	// ForTables says that the thread is about to call CUDA: its stacks need unwind tables. Otherwise
	// probes are enough.
	ForTables bool
}

// Stats counts holds.
type Stats struct {
	Holds  int64
	HeldNs int64 // sum over threads
	// Unreleased are threads that ran before Release: the hold lasted longer than Options.Max, the
	// recorder was too slow, or there was no room for the request.
	Unreleased int64
}

// Holder holds threads. Its methods may be called from several goroutines.
type Holder struct {
	opt      Options
	objects  bpf.HoldObjects
	requests chan Request
	asked    chan Request
	released chan Request
	stop     chan struct{}
	running  sync.WaitGroup

	mu     sync.Mutex
	links  []link.Link
	probed map[process.FileID]bool // loaders and libraries of the driver

	holds, heldNs, late atomic.Int64
}

const (
	// tick is the interval at which the tracer checks held threads.
	tick = time.Millisecond
	// beat is the interval at which the tracer updates alive_ns of the BPF programs. patience is the
	// age at which these ignore it: long enough for a machine whose processors are all busy.
	beat     = 20 * time.Millisecond
	patience = 3 * time.Second
)

// Start loads the BPF programs and starts the tracer. Nothing is held before ProbeLoader and ProbeDriver.
func Start(opt Options) (*Holder, error) {
	h := &Holder{
		opt: opt, requests: make(chan Request, 64), asked: make(chan Request), released: make(chan Request),
		stop: make(chan struct{}), probed: make(map[process.FileID]bool),
	}
	spec, err := bpf.LoadHold()
	if err != nil {
		return nil, fmt.Errorf("read BPF programs: %w", err)
	}
	if opt.Multi {
		for _, name := range []string{bpf.HoldProgLibrariesChanged, bpf.HoldProgCudaCalled} {
			spec.Programs[name].AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
	if err := spec.LoadAndAssign(&h.objects, &ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{"targets": opt.Targets},
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
		h.objects.PatienceNs.Set(uint64(patience)),
		h.objects.MaxHoldNs.Set(uint64(h.opt.Max)),
		h.showLife(),
	); err != nil {
		return fmt.Errorf("set BPF variables: %w", err)
	}
	exec, err := link.AttachTracing(link.TracingOptions{Program: h.objects.ForgetLibraries})
	if err != nil {
		return fmt.Errorf("attach to execs: %w", err)
	}
	h.links = append(h.links, exec)
	reader, err := ringbuf.NewReader(h.objects.HoldRequests)
	if err != nil {
		exec.Close()
		return fmt.Errorf("read hold requests: %w", err)
	}
	h.running.Go(func() { h.read(reader) })
	h.running.Go(h.trace)
	h.running.Go(func() { <-h.stop; reader.Close() })
	return nil
}

// ProbeLoader probes a loader for all processes, once. From then on, threads of targets are held
// when they have loaded libraries.
func (h *Holder) ProbeLoader(l *Loader) error {
	return h.attach(l.ID, l.executable(), h.objects.LibrariesChanged, []uint64{l.function}, []uint64{l.toList})
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
	return h.attach(lib.ID, lib.Executable(), h.objects.CudaCalled, offsets, make([]uint64, len(offsets)))
}

// attach attaches a program to file offsets of an executable, unless the file is probed already.
func (h *Holder) attach(id process.FileID, path string, program *ebpf.Program, offsets, cookies []uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.probed[id] || len(offsets) == 0 {
		return nil
	}
	executable, err := link.OpenExecutable(path)
	if err != nil {
		return fmt.Errorf("attach the program that holds threads: %w", err)
	}
	if h.opt.Multi {
		l, err := executable.UprobeMulti(nil, program, &link.UprobeMultiOptions{Addresses: offsets, Cookies: cookies})
		if err != nil {
			return fmt.Errorf("attach the program that holds threads: %w", err)
		}
		h.links = append(h.links, l)
	} else {
		for i, offset := range offsets {
			l, err := executable.Uprobe("", program, &link.UprobeOptions{Address: offset, Cookie: cookies[i]})
			if err != nil {
				return fmt.Errorf("attach the program that holds threads: %w", err)
			}
			h.links = append(h.links, l)
		}
	}
	h.probed[id] = true
	return nil
}

// Requests returns the threads that are held. Each must be released.
func (h *Holder) Requests() <-chan Request { return h.requests }

// Release lets a thread run on. It does nothing for one that has ended, or ran already.
func (h *Holder) Release(r Request) {
	select {
	case h.released <- r:
	case <-h.stop:
	}
}

// Stats returns what was held so far.
func (h *Holder) Stats() Stats {
	var expired uint64
	_ = h.objects.Unreleased.Get(&expired) // closed: 0
	return Stats{h.holds.Load(), h.heldNs.Load(), int64(expired) + h.late.Load()}
}

// Close removes the probes, and lets all threads run.
func (h *Holder) Close() error {
	h.mu.Lock()
	for _, l := range h.links {
		_ = l.Close() // the kernel removes it at the latest when gpurec exits
	}
	h.links = nil
	h.mu.Unlock()
	close(h.stop)
	h.running.Wait()
	return h.objects.Close()
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
		r := Request{
			Pid: int(binary.LittleEndian.Uint32(raw)), Tid: int(binary.LittleEndian.Uint32(raw[4:])),
			SinceNs:   int64(binary.LittleEndian.Uint64(raw[8:])),
			ForTables: bpf.HoldHoldReason(binary.LittleEndian.Uint32(raw[16:])) == bpf.HoldHoldReasonHOLD_FOR_TABLES,
		}
		select {
		case h.asked <- r:
		case <-h.stop:
			return
		}
	}
}

// trace is the goroutine of the tracer. It has an OS thread of its own, because only the thread that
// seized a thread may call ptrace(2) for it.
func (h *Holder) trace() {
	runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
	held := make(map[int]*thread)
	look := time.NewTicker(tick)
	defer look.Stop()
	look.Stop()
	alive := time.NewTicker(beat)
	defer alive.Stop()
	for {
		select {
		case r := <-h.asked:
			held[r.Tid] = h.begin(r)
			look.Reset(tick)
		case r := <-h.released:
			if t := held[r.Tid]; t != nil && t.SinceNs == r.SinceNs {
				h.release(held, t)
			}
		case <-look.C:
			h.look(held)
			if len(held) == 0 {
				look.Stop()
			}
		case <-alive.C:
			_ = h.showLife() // if it fails, no thread is held
		case <-h.stop:
			h.finish(held)
			return
		}
	}
}

// begin seizes a thread that waits in the kernel, and reports it.
func (h *Holder) begin(r Request) *thread {
	t := &thread{Request: r, until: time.Now().Add(h.opt.Max)}
	if t.isTraced = seize(r.Tid); t.isTraced {
		h.leaveKernel(r.Tid)
	}
	h.holds.Add(1)
	select {
	case h.requests <- r:
	default: // the session is far behind, and must not delay the thread
		t.isReleased = true
		h.late.Add(1)
	}
	return t
}

// leaveKernel ends the wait of the BPF program. A thread that is traced stops when it returns to
// user space.
func (h *Holder) leaveKernel(tid int) {
	_ = h.objects.Holds.Update(
		uint32(tid),
		uint32(bpf.HoldHoldStateHOLD_RELEASED),
		ebpf.UpdateExist,
	) // fails if the wait has ended already
}

// look releases the threads that are held for too long, and lets go those that were released
// before they had stopped.
func (h *Holder) look(held map[int]*thread) {
	now := time.Now()
	for tid, t := range held {
		if t.isTraced && hasEnded(tid, h.opt.Child) {
			delete(held, tid)
			continue
		}
		if now.After(t.until) && !t.isReleased {
			t.isReleased = true
			h.late.Add(1)
		}
		if t.isReleased {
			h.release(held, t)
		}
	}
}

// release lets a thread run on, or notes that it may once it has stopped.
func (h *Holder) release(held map[int]*thread, t *thread) {
	t.isReleased = true
	if !t.isTraced {
		h.leaveKernel(t.Tid)
	} else if !letGo(t.Tid) {
		return
	}
	h.heldNs.Add(clock.ReadNs(unix.CLOCK_MONOTONIC) - t.SinceNs)
	delete(held, t.Tid)
}

// finish lets all threads run. A thread that has not stopped yet is let go by the kernel, when the
// tracer's thread ends.
func (h *Holder) finish(held map[int]*thread) {
	for _, t := range held {
		h.release(held, t)
	}
}

// showLife writes the current time to alive_ns of the BPF programs.
func (h *Holder) showLife() error {
	return h.objects.AliveNs.Set(uint64(clock.ReadNs(unix.CLOCK_MONOTONIC)))
}
