//go:build linux

package record

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/torchallocator"
	"golang.org/x/sys/unix"
)

// Limits of reading the memory of an allocator now.
const (
	torchMemoryTime = 2 * time.Second     // for each device
	openTorchTime   = 10 * time.Second    // for finding the library, and reading its symbols
	torchMemoryWait = 2 * torchMemoryTime // after which a reading is blocked
	maxTorchPids    = 256                 // descendants whose allocators are searched
)

// TorchMemory reads the blocks of PyTorch's caching allocator in a running process, without a recording. It stops
// nothing and writes nothing. It is not safe for concurrent use.
type TorchMemory struct {
	Pid     int
	Comm    string // name of the process
	Version string // of PyTorch, "" if unknown

	process  *process.Process
	library  *library.Library
	cache    *library.Cache
	reader   *torchallocator.Reader
	variable uint64        // address of the allocator's variable
	blocked  chan struct{} // not nil after a reading that may not have returned; closed when it does
}

// TorchReading is the result of one reading of a device.
type TorchReading struct {
	Device int
	UnixNs int64 // when the reading began, Unix ns
	// State is nil if the reading was refused. If Refused is not nil as well, the state is not proved.
	State   *torchallocator.State
	Refused error // nil, or the reason, such as *torchallocator.BusyError or *torchallocator.UnknownLayoutError
	// Processor is the processor time of the reading.
	Processor time.Duration
	// Holder is the thread that held the allocator's lock during the whole reading, nil if none did.
	Holder *LockHolder
}

// DropForTorchMemory gives up all capabilities that TorchMemory does not need, on all threads of this process and
// permanently: the process controls the data that it reads.
func DropForTorchMemory() error {
	return privilege.DropCapabilities([]privilege.Capability{
		unix.CAP_SYS_PTRACE,                                   // memory and mappings
		unix.CAP_CHECKPOINT_RESTORE, unix.CAP_DAC_READ_SEARCH, // the library's file, also of other users
	}, nil)
}

// OpenTorchMemory finds the caching allocator of a process. An error is a *process.Error if there is no such process,
// a *TorchMemoryError, or that of ctx. Call Close to release files.
func OpenTorchMemory(ctx context.Context, pid int) (*TorchMemory, error) {
	p, err := process.Open(pid)
	if err != nil {
		return nil, err
	}
	m := &TorchMemory{Pid: pid, Comm: p.Comm, process: p, cache: library.NewCache()}
	_, err = runWithin(ctx, openTorchTime, m.open)
	switch {
	case err == nil:
		return m, nil
	case err == ctx.Err():
		return nil, err // open may still run, and need the files
	case !errors.Is(err, ErrBlocked):
		defer m.Close()
	}
	return nil, m.explain(err)
}

// open finds the library, its variable and the allocators.
func (m *TorchMemory) open() (struct{}, error) {
	done := struct{}{}
	var err error
	if m.library, err = m.cache.MappedAllocator(m.process); err != nil {
		if _, mapsErr := m.process.Maps(); mapsErr == nil && errors.Is(err, process.ErrNotPermitted) {
			return done, errLibraryDenied
		}
		return done, err
	}
	if m.library == nil {
		return done, ErrNoTorch
	}
	m.Version = library.ReadTorchVersion(m.process, m.library.Path)
	if m.variable, err = m.findVariable(m.process); err != nil {
		return done, err
	}
	m.reader, err = openAllocator(m.Pid, m.library)
	return done, err
}

// findVariable returns the address of the allocator's variable, 0 if the process has not mapped the library.
func (m *TorchMemory) findVariable(p *process.Process) (uint64, error) {
	maps, err := p.Maps()
	if err != nil {
		return 0, err
	}
	variable, _ := m.library.AllocatorVariable(maps)
	return variable, nil
}

// Devices returns the number of devices. Device n is the n-th that the process sees.
func (m *TorchMemory) Devices() int { return m.reader.Devices() }

// Read reads the blocks of a device. It takes at most some seconds. It returns ctx's error, or a *TorchMemoryError if
// the process has ended or has executed another program. Other reasons are in TorchReading.Refused.
func (m *TorchMemory) Read(ctx context.Context, device int) (TorchReading, error) {
	if m.blocked != nil {
		select {
		case <-m.blocked:
			m.blocked = nil
		default:
			return TorchReading{Device: device, UnixNs: time.Now().UnixNano(), Refused: ErrBlocked}, nil
		}
	}
	returned := make(chan struct{})
	r, err := runWithin(ctx, torchMemoryWait, func() (TorchReading, error) {
		defer close(returned)
		return m.read(ctx, device)
	})
	switch {
	case ctx.Err() != nil:
		m.blocked = returned
		return r, ctx.Err()
	case errors.Is(err, ErrBlocked):
		m.blocked = returned
		return TorchReading{Device: device, UnixNs: time.Now().UnixNano(), Refused: err}, nil
	case err != nil:
		return r, m.explain(err)
	}
	return r, nil
}

// ReadStatistics reads the statistics of a device, without its blocks, after a reading of the blocks was accepted. It
// returns errors of package torchallocator, and ErrBlocked.
func (m *TorchMemory) ReadStatistics(device int) (torchallocator.Statistics, error) {
	if m.blocked != nil {
		return torchallocator.Statistics{}, ErrBlocked
	}
	return m.reader.ReadStatistics(device)
}

