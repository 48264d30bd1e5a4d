//go:build linux

package record

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/process"
)

// family is the processes being recorded: those asked for, and as they come their
// children. Safe for concurrent use.
type family struct {
	mu      *sync.Mutex
	members map[int]*process.Process
	oldest  *process.Process // names the recording
}

func newFamily() family {
	return family{mu: new(sync.Mutex), members: make(map[int]*process.Process)}
}

// add takes a process in, unless its number is there already.
func (f *family) add(p *process.Process) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.members[p.Pid]; ok {
		return false
	}
	f.members[p.Pid] = p
	if f.oldest == nil {
		f.oldest = p
	}
	return true
}

func (f *family) get(pid int) *process.Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[pid]
}

func (f *family) remove(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.members[pid]; p != nil {
		p.Close()
		delete(f.members, pid)
	}
}

// all returns the processes in order of their numbers.
func (f *family) all() []*process.Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	members := make([]*process.Process, 0, len(f.members))
	for _, pid := range slices.Sorted(maps.Keys(f.members)) {
		members = append(members, f.members[pid])
	}
	return members
}

func (f *family) close() {
	for _, p := range f.all() {
		f.remove(p.Pid)
	}
}

// defaultOutput names the recording after the first process.
func (f *family) defaultOutput(at string) string {
	if f.oldest == nil {
		return defaultOutput("all", os.Getpid(), at)
	}
	return defaultOutput(f.oldest.Comm, f.oldest.Pid, at)
}

// asked are the processes that the options name.
func (s *Session) asked() []int {
	pids := slices.Clone(s.opt.Pids)
	if c := s.opt.Command; c != nil {
		pids = append(pids, c.Pid())
	}
	return pids
}

// adoptBorn takes in the children that were born while the programs were loaded, before
// forks were followed. Children of theirs may have been, too: it looks until there is none.
func (s *Session) adoptBorn() error {
	for found := true; found; {
		found = false
		for _, pid := range process.Descendants(s.asked()) {
			if s.family.get(pid) != nil {
				continue
			}
			p, err := process.Open(pid)
			if err != nil || !s.family.add(p) {
				continue // it has ended since
			}
			if err := s.probes.Target(pid); err != nil {
				return err
			}
			if s.unwinder != nil {
				s.addUnwinding(p)
			}
			found = true
		}
	}
	return nil
}

// openProcesses looks the processes up that are asked for, and their children of now.
func (s *Session) openProcesses() error {
	pids := s.asked()
	for _, pid := range pids {
		p, err := process.Open(pid)
		if err != nil {
			return err
		}
		s.family.add(p)
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
			s.family.add(p)
		}
	}
	return nil
}

// openMatching takes in the processes of now that Comm and Cgroup name; those to come
// are let in by the probes.
func (s *Session) openMatching() {
	for _, pid := range process.AllPids() {
		p, err := process.Open(pid)
		if err != nil {
			continue // ended since
		}
		named := s.opt.Comm == "" || p.Comm == s.opt.Comm
		if pid == os.Getpid() || !named || s.opt.Cgroup != "" && !p.IsIn(s.opt.Cgroup) || !s.family.add(p) {
			p.Close()
		}
	}
}

// target is a library to probe for a process.
type target struct {
	library *library.Library
	pid     int
}

// findLibraries returns what to probe now: what processes have mapped, and for a
// held command and for children to come what they could map.
func (s *Session) findLibraries() ([]target, error) {
	var targets []target
	for _, p := range s.family.all() {
		libs, err := s.cache.Mapped(p)
		if err != nil && slices.Contains(s.opt.Pids, p.Pid) {
			return nil, err
		} // else nobody asked for this one: it has ended, or is closed to us
		for _, lib := range s.opt.Allocator.Wanted(libs) {
			targets = append(targets, target{lib, p.Pid})
		}
	}
	isDriver := func(t target) bool { return t.library.Kind == library.Driver }
	if slices.ContainsFunc(targets, isDriver) && s.opt.Command == nil && !s.opt.All {
		return targets, nil
	}
	if s.opt.All || s.opt.Command != nil || s.opt.WaitForLibrary {
		return append(targets, s.possible()...), nil
	}
	p := s.family.oldest
	return nil, &process.Error{Pid: p.Pid, Comm: p.Comm, Err: process.ErrNoLibrary, Children: library.DriverUsers(process.Descendants(s.asked()))}
}

