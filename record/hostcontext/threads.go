//go:build linux

package hostcontext

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/hostcontext/switches"
)

// Limits of watched threads.
const (
	maxThreads           = 256 // of all processes
	maxThreadsPerProcess = 64
	maxChildren          = 64  // first threads of children without CUDA, of all processes
	maxWakers            = 128 // threads that only end waits of watched threads, of all processes
)

// role says why a thread is watched.
type role uint8

const (
	usesCUDA role = iota
	isChild       // the first thread of a child process without CUDA
	isWaker       // it ends waits of watched threads
	roles
)

// thread is a watched thread.
type thread struct {
	pid, tid  int
	role      role          // guarded by threadSet.mu
	sinceNs   int64         // CLOCK_MONOTONIC
	metrics   metricSampler // of Run
	hasEnded  bool          // of Run
	takenWait uint64        // of snapshots: the wait that they know
	stacks    stackCache
	// wantsStack says that a wait of the thread had no stack.
	wantsStack atomic.Bool
}

// id returns pid<<32|tid.
func (t *thread) id() uint64 { return uint64(t.pid)<<32 | uint64(uint32(t.tid)) }

// threadSet has the watched threads. It is safe for concurrent use.
type threadSet struct {
	accounts *switches.Accounts
	note     func(text string)

	mu    sync.Mutex
	byTid map[int]*thread
	// counts are the threads that use CUDA, by pid. byRole counts all threads.
	counts map[int]int
	byRole [roles]int
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
	for _, t := range s.byTid {
		if t.pid == pid {
			return true
		}
	}
	return false
}

// follow watches the threads of a list that are not watched yet. ids are pid<<32|tid.
func (s *threadSet) follow(ids []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := make(map[uint64]bool)
	for _, id := range ids {
		pid, tid := int(id>>32), int(uint32(id))
		if t := s.byTid[tid]; t != nil && t.role == usesCUDA {
			continue
		}
		if s.ended[id] || !s.watchCUDA(pid, tid) {
			ended[id] = true
		}
	}
	s.ended = ended
}

// followChildren watches the first threads of processes without CUDA whose parents use CUDA. processes are the
// start times of all recorded processes, by pid.
func (s *threadSet) followChildren(processes map[int]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid := range processes {
		if s.counts[pid] > 0 || s.byTid[pid] != nil {
			continue
		}
		if parent, ok := readParent(pid); !ok || s.counts[parent] == 0 {
			continue
		}
		if s.byRole[isChild] >= maxChildren {
			s.note(fmt.Sprintf("more than %d child processes do not use CUDA: the others are not watched", maxChildren))
			return
		}
		s.watch(&thread{pid: pid, tid: pid, role: isChild})
	}
}

// watchWaker begins to watch a thread that ends waits of watched threads, unless it is watched. It returns false if
// there are too many of them.
func (s *threadSet) watchWaker(pid, tid int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byTid[tid] != nil || pid == os.Getpid() {
		return true
	}
	if s.byRole[isWaker] >= maxWakers {
		return false
	}
	s.watch(&thread{pid: pid, tid: tid, role: isWaker})
	return true
}

// watchCUDA begins to watch a thread that uses CUDA. It returns false if the thread has ended. The caller holds
// s.mu.
func (s *threadSet) watchCUDA(pid, tid int) bool {
	if pid == os.Getpid() {
		return true
	}
	if s.byRole[usesCUDA] >= maxThreads {
		s.note(fmt.Sprintf("more than %d threads use CUDA: the others are not watched", maxThreads))
		return true
	}
	if s.counts[pid] >= maxThreadsPerProcess {
		s.note(fmt.Sprintf("more than %d threads of process %d use CUDA: the others are not watched",
			maxThreadsPerProcess, pid))
		return true
	}
	if t := s.byTid[tid]; t != nil { // it was a waker or a child before
		s.byRole[t.role]--
		t.role = usesCUDA
		s.byRole[usesCUDA]++
	} else if !s.watch(&thread{pid: pid, tid: tid}) {
		return false
	}
	s.counts[pid]++
	return true
}

// watch begins to watch a thread. It returns false if the thread has ended. The caller holds s.mu.
func (s *threadSet) watch(t *thread) bool {
	state, ok := readState(t.pid, t.tid)
	if !ok {
		return false
	}
	t.sinceNs = clock.ReadNs(unix.CLOCK_MONOTONIC)
	if err := s.accounts.Watch(t.tid, t.sinceNs, state); err != nil {
		s.note(err.Error())
		return false
	}
	// A thread that is alive now shows its end in the account. Otherwise, another thread may get its tid.
	if _, ok := readState(t.pid, t.tid); !ok {
		s.accounts.Forget(t.tid)
		return false
	}
	s.byTid[t.tid] = t
	s.byRole[t.role]++
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
	s.byRole[t.role]--
	if t.role == usesCUDA {
		if s.counts[t.pid]--; s.counts[t.pid] == 0 {
			delete(s.counts, t.pid)
		}
	}
	s.ended[t.id()] = true
}

// readState returns the kernel's state of a thread. ok is false if there is no such thread.
func readState(pid, tid int) (state uint32, ok bool) {
	fields := readStat(pid, tid)
	if len(fields) == 0 {
		return 0, false
	}
	letter := fields[0][0]
	return switches.ParseState(letter), letter != 'Z' && letter != 'X'
}

// readParent returns the parent of a process. ok is false if there is no such process.
func readParent(pid int) (parent int, ok bool) {
	fields := readStat(pid, pid)
	if len(fields) < 2 {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}

// readStat returns the fields of a thread's stat file after its name, from the state on; nil if there is
// no such thread.
func readStat(pid, tid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", pid, tid))
	if err != nil {
		return nil
	}
	// The name is in parentheses and may have any character.
	at := bytes.LastIndexByte(text, ')')
	return strings.Fields(string(text[at+1:]))
}
