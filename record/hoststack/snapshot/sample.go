//go:build linux

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/bpf"
)

// PythonRoot says where the Python frames of a thread begin.
type PythonRoot = bpf.HostStackHostPython

// samplesPerSecond is the frequency of the CPU clock of a sampled thread. It ends with the first
// sample.
const samplesPerSecond = 1000

// sampler receives samples of running threads.
type sampler struct{ reader *ringbuf.Reader }

func (s *sampler) close() { s.reader.Close() }

// drain drops samples that came after the deadline of an earlier call.
func (s *sampler) drain() {
	s.reader.SetDeadline(time.Unix(1, 0))
	for {
		if _, err := s.reader.Read(); err != nil {
			return
		}
	}
}

// SetPython sets where the Python frames of threads begin, by thread pointer. Sample copies them
// together with the stack.
func (r *Reader) SetPython(roots map[uint64]PythonRoot) error {
	var old []uint64
	var key uint64
	var root PythonRoot
	for all := r.objects.Pythons.Iterate(); all.Next(&key, &root); {
		if _, ok := roots[key]; !ok {
			old = append(old, key)
		}
	}
	for _, key := range old {
		_ = r.objects.Pythons.Delete(key) // it is there, or was never
	}
	for key, root := range roots {
		if err := r.objects.Pythons.Put(key, root); err != nil && !errors.Is(err, unix.E2BIG) {
			return fmt.Errorf("set Python threads: %w", err)
		}
	}
	return nil
}

// Sample interrupts threads that run, up to the deadline of ctx, and calls visit for the first
// sample of each. A thread that does not run is not sampled. Snapshot.Stack and Snapshot.Python are
// valid until visit returns. tids are numbers in the caller's PID namespace.
func (r *Reader) Sample(ctx context.Context, tids []int, visit func(*Snapshot)) error {
	if err := r.openSampler(); err != nil {
		return err
	}
	r.samples.drain()
	var events []int
	defer func() {
		for _, fd := range events {
			unix.Close(fd)
		}
	}()
	for _, tid := range tids {
		fd, err := openClock(tid, samplesPerSecond, r.objects.SampleRunning)
		switch {
		case errors.Is(err, unix.ESRCH):
			continue // the thread has ended
		case err != nil:
			return fmt.Errorf("sample thread %d: %w", tid, err)
		}
		events = append(events, fd)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(time.Second)
	}
	r.samples.reader.SetDeadline(deadline)
	for left := len(events); left > 0; {
		record, err := r.samples.reader.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read samples: %w", err)
		}
		if s, ok := parseRunning(record.RawSample); ok {
			visit(s)
			left--
		}
	}
	return nil
}

// Clock samples a thread while it runs, until Close.
type Clock struct{ fd int }

// Close ends the samples.
func (c Clock) Close() { unix.Close(c.fd) }

// OpenClock begins to sample a thread hz times in each second in which it runs. ReadSamples has the
// samples. tid is its number in the caller's PID namespace. The error is unix.ESRCH if it has ended.
func (r *Reader) OpenClock(tid, hz int) (Clock, error) {
	fd, err := openClock(tid, hz, r.objects.SampleAlways)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return Clock{}, fmt.Errorf("sample thread %d: %w", tid, err)
	}
	return Clock{fd}, err
}

// ReadSamples calls visit for each sample of a Clock since the last call, and returns the number of
// samples that were lost so far. It does not wait. Do not call Sample on the same reader.
func (r *Reader) ReadSamples(visit func(*Snapshot)) (lost uint64, err error) {
	if err := r.openSampler(); err != nil {
		return 0, err
	}
	r.samples.reader.SetDeadline(time.Unix(1, 0))
	for {
		record, err := r.samples.reader.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("read samples: %w", err)
		}
		if s, ok := parseRunning(record.RawSample); ok {
			visit(s)
		}
	}
	if err := r.objects.LostSamples.Get(&lost); err != nil {
		return 0, fmt.Errorf("read lost samples: %w", err)
	}
	return lost, nil
}

// SampledAtNs returns the time of a sample of ReadSamples, CLOCK_MONOTONIC.
func (s *Snapshot) SampledAtNs() uint64 { return s.OffNs }

// openSampler opens the ring buffer of samples.
func (r *Reader) openSampler() error {
	if r.samples != nil {
		return nil
	}
	reader, err := ringbuf.NewReader(r.objects.Running)
	if err != nil {
		return fmt.Errorf("read samples: %w", err)
	}
	r.samples = &sampler{reader}
	return nil
}

// openClock starts the CPU clock of a thread.
func openClock(tid, hz int, program *ebpf.Program) (int, error) {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: uint64(hz),
		Bits: unix.PerfBitFreq | unix.PerfBitDisabled,
	}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, program.FD())
	if err == nil {
		err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0)
	}
	if err != nil {
		unix.Close(fd)
		return 0, err
	}
	return fd, nil
}