// possible returns the libraries that processes could load later.
func (s *Session) possible() []target {
	var targets []target
	if !s.opt.All {
		for _, p := range s.family.all() {
			for _, lib := range s.cache.Candidates(p) {
				targets = append(targets, target{lib, p.Pid})
			}
		}
		return targets
	}
	libraries := s.cache.Candidates(&process.Process{Pid: os.Getpid()})
	for _, pid := range process.AllPids() {
		libs, _ := s.cache.Mapped(&process.Process{Pid: pid}) // of others that we may look into
		libraries = append(libraries, s.opt.Allocator.Wanted(libs)...)
	}
	for _, lib := range libraries {
		targets = append(targets, target{lib, probe.EveryProcess})
	}
	return targets
}

// place probes a library: for one process, or, if children are followed and nobody
// else would pay for it, for every process. Then a child is recorded from its first
// call, however soon it comes.
func (s *Session) place(lib *library.Library, pid int) error {
	if s.opt.All || pid != probe.EveryProcess && s.opt.Children && s.followErr == nil && !s.isCrowded(lib.ID) {
		pid = probe.EveryProcess
	}
	err := s.probes.Attach(lib, pid)
	if p := s.family.get(pid); err != nil && p != nil && !p.Alive() {
		return &process.Error{Pid: pid, Comm: p.Comm, Err: process.ErrNoProcess} // it ended meanwhile
	}
	return err
}

// isCrowded reports whether processes that are not recorded have the library mapped.
// It is asked once per library.
func (s *Session) isCrowded(id process.FileID) bool {
	if crowded, known := s.crowded[id]; known {
		return crowded
	}
	s.crowded[id] = slices.ContainsFunc(process.AllPids(), func(pid int) bool {
		p := process.Process{Pid: pid}
		return s.family.get(pid) == nil && p.HasMapped(id)
	})
	return s.crowded[id]
}

// welcome takes a new process in, or notes that a known one became another program.
func (s *Session) welcome(birth bpf.CudaProcessEvent) {
	pid := int(birth.Pid)
	known := s.family.get(pid)
	if birth.Change == uint16(bpf.CudaProcessChangePROCESS_EXEC) {
		if known != nil {
			known.Rename()
			s.addUnwinding(known)
			s.forgetAllocator(pid)
			s.scribe.Send([]format.Row{known.Row(known.ReadFacts(s.gpus), s.clock.UnixNs(birth.StartNs))})
			s.attachLibraries(known)
			return
		}
	}
	p, err := process.Open(pid)
	if err != nil { // it has ended already; its calls, if any, are recorded
		s.noteGone(birth)
		s.probes.Forget(pid)
		return
	}
	if !s.family.add(p) {
		p.Close()
		return
	}
	s.scribe.Send([]format.Row{p.Row(p.ReadFacts(s.gpus), s.clock.UnixNs(birth.StartNs))})
	s.addUnwinding(p)
	// What the family uses is probed for the newcomer before it can map it, hopefully.
	for _, lib := range s.libraries {
		before := s.probes.Placed()
		if err := s.place(lib, pid); err != nil && p.Alive() {
			s.complain(p, err)
			continue
		}
		if lib.Kind == library.Driver && s.probes.Placed() > before && p.HasMapped(lib.ID) {
			s.noteLate(lib, p)
		}
	}
	s.attachLibraries(p)
}

// noteGone writes down a process that could not be looked at before it ended.
func (s *Session) noteGone(birth bpf.CudaProcessEvent) {
	gone := process.Process{Pid: int(birth.Pid), Known: process.Facts{ParentPid: int(birth.ParentPid), UID: -1}}
	s.scribe.Send([]format.Row{gone.ExitRow(s.clock.NowNs())})
}

// noteUnseen writes down a process of which the recorder learns when it has ended already, or
// when the recording has.
func (s *Session) noteUnseen(birth bpf.CudaProcessEvent) {
	if birth.Change == uint16(bpf.CudaProcessChangePROCESS_EXEC) || s.family.get(int(birth.Pid)) != nil {
		return
	}
	p, err := process.Open(int(birth.Pid))
	if err != nil {
		s.noteGone(birth)
		return
	}
	defer p.Close()
	s.scribe.Send([]format.Row{p.Row(p.ReadFacts(s.gpus), s.clock.UnixNs(birth.StartNs))})
}

