//go:build linux

package hoststack

import (
	"context"
	"errors"
	"time"

	"github.com/gpurec/gpurec/record/hoststack/snapshot"
	"github.com/gpurec/gpurec/record/process"
)

const (
	// mappingsAge is the age at which a partial snapshot reads mappings again.
	mappingsAge = 10 * time.Second
	// newMappingsAge is the age at which it does so if a stack has code outside of known mappings.
	newMappingsAge = time.Second
)

// TakePartial takes the stacks of some threads of a process that wait, with one try for each: threads that run
// or that have moved meanwhile are left out. It is Take for frequent use: mappings and interpreter are up to ten
// seconds old. tids are numbers in the caller's PID namespace. The error is a *process.Error if there is
// no such process.
func (sn *Snapshotter) TakePartial(ctx context.Context, pid int, tids []int) ([]Thread, error) {
	t, err := sn.open(pid)
	if err != nil {
		return nil, err
	}
	r := sn.newPartial(t, pid)
	if err := sn.runWithDeadline(
		ctx,
		t,
		r,
		func(ctx context.Context) error { return r.takeThreads(ctx, tids) },
	); err != nil {
		return nil, err
	}
	return r.finishPartial(), nil
}

// newPartial returns the rounds of a partial snapshot.
func (sn *Snapshotter) newPartial(t *target, pid int) *rounds {
	return &rounds{snapshotter: sn, target: t, pid: pid, found: make(map[uint32]*candidate), round: 1, isPartial: true}
}

// finishPartial returns the threads with a stack. After a timeout it returns none.
func (r *rounds) finishPartial() []Thread {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timedOut || len(r.found) == 0 {
		return nil
	}
	var threads []Thread
	for _, c := range r.found {
		threads = append(threads, r.thread(c))
	}
	r.findWaits(threads)
	return threads
}

// CPUNs returns the CPU time of all snapshots so far, ns. Safe for concurrent use.
func (sn *Snapshotter) CPUNs() int64 { return sn.cpuNs.Load() }

// Forget releases what is kept for a process.
func (sn *Snapshotter) Forget(pid int) {
	if s := sn.sampled[pid]; s != nil {
		s.close()
		delete(sn.sampled, pid)
	}
	if t := sn.targets[pid]; t != nil && t.stuck == nil {
		t.process.Close()
		delete(sn.targets, pid)
		sn.reader.ForgetLinks()
	}
}

// readFirst reads the states of threads before the partial snapshot.
func (r *rounds) readFirst(tids []int) error {
	r.first = make(map[uint32]*snapshot.Snapshot)
	for _, tid := range tids {
		err := r.reader.OneState(r.pid, tid, func(s *snapshot.Snapshot) { r.first[s.Tid] = s })
		if err != nil {
			return err
		}
	}
	return nil
}

// takeThreads takes the stacks of some threads.
func (r *rounds) takeThreads(ctx context.Context, tids []int) error {
	if err := r.readFirst(tids); err != nil || len(r.first) == 0 {
		return err
	}
	if err := r.preparePartial(); err != nil {
		return err
	}
	for _, tid := range tids {
		if ctx.Err() != nil {
			return nil
		}
		if err := r.takeThread(tid); err != nil {
			return err
		}
	}
	return nil
}

// preparePartial makes mappings and Python threads current.
func (r *rounds) preparePartial() error {
	t := r.target
	age := time.Since(t.checkedAt)
	if age > mappingsAge || t.space.hasUnknown && age > newMappingsAge {
		if err := t.space.refresh(); err != nil {
			if errors.Is(err, process.ErrNoProcess) {
				return err
			}
			return nil // only kernel frames
		}
		r.findInterpreter()
		t.interpreter, t.checkedAt, t.space.hasUnknown = r.interpreter, time.Now(), false
	}
	r.interpreter = t.interpreter
	t.space.reset()
	r.readPythonThreads()
	return nil
}

// takeThread takes the stack of one thread. The stack counts if the thread did not run until all was read.
func (r *rounds) takeThread(tid int) error {
	var c *candidate
	if err := r.reader.OneStack(r.pid, tid, func(s *snapshot.Snapshot) { c = r.unwind(s) }); err != nil || c == nil {
		return err
	}
	isSame := false
	err := r.reader.OneState(r.pid, tid, func(s *snapshot.Snapshot) { isSame = c.snapshot.IsSameMoment(s) })
	if err == nil && isSame {
		r.publish(c)
	}
	return err
}
