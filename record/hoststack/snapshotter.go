//go:build linux

package hoststack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/hoststack/cpython"
	"github.com/gpurec/gpurec/record/hoststack/snapshot"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/process"
)

// DefaultDeadline is the longest time for reads of a process's memory in one snapshot, if the context of the
// snapshot has no deadline.
const DefaultDeadline = 10 * time.Second

// Reasons why Open fails.
var (
	// ErrNoBTF is the reason if the kernel has no type information.
	ErrNoBTF = snapshot.ErrNoBTF
	// ErrTooOld is the reason if the kernel lacks a needed function.
	ErrTooOld = snapshot.ErrTooOld
)

// Snapshotter takes snapshots of processes. It keeps unwind tables and symbols from snapshot to snapshot. Its methods must
// not run concurrently. Close releases it.
type Snapshotter struct {
	reader  *snapshot.Reader
	targets map[int]*target
	kernel  map[uint64]format.Frame // kernel functions by address
	files   *Files
	// ownsFiles says that Close closes files.
	ownsFiles bool
	sampled   map[int]*sampled // by pid
	cpuNs     atomic.Int64
}

// target is a process with its code.
type target struct {
	process *process.Process
	space   *space
	// facts are read in the first snapshot. Only one snapshot of a process runs at a time.
	facts       *process.Facts
	descriptors descriptors // for the caller of Take only
	// interpreter is the Python of the process at checkedAt, nil for none. Only partial snapshots keep it.
	interpreter *cpython.Interpreter
	checkedAt   time.Time
	// stuck is not nil while a snapshot waits for the process beyond its deadline.
	stuck chan struct{}
}

// Open loads the BPF programs. Snapshots use files, which may be nil: the Snapshotter then has its own. Errors are those
// of snapshot.Open.
func Open(files *Files) (*Snapshotter, error) {
	reader, err := snapshot.Open()
	if err != nil {
		return nil, err
	}
	sn := &Snapshotter{
		reader: reader, targets: make(map[int]*target), kernel: make(map[uint64]format.Frame), files: files,
		sampled: make(map[int]*sampled),
	}
	if files == nil {
		sn.files, sn.ownsFiles = NewFiles(nil), true
	}
	return sn, nil
}

// DropPrivileges gives up all capabilities that snapshots do not need, on all threads of this process and
// permanently: the processes control the data that snapshots read.
func DropPrivileges() error {
	return privilege.DropCapabilities([]privilege.Capability{
		unix.CAP_BPF, unix.CAP_PERFMON, // iterators, CPU clocks, and new programs after a timeout
		unix.CAP_SYS_PTRACE,                                   // memory and mappings
		unix.CAP_CHECKPOINT_RESTORE, unix.CAP_DAC_READ_SEARCH, // mapped files, also of other users
	}, nil)
}

// Close releases programs and files.
func (sn *Snapshotter) Close() {
	for _, s := range sn.sampled {
		s.close()
	}
	sn.reader.Close()
	for _, t := range sn.targets {
		t.process.Close()
	}
	if sn.ownsFiles {
		sn.files.Close()
	}
}

// Take takes the stacks of all threads of a process. It reads memory of the process until the
// deadline of ctx. The error is a *process.Error if there is no such process.
func (sn *Snapshotter) Take(ctx context.Context, pid int) (*ProcessSnapshot, error) {
	begin := time.Now()
	t, err := sn.open(pid)
	if err != nil {
		return nil, err
	}
	if t.stuck == nil {
		t.process.RereadComm()
	}
	result := &ProcessSnapshot{Pid: pid, Name: t.process.Comm, Taken: begin}
	r := &rounds{snapshotter: sn, target: t, pid: pid, result: result, found: make(map[uint32]*candidate)}
	if err := sn.reader.Reset(); err != nil {
		return nil, err
	}
	if r.before, err = r.states(); err != nil {
		return nil, err
	}
	if len(r.before) == 0 {
		return nil, &process.Error{Pid: pid, Comm: t.process.Comm, Err: process.ErrNoProcess}
	}
	r.first = r.before
	if err := sn.runWithDeadline(ctx, t, r, r.run); err != nil {
		return nil, err
	}
	r.finish()
	result.Took = time.Since(begin)
	return result, nil
}

// open returns the target of a pid. A reused pid is another process.
func (sn *Snapshotter) open(pid int) (*target, error) {
	if t := sn.targets[pid]; t != nil {
		if t.process.Alive() {
			return t, nil
		}
		t.process.Close()
		delete(sn.targets, pid)
	}
	p, err := process.Open(pid)
	if err != nil {
		return nil, err
	}
	t := &target{process: p, space: newSpace(p, sn.files), descriptors: descriptors{process: p}}
	sn.targets[pid] = t
	return t, nil
}

// runWithDeadline runs the rounds in a goroutine, because reads of the process can block.
// After the deadline, that goroutine keeps the reader until it ends, and the Snapshotter gets another one.
func (sn *Snapshotter) runWithDeadline(
	ctx context.Context, t *target, r *rounds, run func(context.Context) error,
) error {
	if t.stuck != nil {
		select {
		case <-t.stuck:
			t.stuck = nil
		default:
			r.timedOut = true
			return nil
		}
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultDeadline)
		defer cancel()
	}
	done, ended := make(chan error, 1), make(chan struct{})
	r.reader = sn.reader
	go func() {
		defer close(ended)
		runtime.LockOSThread() // to read its CPU time
		defer runtime.UnlockOSThread()
		before := clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID)
		err := run(ctx)
		sn.cpuNs.Add(clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID) - before)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(100 * time.Millisecond): // a round that does not wait ends at the deadline
	}
	r.abandon()
	t.stuck = ended
	reader, err := snapshot.Open()
	if err != nil {
		return fmt.Errorf("a read of the process timed out: %w", err)
	}
	sn.reader = reader
	go func() {
		<-ended
		r.reader.Close()
	}()
	return nil
}

// nameKernelFrames returns the frames of a kernel stack.
func (sn *Snapshotter) nameKernelFrames(s *snapshot.Snapshot) []format.Frame {
	var frames []format.Frame
	for _, addr := range s.KernelStack() {
		frame, ok := sn.kernel[addr]
		if !ok {
			frame = format.Frame{Type: FrameKernel, Addr: int64(addr), Module: "kernel"}
			if function, module, err := sn.reader.KernelSymbol(addr); err == nil {
				frame.Func, frame.SystemName = function, function
				if module != "" {
					frame.Module = module
				}
			}
			sn.kernel[addr] = frame
		}
		frames = append(frames, frame)
	}
	return frames
}

// sortThreads sorts threads by thread ID. The first thread of the process comes first.
func sortThreads(threads []Thread, pid int) {
	slices.SortFunc(threads, func(a, b Thread) int {
		if (a.Tid == pid) != (b.Tid == pid) {
			if a.Tid == pid {
				return -1
			}
			return 1
		}
		return a.Tid - b.Tid
	})
}

// describeError returns the cause of an error of /proc in few words.
func describeError(err error) string {
	if errors.Is(err, os.ErrPermission) || errors.Is(err, process.ErrNotPermitted) {
		return reasonDenied
	}
	return err.Error()
}
