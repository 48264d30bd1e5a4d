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

// Options choose the processes to record, and what is done with their libraries.
type Options struct {
	// Pids are the processes that were asked for, CommandPid is a held program; 0: none.
	Pids       []int
	CommandPid int
	// Children records their children, too, All every process of the machine.
	Children, All bool
	// Comm and Cgroup narrow All, as in record.Options. Comm has 15 bytes at most.
	Comm, Cgroup string
	// WaitForLibrary waits for processes that have not loaded libcuda yet.
	WaitForLibrary bool
	Allocator      library.AllocatorMode
	// Warn is called by any goroutine with what will be missing from the recording.
	Warn func(text string)
}

// Set is the recorded processes with the libraries that are probed for them.
type Set struct {
	opt Options

	mu      sync.Mutex
	members map[int]*process.Process
	oldest  *process.Process // names the recording

	mapped   *pidSet // processes with new executable mappings
	cache    *library.Cache
	probes   *probe.Probes
	unwinder *unwind.Unwinder // nil: stacks are not unwound

	send  func(rows []format.Row) // nil before Begin
	clock clock.Clock
	gpus  []host.GPU

	// followErr says why children are not followed.
	followErr error
	// mappedByOthers remembers for libraries whether processes use them that are not recorded.
	mappedByOthers map[process.FileID]bool
	libraries      []*library.Library // probed for somebody
	// unprobed are the processes whose calls are missing for a reason that was told, and notes
	// what is to be written when the recording begins.
	unprobed   map[int]bool
	notes      []format.Row
	allocators allocators
}

// Open looks up the processes that are asked for, and their children of now. An error is a
// *process.Error or a *privilege.Error.
func Open(opt Options) (*Set, error) {
	s := &Set{
		opt: opt, members: make(map[int]*process.Process), mapped: newPidSet(), cache: library.NewCache(),
		mappedByOthers: make(map[process.FileID]bool), unprobed: make(map[int]bool), allocators: newAllocators(),
	}
	if err := s.open(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// asked are the processes that the options name.
func (s *Set) asked() []int {
	pids := slices.Clone(s.opt.Pids)
	if s.opt.CommandPid != 0 {
		pids = append(pids, s.opt.CommandPid)
	}
	return pids
}

func (s *Set) open() error {
	pids := s.asked()
	for _, pid := range pids {
		p, err := process.Open(pid)
		if err != nil {
			return err
		}
		s.add(p)
		if !p.Alive() {
			return &process.Error{Pid: pid, Comm: p.Comm, Err: process.ErrNoProcess}
		}
		if err := privilege.CheckAccess(p); err != nil {
			return err
		}
	}
	if s.opt.Comm != "" || s.opt.Cgroup != "" {
		s.openMatching()
	}
	if !s.opt.Children {
		return nil
	}
	for _, pid := range process.Descendants(pids) {
		if p, err := process.Open(pid); err == nil && p.Alive() { // or it has ended since
			s.add(p)
		}
	}
	return nil
}

// openMatching adds the processes of now that Comm and Cgroup name. The probes let in those to come.
func (s *Set) openMatching() {
	for _, pid := range process.AllPids() {
		p, err := process.Open(pid)
		if err != nil {
			continue // ended since
		}
		named := s.opt.Comm == "" || p.Comm == s.opt.Comm
		if pid == os.Getpid() || !named || s.opt.Cgroup != "" && !p.IsIn(s.opt.Cgroup) || !s.add(p) {
			p.Close()
		}
	}
}

// add takes a process in, unless its number is there already.
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

// Get returns a recorded process, nil if there is none of this number.
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

// All returns the processes in order of their numbers.
func (s *Set) All() []*process.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	members := make([]*process.Process, 0, len(s.members))
	for _, pid := range slices.Sorted(maps.Keys(s.members)) {
		members = append(members, s.members[pid])
	}
	return members
}

// Oldest returns the process that was added first, nil if there was none.
func (s *Set) Oldest() *process.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.oldest
}

// Close closes the processes and the files of their libraries.
func (s *Set) Close() {
	for _, p := range s.All() {
		s.remove(p.Pid)
	}
	s.cache.Close()
}
