//go:build linux

package target

import (
	"encoding/json"
	"maps"
	"sync"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/process"
)

// lateProcesses describes the processes whose first calls are missing. Safe for concurrent use.
type lateProcesses struct {
	mu         sync.Mutex
	notes      int
	unknown    map[lateLibrary]bool // the number of missing calls is unknown
	completeNs int64                // Unix ns
	missed     map[string]int64     // by class of call
}

// lateLibrary is a library that a process called before it was probed.
type lateLibrary struct {
	pid  int
	path string // "": all probed libraries
}

func newLateProcesses() lateProcesses {
	return lateProcesses{unknown: make(map[lateLibrary]bool), missed: make(map[string]int64)}
}

// meta returns the description of all late processes, nil if there are none.
func (l *lateProcesses) meta() *format.Late {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.completeNs == 0 {
		return nil
	}
	pids := make(map[int]bool)
	for late := range l.unknown {
		pids[late.pid] = true
	}
	if len(pids) == 0 && len(l.missed) == 0 {
		return nil
	}
	return &format.Late{Processes: int64(len(pids)), CompleteNs: l.completeNs, Missed: maps.Clone(l.missed)}
}

// Late describes the processes whose first calls are missing, nil if there are none. Safe for
// concurrent use.
func (s *Set) Late() *format.Late { return s.late.meta() }

// UseHolds sets the function that reports whether a process has run no code of a library before the
// process had waited for its probes.
func (s *Set) UseHolds(isWatched func(pid int) bool) { s.isWatched = isWatched }

// noteLateAttach notes that a process had mapped a library before it was probed. A process that waits
// for probes has not called the library yet, whether its wait begins before or after this.
func (s *Set) noteLateAttach(lib *library.Library, p *process.Process) {
	if lib.Kind == library.KindEngine || s.isWatched != nil && s.isWatched(p.Pid) {
		return // calls of the engine have no rows
	}
	s.noteLate(lateLibrary{p.Pid, lib.Path}, "the library was mapped before it was probed", format.UnknownMissed)
}

// NoteUncovered records that a thread of a held process resumed before its probes and unwind tables were
// ready.
func (s *Set) NoteUncovered(pid int) {
	if p := s.Get(pid); p != nil && p.Alive() {
		s.noteLate(lateLibrary{pid, ""}, "the process was not held long enough (--hold-max)", format.UnknownMissed)
	}
}

// maxLateNotes limits the number of notes about late processes: a program can start any number.
const maxLateNotes = 1000

// noteLate notes that calls of a process before now are missing. missed is their number, or
// format.UnknownMissed.
func (s *Set) noteLate(late lateLibrary, why string, missed int64) {
	now := s.clock.NowNs()
	l := &s.late
	l.mu.Lock()
	l.completeNs = max(l.completeNs, now)
	if missed == format.UnknownMissed {
		l.unknown[late] = true
	} else {
		delete(l.unknown, late)
	}
	l.notes++
	isOver := l.notes > maxLateNotes
	l.mu.Unlock()
	text, err := json.Marshal(format.Beginning{Library: late.path, Why: why, Missed: missed})
	if err != nil || isOver {
		return // the metadata counts the process
	}
	s.send([]format.Row{{
		Kind: format.KindNote, Name: format.NoteBeginning, StartNs: now, Pid: int32(late.pid), Device: -1,
		Message: string(text),
	}})
}

// noteHistory notes whether the allocator of a process that becomes a target may have made events
// before. Attach calls it when the recording begins, OnProcessEvent for a forked process, which has a
// copy of its parent's statistics.
func (s *Set) noteHistory(p *process.Process) {
	libs, _ := s.cache.Mapped(p) // on an error, the process has exited or other libraries are unreadable
	if library.FirstOfKind(libs, library.KindAllocator) != nil {
		s.allocators.hasHistory[p.Pid] = true
	}
}

// noteFirstCall is noteHistory for a process that is a target since its first call. Before, its name
// and cgroup may have been others.
func (s *Set) noteFirstCall(p *process.Process) {
	if p.StartNs <= s.beganNs || s.opt.Comm != "" || s.opt.Cgroup != "" {
		s.allocators.hasHistory[p.Pid] = true
	}
}

// countMissedEvents counts the events of PyTorch's allocators that happened before the first recorded
// one. The allocators' own statistics have their number. In a process with a history, this number
// includes events that the recording does not promise: there, nothing is missed if the allocator
// was probed when the recording began, and otherwise the number is unknown.
func (s *Set) countMissedEvents() {
	missed, isUnknown := make(map[int]int64), make(map[int]bool)
	for _, b := range s.probes.AllocatorBeginnings() {
		if b.Missed == format.UnknownMissed {
			isUnknown[b.Pid] = true
		} else if !s.allocators.hasHistory[b.Pid] {
			missed[b.Pid] += b.Missed
		}
	}
	for pid, n := range missed {
		late := lateLibrary{pid, s.allocatorPath(pid)}
		s.late.mu.Lock()
		wasUnknown := s.late.unknown[late]
		if n > 0 {
			s.late.missed[format.RecordAllocator] += n
		}
		s.late.mu.Unlock()
		if n > 0 || wasUnknown && !isUnknown[pid] {
			s.noteLate(late, "the allocator's own statistics count more events than were recorded", n)
		}
	}
}

// allocatorPath returns the path of the library with a process's allocator.
func (s *Set) allocatorPath(pid int) string {
	id, ok := s.allocators.library[pid]
	if !ok {
		return ""
	}
	return s.cache.Path(id)
}
