//go:build linux

package target

import (
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/host"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/unwind"
)

// Options select the processes to record and the libraries to probe.
type Options struct {
	// Pids are the requested processes. CommandPid is a program started by gpurec; 0: none.
	Pids       []int
	CommandPid int
	// Children also records children of these processes. All records every process.
	Children, All bool
	// Comm and Cgroup restrict All, as in record.Options. Comm has at most 15 bytes.
	Comm, Cgroup string
	// WaitForLibrary accepts processes that have not mapped libcuda yet.
	WaitForLibrary bool
	Allocator      library.AllocatorMode
	// Warn receives a sentence about data that will be missing. Any goroutine may call it.
	Warn func(text string)
	// OnEarlierAllocator is called for a process whose caching allocator is recorded, and may have
	// blocks from before the recording. It must not block. It may be nil.
	OnEarlierAllocator func(pid int)
	// OnAllocator is called for each process that maps the library of a caching allocator, also if its events are not
	// recorded. It must not block. It may be nil.
	OnAllocator func(pid int)
}

// Set holds the target processes and the libraries that are probed for them.
type Set struct {
	opt Options

	mu      sync.Mutex
	members map[int]*process.Process
	oldest  *process.Process // the first process: the default file name contains its name

	mapped   *pidSet // processes with new executable mappings
	cache    *library.Cache
	probes   *probe.Probes
	unwinder *unwind.Unwinder // nil: stacks are not unwound

	send  func(rows []format.Row) // nil before Begin
	clock clock.Clock
	gpus  []host.GPU

	// followErr is the error that keeps the recorder from following children, nil without one.
	followErr error
	// mappedByOthers caches the results of isMappedByOthers, by library.
	mappedByOthers map[process.FileID]bool
	libraries      []*library.Library // probed for at least one target
	// unprobed has the processes with a warning that calls are missing. notes are the rows
	// to write when the recording begins.
	unprobed map[int]bool
	notes    []format.Row
	// withoutEngine has the processes with a note of noteMissingEngine.
	withoutEngine map[int]bool
	allocators    allocatorStates
	late          lateProcesses
	beganNs       int64              // begin of the recording on CLOCK_BOOTTIME, as process.Process.StartNs
	isWatched     func(pid int) bool // nil: no process is held
}

// Open opens the requested processes and their present children. It returns a *process.Error or a
// *privilege.Error.
func Open(opt Options) (*Set, error) {
	s := &Set{
		opt: opt, members: make(map[int]*process.Process), mapped: newPidSet(), cache: library.NewCache(),
		mappedByOthers: make(map[process.FileID]bool), unprobed: make(map[int]bool), allocators: newAllocatorStates(),
		late: newLateProcesses(), withoutEngine: make(map[int]bool),
	}
	if err := s.openRequested(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// requestedPids returns the processes that the options name.
func (s *Set) requestedPids() []int {
	pids := slices.Clone(s.opt.Pids)
	if s.opt.CommandPid != 0 {
		pids = append(pids, s.opt.CommandPid)
	}
	return pids
}

func (s *Set) openRequested() error {
	pids := s.requestedPids()
	for _, pid := range pids {
		p, err := process.Open(pid)
		if err != nil {
			return err
		}
		s.add(p)
		if !p.Alive() {
			return &process.Error{Pid: pid, Comm: p.Comm, Err: process.ErrNoProcess}
		}
		if err := privilege.CheckProcessAccess(p); err != nil {
			return err
		}
	}
	if s.opt.Comm != "" || s.opt.Cgroup != "" {
		s.openMatchingProcesses()
	}
	if !s.opt.Children {
		return nil
	}
	for _, pid := range process.Descendants(pids) {
		if p, err := process.Open(pid); err == nil && p.Alive() { // otherwise the process has exited
			s.add(p)
		}
	}
	return nil
}

// openMatchingProcesses adds the running processes that Comm and Cgroup select. The BPF programs
// add later processes.
func (s *Set) openMatchingProcesses() {
	for _, pid := range process.AllPids() {
		p, err := process.Open(pid)
		if err != nil {
			continue // the process has exited
		}
		named := s.opt.Comm == "" || p.Comm == s.opt.Comm
		if pid == os.Getpid() || !named || s.opt.Cgroup != "" && !p.IsInCgroup(s.opt.Cgroup) || !s.add(p) {
			p.Close()
		}
	}
}

// add adds a target process. It returns false if the set has the pid already.
func (s *Set) add(p *process.Process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.members[p.Pid]; ok {
		return false
	}
	s.members[p.Pid] = p
	if s.oldest == nil {
		s.oldest = p
	}
	return true
}

// Get returns a target process, or nil. Safe for concurrent use.
func (s *Set) Get(pid int) *process.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[pid]
}

func (s *Set) remove(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.members[pid]; p != nil {
		p.Close()
		delete(s.members, pid)
	}
}

// All returns the target processes in ascending order of pid. Safe for concurrent use.
func (s *Set) All() []*process.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	members := make([]*process.Process, 0, len(s.members))
	for _, pid := range slices.Sorted(maps.Keys(s.members)) {
		members = append(members, s.members[pid])
	}
	return members
}

// Oldest returns the process that was added first, or nil. Safe for concurrent use.
func (s *Set) Oldest() *process.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.oldest
}

// Close closes the processes and the open files of their libraries.
func (s *Set) Close() {
	for _, p := range s.All() {
		s.remove(p.Pid)
	}
	s.cache.Close()
}