// read reads a device, and checks that the process still is the same program.
func (m *TorchMemory) read(ctx context.Context, device int) (TorchReading, error) {
	r := TorchReading{Device: device, UnixNs: time.Now().UnixNano()}
	limited, cancel := context.WithTimeout(ctx, torchMemoryTime)
	defer cancel()
	r.Processor = threadTime(func() { r.State, r.Refused = m.reader.Read(limited, device) })
	if r.State != nil {
		r.UnixNs = clock.New().UnixNs(uint64(r.State.AtNs))
	}
	var busy *torchallocator.BusyError
	if errors.As(r.Refused, &busy) {
		r.State = busy.State
		if busy.Holder != 0 {
			r.Holder = findLockHolder(m.process, busy.Holder)
		}
	}
	if err := m.checkProgram(); err != nil {
		return r, err
	}
	if errors.Is(r.Refused, torchallocator.ErrDenied) || errors.Is(r.Refused, torchallocator.ErrEnded) {
		return r, r.Refused
	}
	return r, nil
}

// threadTime runs do, and returns the processor time that it took.
func threadTime(do func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID)
	do()
	return time.Duration(clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID) - begin)
}

// checkProgram returns an error if the process has ended, if another one has its pid, or if it executed another program.
func (m *TorchMemory) checkProgram() error {
	now, err := process.Open(m.Pid)
	if err != nil {
		return torchallocator.ErrEnded
	}
	defer now.Close()
	if !m.process.Alive() || now.StartNs != m.process.StartNs {
		return torchallocator.ErrEnded
	}
	variable, err := m.findVariable(now)
	switch {
	case errors.Is(err, process.ErrNoProcess):
		return torchallocator.ErrEnded
	case err != nil:
		return err
	case variable != m.variable:
		return ErrReplaced
	}
	return nil
}

// Close releases files.
func (m *TorchMemory) Close() {
	m.process.Close()
	m.cache.Close()
}

// Reasons why there is no PyTorch allocator to read. TorchMemoryError wraps them, or an error of package torchallocator.
var (
	// ErrNoTorch is the reason if the process does not use PyTorch with CUDA.
	ErrNoTorch = errors.New("the process has not loaded PyTorch's libc10_cuda.so")
	// ErrReplaced is the reason if the process executed another program since OpenTorchMemory.
	ErrReplaced = errors.New("the process has executed another program meanwhile")
	// ErrBlocked is the reason if the kernel does not finish a reading.
	ErrBlocked = errors.New("reading its memory or its files does not return: its pages may be on a dead file server")

	errLibraryDenied = errors.New("opening its libc10_cuda.so needs CAP_CHECKPOINT_RESTORE or CAP_DAC_READ_SEARCH")
)

// TorchMemoryError is the reason why the allocator of a process cannot be read.
type TorchMemoryError struct {
	Pid  int
	Comm string
	Err  error // ErrNoTorch, ErrReplaced, an error of package torchallocator, or another one
	// Parent is the process to read instead, if this process is a fork and has only a copy. 0: it is none.
	Parent int
	// Children are descendants whose allocator can be read, if this process has none.
	Children []int
}

// Error names the process and the reason.
func (e *TorchMemoryError) Error() string {
	text := fmt.Sprintf("process %d (%s): %v", e.Pid, e.Comm, e.Err)
	if predicate, ok := strings.CutPrefix(e.Err.Error(), "the process "); ok {
		text = fmt.Sprintf("process %d (%s) %s", e.Pid, e.Comm, predicate)
	}
	switch n := len(e.Children); {
	case n == 1:
		text += fmt.Sprintf(", but its child %d has an allocator", e.Children[0])
	case n > 1:
		text += fmt.Sprintf(", but %d of its children have an allocator", n)
	}
	return text
}

// Unwrap returns the reason.
func (e *TorchMemoryError) Unwrap() error { return e.Err }

// explain returns a *TorchMemoryError for an error of opening or reading.
func (m *TorchMemory) explain(err error) error {
	e := &TorchMemoryError{Pid: m.Pid, Comm: m.Comm, Err: err}
	switch {
	case errors.Is(err, process.ErrNoProcess), errors.Is(err, torchallocator.ErrEnded):
		e.Err = torchallocator.ErrEnded
	case errors.Is(err, torchallocator.ErrDenied), errors.Is(err, process.ErrNotPermitted):
		e.Err = &deniedError{privilege.ExplainMemoryRefusal(m.process)}
	case errors.Is(err, errFork):
		e.Parent = m.process.ParentPid()
	case errors.Is(err, ErrNoTorch), errors.Is(err, torchallocator.ErrUnused):
		e.Children = findTorchChildren(m.Pid)
	}
	return e
}

// deniedError says why the memory of a process may not be read.
type deniedError struct{ why string }

func (e *deniedError) Error() string { return e.why }

func (e *deniedError) Unwrap() error { return torchallocator.ErrDenied }

// findTorchChildren returns the descendants of a process whose allocator can be read.
func findTorchChildren(pid int) (children []int) {
	descendants := process.Descendants([]int{pid})
	for _, child := range descendants[:min(len(descendants), maxTorchPids)] {
		if canReadTorch(child) {
			children = append(children, child)
		}
	}
	return children
}

// canReadTorch reports whether a process has an allocator that can be read.
func canReadTorch(pid int) bool {
	p, err := process.Open(pid)
	if err != nil {
		return false
	}
	m := &TorchMemory{Pid: pid, process: p, cache: library.NewCache()}
	defer m.Close()
	_, err = m.open()
	return err == nil
}

// runWithin runs do and returns its results, or ErrBlocked if it does not return before a limit, or ctx's error. The
// kernel can block a reader of the memory of a process as long as the process wants. do then continues until it returns,
// or until gpurec ends.
func runWithin[T any](ctx context.Context, limit time.Duration, do func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := do()
		done <- result{value, err}
	}()
	var none T
	select {
	case r := <-done:
		return r.value, r.err
	case <-time.After(limit):
		return none, ErrBlocked
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
