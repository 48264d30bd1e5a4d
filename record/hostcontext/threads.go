//go:build linux

package hostcontext

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/hostcontext/switches"
)

// Limits of watched threads.
const (
	maxThreads           = 256 // of all processes
	maxThreadsPerProcess = 64
)

// thread is a watched thread.
type thread struct {
	pid, tid int
	sinceNs  int64   // CLOCK_MONOTONIC
	metrics  metrics // of Run
	hasEnded bool    // of Run
	lookedAt uint64  // of looks: the wait that they know
	stacks   stackCache
}

// id returns pid<<32|tid.
func (t *thread) id() uint64 { return uint64(t.pid)<<32 | uint64(uint32(t.tid)) }

// threadSet has the watched threads. It is safe for concurrent use.
type threadSet struct {
	accounts *switches.Accounts
	note     func(text string)

	mu     sync.Mutex
	byTid  map[int]*thread
	counts map[int]int // threads by pid
	// changes counts the changes of byTid.
	changes int
	// ended are threads that have ended, but may be listed for a while.
	ended map[uint64]bool
}

func newThreadSet(accounts *switches.Accounts, note func(string)) *threadSet {
	return &threadSet{
		accounts: accounts, note: note, byTid: make(map[int]*thread), counts: make(map[int]int),
		ended: make(map[uint64]bool),
	}
}

// all returns all watched threads by tid.
func (s *threadSet) all() []*thread {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*thread, 0, len(s.byTid))
	for _, t := range s.byTid {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *thread) int { return a.tid - b.tid })
	return list
}

// get returns a watched thread, nil if it is not watched.
func (s *threadSet) get(tid int) *thread {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byTid[tid]
}

// countChanges returns a number that differs if a thread was added or removed.
func (s *threadSet) countChanges() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes
}

// has reports whether threads of a process are watched.
func (s *threadSet) has(pid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[pid] > 0
}

// follow watches the threads of a list that are not watched yet. ids are pid<<32|tid.
func (s *threadSet) follow(ids []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := make(map[uint64]bool)
	for _, id := range ids {
		pid, tid := int(id>>32), int(uint32(id))
		if s.byTid[tid] != nil {
			continue
		}
		if s.ended[id] || !s.watch(pid, tid) {
			ended[id] = true
		}
	}
	s.ended = ended
}

// watch begins to watch a thread. It returns false if the thread has ended. The caller holds s.mu.
func (s *threadSet) watch(pid, tid int) bool {
	if pid == os.Getpid() {
		return true
	}
	if len(s.byTid) >= maxThreads {
		s.note(fmt.Sprintf("more than %d threads use CUDA: the others are not watched", maxThreads))
		return true
	}
	if s.counts[pid] >= maxThreadsPerProcess {
		s.note(fmt.Sprintf("more than %d threads of process %d use CUDA: the others are not watched",
			maxThreadsPerProcess, pid))
		return true
	}
	state, ok := readState(pid, tid)
	if !ok {
		return false
	}
	now := clock.ReadNs(unix.CLOCK_MONOTONIC)
	if err := s.accounts.Watch(tid, now, state); err != nil {
		s.note(err.Error())
		return true
	}
	// A thread that is alive now shows its end in the account. Otherwise, another thread may get its tid.
	if _, ok := readState(pid, tid); !ok {
		s.accounts.Forget(tid)
		return false
	}
	s.byTid[tid] = &thread{pid: pid, tid: tid, sinceNs: now}
	s.counts[pid]++
	s.changes++
	return true
}

// forget ends watching a thread.
func (s *threadSet) forget(t *thread) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accounts.Forget(t.tid)
	delete(s.byTid, t.tid)
	s.changes++
	if s.counts[t.pid]--; s.counts[t.pid] == 0 {
		delete(s.counts, t.pid)
	}
	s.ended[t.id()] = true
}

// readState returns the kernel's state of a thread. ok is false if there is no such thread.
func readState(pid, tid int) (state uint32, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid))
	if err != nil {
		return 0, false
	}
	// The name of the thread is in parentheses and may have any character.
	at := bytes.LastIndexByte(text, ')')
	if at < 0 || at+2 >= len(text) {
		return 0, false
	}
	letter := text[at+2]
	return switches.ParseState(letter), letter != 'Z' && letter != 'X'
}
