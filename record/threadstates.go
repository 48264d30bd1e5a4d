//go:build linux

package record

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/hoststack"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/threadstate"
	"github.com/gpurec/gpurec/symbolize"
)

// startThreadStates starts to take snapshots of silent processes. The stacks of all threads need --stacks.
func (s *Session) startThreadStates() {
	if s.opt.Stacks == probe.StacksOff || s.opt.NoThreadStates {
		return
	}
	var usedCUDA []int
	for _, p := range s.targets.All() {
		if hasMappedDriver(p) {
			usedCUDA = append(usedCUDA, p.Pid)
		}
	}
	s.threadStates = threadstate.New(threadstate.Options{
		Sink: s.pipeline.writer, Clock: s.clock, UsedCUDA: usedCUDA,
		Processes: s.targetPids, ReadHits: s.readProcessHits, OnSilence: s.onSilence, Files: s.stackFiles,
	})
	s.helpers.Go(func() { s.threadStates.Run(s.stop) })
}

// onSilence is called after the stacks of silent processes have been taken.
func (s *Session) onSilence(pids []int) {
	s.census.take(pids)
	if s.reviews != nil {
		s.reviews.signs.AddSnapshot()
	}
}

// ErrNoThreadStates is the error of ThreadStacks if the recording has no complete stacks.
var ErrNoThreadStates = errors.New("stacks of threads need complete stacks (--stacks auto or full)")

// ThreadStacks returns the stacks of all threads of a process now. Its errors are ErrNoThreadStates, and those of reading
// the process. Safe for concurrent use until Finish.
func (s *Session) ThreadStacks(ctx context.Context, pid int) (*hoststack.ProcessSnapshot, error) {
	if s.threadStates == nil {
		return nil, ErrNoThreadStates
	}
	return s.threadStates.Look(ctx, pid)
}

// hasMappedDriver reports whether a process has libcuda in its memory.
func hasMappedDriver(p *process.Process) bool {
	maps, err := p.Maps()
	return err == nil && slices.ContainsFunc(maps, func(m symbolize.Mapping) bool {
		return strings.HasPrefix(filepath.Base(m.Path), "libcuda.so")
	})
}

// targetPids returns the target processes that are alive.
func (s *Session) targetPids() (pids []int) {
	for _, p := range s.targets.All() {
		if p.Alive() {
			pids = append(pids, p.Pid)
		}
	}
	return pids
}

// readProcessHits returns the probe hits of each target process.
func (s *Session) readProcessHits() map[int]uint64 {
	threads := make(map[uint64]probe.ThreadHits)
	s.probes.ReadThreadHits(threads)
	hits := make(map[int]uint64)
	for id, h := range threads {
		hits[int(id>>32)] += uint64(h.Launches) + uint64(h.Allocator) + uint64(h.Others)
	}
	return hits
}

// recordLastThreadStates takes snapshots of all processes, while the probes are in place: the kernel's list of return
// probes then gives the true return addresses. Then it reads their communicators. Each takes at most two seconds. It
// follows processes meanwhile.
func (s *Session) recordLastThreadStates() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if s.threadStates != nil {
			s.threadStates.TakeAtEnd()
		}
		s.census.take(s.targetPids())
	}()
	for {
		select {
		case <-done:
			return
		case e := <-s.pipeline.processEvents:
			s.onProcessEvent(e)
		case r := <-s.holds.requests():
			s.onHold(r)
		}
	}
}

// threadStateNotes says why snapshots are missing.
func (s *Session) threadStateNotes(now int64) []format.Row {
	if s.threadStates == nil || s.threadStates.Err() == nil {
		return nil
	}
	return []format.Row{{
		Kind: format.KindNote, Name: "thread_states", StartNs: now, Device: -1,
		Message: fmt.Sprintf("the stacks of all threads are not recorded: %v", s.threadStates.Err()),
	}}
}