// noteLate writes down that calls of the process may be missing: it had the library
// before it was probed.
func (s *Session) noteLate(lib *library.Library, p *process.Process) {
	s.scribe.Send([]format.Row{{
		Kind: format.KindNote, Name: "late_attach", StartNs: s.clock.NowNs(), Pid: int32(p.Pid), Device: -1,
		Message: fmt.Sprintf("%s was mapped already when it was attached to; calls made before may be missing", lib.Path),
	}})
}

// attachLibraries probes what the process has mapped by now. What cannot be probed is
// noted: it may be made so that it cannot, and must not end the recording of others.
func (s *Session) attachLibraries(p *process.Process) {
	libs, err := s.cache.Mapped(p)
	failed := []error{err}
	s.renewAllocator(libs, p.Pid)
	for _, lib := range s.opt.Allocator.Wanted(libs) {
		s.probes.SetAllocatorSource(lib, p.Pid)
		failed = append(failed, s.attachLate(lib, p))
	}
	s.knowAllocator(libs, p)
	if errors.Join(failed...) != nil && p.Alive() {
		s.complain(p, failed...)
	}
}

// maxComplaints bounds how many processes are told of that could not be probed: each costs
// a line and a row, and a program can start any number of them.
const maxComplaints = 100

// complain tells once per process why calls of it are missing.
func (s *Session) complain(p *process.Process, failed ...error) {
	if s.complaints[p.Pid] || len(s.complaints) == maxComplaints {
		return
	}
	s.complaints[p.Pid] = true
	var why []string
	for _, err := range failed {
		if of := (*process.Error)(nil); errors.As(err, &of) {
			err = of.Err
		}
		if err != nil {
			why = append(why, strings.ReplaceAll(err.Error(), "\n", ", "))
		}
	}
	message := fmt.Sprintf("calls of process %d (%s) are missing: %s", p.Pid, p.Comm, strings.Join(why, "; "))
	if len(s.complaints) == maxComplaints {
		message += "; of further processes this is not told"
	}
	s.warn(message)
	row := format.Row{Kind: format.KindNote, Name: "attach", Pid: int32(p.Pid), Device: -1, Message: message}
	if s.scribe == nil { // it begins later
		s.notes = append(s.notes, row)
		return
	}
	row.StartNs = s.clock.NowNs()
	s.scribe.Send([]format.Row{row})
}

// scanLibraries attaches to libraries that were mapped since the last look and
// returns when to look again.
func (s *Session) scanLibraries() time.Duration {
	next := rescanInterval
	switch {
	case s.probes.Placed() == 0:
		next = scanInterval
	case s.unwinder == nil: // nobody tells what is mapped meanwhile
		next = unwatchedInterval
	}
	for _, p := range s.family.all() {
		if !p.Alive() {
			continue
		}
		s.attachLibraries(p)
	}
	return next
}

// attachLate attaches to a library that the process has mapped already, and notes
// that calls made in between are missing.
func (s *Session) attachLate(lib *library.Library, p *process.Process) error {
	before := s.probes.Placed()
	if err := s.place(lib, p.Pid); err != nil {
		if !p.Alive() {
			return nil
		}
		return err
	}
	if s.probes.Placed() > before {
		if !slices.Contains(s.libraries, lib) {
			s.libraries = append(s.libraries, lib)
		}
		if lib.Kind == library.Driver { // an allocator's totals tell whether something was missed
			s.noteLate(lib, p)
		}
	}
	return nil
}

// buryDead writes down which processes have ended and reports whether all have.
func (s *Session) buryDead() bool {
	living := 0
	for _, p := range s.family.all() {
		if p.Alive() {
			living++
			continue
		}
		s.scribe.Send([]format.Row{p.ExitRow(s.clock.NowNs())})
		s.probes.Forget(p.Pid)
		s.forgetAllocator(p.Pid)
		if s.unwinder != nil {
			s.unwinder.Forget(p.Pid)
		}
		s.family.remove(p.Pid)
	}
	return living == 0
}

// lastFacts is what became of the processes, at the end of the recording.
func (s *Session) lastFacts() []format.Row {
	now := s.clock.NowNs()
	rows := s.inferenceNotes(now)
	if n := s.probes.LostChanges(); n > 0 {
		rows = append(rows, format.Row{
			Kind: format.KindNote, Name: "children", StartNs: now, Device: -1, Value: float64(n),
			Message: "the ring buffer had no room for this many forks and execs: their processes lack facts, and if others use libcuda, calls",
		})
	}
	for _, p := range s.family.all() {
		if !p.Alive() {
			rows = append(rows, p.ExitRow(now))
		}
	}
	return rows
}
