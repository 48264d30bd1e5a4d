//go:build linux

package hoststack

import (
	"context"
	"errors"
	"maps"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/hoststack/snapshot"
)

// sampled are the threads of a process that are sampled while they run.
type sampled struct {
	reader *snapshot.Reader // whose program the clocks run
	hz     int
	clocks map[int]snapshot.Clock // by tid
	roots  map[uint64]snapshot.PythonRoot
}

// close ends all clocks.
func (s *sampled) close() {
	for _, clock := range s.clocks {
		clock.Close()
	}
	clear(s.clocks)
}

// Sample is a thread that was found on a processor.
type Sample struct {
	Thread
	Pid  int
	AtNs int64 // CLOCK_MONOTONIC
}

// SetSampled samples the threads of a process hz times in each second in which they run, and no others of the
// process. tids are numbers in the caller's PID namespace.
func (sn *Snapshotter) SetSampled(ctx context.Context, pid int, tids []int, hz int) error {
	s := sn.sampled[pid]
	if s != nil && (s.reader != sn.reader || s.hz != hz) {
		s.close() // the reader was replaced after a timeout
		s = nil
	}
	if s == nil {
		s = &sampled{reader: sn.reader, hz: hz, clocks: make(map[int]snapshot.Clock)}
		sn.sampled[pid] = s
	}
	wanted, isNew := make(map[int]bool), false
	for _, tid := range tids {
		wanted[tid] = true
		_, ok := s.clocks[tid]
		isNew = isNew || !ok
	}
	for tid, clock := range s.clocks {
		if !wanted[tid] {
			clock.Close()
			delete(s.clocks, tid)
		}
	}
	if !isNew {
		return nil
	}
	if err := sn.findRoots(ctx, pid, tids); err != nil {
		return err
	}
	for tid := range wanted {
		if _, ok := s.clocks[tid]; ok {
			continue
		}
		clock, err := s.reader.OpenClock(tid, hz)
		if errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			return err
		}
		s.clocks[tid] = clock
	}
	return nil
}

// findRoots finds where the Python frames of threads begin, so that the kernel copies them with a sample.
func (sn *Snapshotter) findRoots(ctx context.Context, pid int, tids []int) error {
	t, err := sn.open(pid)
	if err != nil {
		return err
	}
	r := sn.newPartial(t, pid)
	var roots map[uint64]snapshot.PythonRoot
	err = sn.runWithDeadline(ctx, t, r, func(context.Context) error {
		if err := r.readFirst(tids); err != nil {
			return err
		}
		if err := r.preparePartial(); err != nil {
			return err
		}
		found := r.python.roots(r.first)
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.abandoned {
			roots = found
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return sn.setRoots(pid, roots)
}

// setRoots sets where the Python frames of a process's threads begin.
func (sn *Snapshotter) setRoots(pid int, roots map[uint64]snapshot.PythonRoot) error {
	s := sn.sampled[pid]
	if s == nil || maps.Equal(s.roots, roots) {
		return nil
	}
	s.roots = roots
	all := make(map[uint64]snapshot.PythonRoot)
	for _, s := range sn.sampled {
		maps.Copy(all, s.roots)
	}
	return sn.reader.SetPython(all)
}

// Samples returns the samples since the last call. lost is the number of samples that were lost so far.
func (sn *Snapshotter) Samples(ctx context.Context) (samples []Sample, lost int64, err error) {
	byPid := make(map[int][]*snapshot.Snapshot)
	n, err := sn.reader.ReadSamples(func(s *snapshot.Snapshot) {
		byPid[int(s.Tgid)] = append(byPid[int(s.Tgid)], s)
	})
	if err != nil {
		return nil, int64(n), err
	}
	for pid, list := range byPid {
		found, err := sn.unwindSamples(ctx, pid, list)
		if err != nil {
			return samples, int64(n), err
		}
		samples = append(samples, found...)
	}
	return samples, int64(n), nil
}

// unwindSamples returns the samples of one process. After a timeout they have no user frames.
func (sn *Snapshotter) unwindSamples(ctx context.Context, pid int, list []*snapshot.Snapshot) ([]Sample, error) {
	t, err := sn.open(pid)
	if err != nil {
		return nil, nil //nolint:nilerr // the process has ended
	}
	r := sn.newPartial(t, pid)
	r.first = make(map[uint32]*snapshot.Snapshot)
	for _, s := range list {
		r.first[s.Tid] = s
	}
	var candidates []*candidate
	err = sn.runWithDeadline(ctx, t, r, func(context.Context) error {
		if err := r.preparePartial(); err != nil {
			return err
		}
		for _, s := range list {
			c := r.unwind(s)
			r.mu.Lock()
			if !r.abandoned {
				candidates = append(candidates, c)
			}
			r.mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var samples []Sample
	for _, c := range candidates {
		samples = append(samples, Sample{Thread: r.thread(c), Pid: pid, AtNs: int64(c.snapshot.SampledAtNs())})
	}
	return samples, nil
}
