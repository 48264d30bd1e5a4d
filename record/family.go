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

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

// family is the processes being recorded: those asked for, and as they come their
// children. Safe for concurrent use.
type family struct {
	mu      *sync.Mutex
	members map[int]*process
	oldest  *process // names the recording
}

func newFamily() family {
	return family{mu: new(sync.Mutex), members: make(map[int]*process)}
}

// add takes a process in, unless its number is there already.
func (f *family) add(p *process) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.members[p.pid]; ok {
		return false
	}
	f.members[p.pid] = p
	if f.oldest == nil {
		f.oldest = p
	}
	return true
}

func (f *family) get(pid int) *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.members[pid]
}

func (f *family) remove(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.members[pid]; p != nil {
		p.close()
		delete(f.members, pid)
	}
}

// all returns the processes in order of their numbers.
func (f *family) all() []*process {
	f.mu.Lock()
	defer f.mu.Unlock()
	members := make([]*process, 0, len(f.members))
	for _, pid := range slices.Sorted(maps.Keys(f.members)) {
		members = append(members, f.members[pid])
	}
	return members
}

func (f *family) close() {
	for _, p := range f.all() {
		f.remove(p.pid)
	}
}

// defaultOutput names the recording after the first process.
func (f *family) defaultOutput(at string) string {
	if f.oldest == nil {
		return defaultOutput("all", os.Getpid(), at)
	}
	return defaultOutput(f.oldest.comm, f.oldest.pid, at)
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
		for _, pid := range descendants(s.asked()) {
			if s.family.get(pid) != nil {
				continue
			}
			p, err := openProcess(pid)
			if err != nil || !s.family.add(p) {
				continue // it has ended since
			}
			if err := s.probes.target(pid); err != nil {
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
		p, err := openProcess(pid)
		if err != nil {
			return err
		}
		s.family.add(p)
		if !p.alive() {
			return &ProcessError{Pid: pid, Comm: p.comm, Err: ErrNoProcess}
		}
		if err := p.checkAccess(); err != nil {
			return err
		}
	}
	if s.opt.Comm != "" || s.opt.Cgroup != "" {
		s.openMatching()
	}
	if !s.opt.Children {
		return nil
	}
	for _, pid := range descendants(pids) {
		if p, err := openProcess(pid); err == nil && p.alive() { // or it has ended since
			s.family.add(p)
		}
	}
	return nil
}

// openMatching takes in the processes of now that Comm and Cgroup name; those to come
// are let in by the probes.
func (s *Session) openMatching() {
	for _, pid := range allPids() {
		p, err := openProcess(pid)
		if err != nil {
			continue // ended since
		}
		named := s.opt.Comm == "" || p.comm == s.opt.Comm
		if pid == os.Getpid() || !named || s.opt.Cgroup != "" && !p.isIn(s.opt.Cgroup) || !s.family.add(p) {
			p.close()
		}
	}
}

// target is a library to probe for a process.
type target struct {
	library *library
	pid     int
}

// findLibraries returns what to probe now: what processes have mapped, and for a
// held command and for children to come what they could map.
func (s *Session) findLibraries() ([]target, error) {
	var targets []target
	for _, p := range s.family.all() {
		libs, err := s.cache.libraries(p)
		if err != nil && slices.Contains(s.opt.Pids, p.pid) {
			return nil, err
		} // else nobody asked for this one: it has ended, or is closed to us
		for _, lib := range s.opt.Allocator.wanted(libs) {
			targets = append(targets, target{lib, p.pid})
		}
	}
	isDriver := func(t target) bool { return t.library.kind == driverLibrary }
	if slices.ContainsFunc(targets, isDriver) && s.opt.Command == nil && !s.opt.All {
		return targets, nil
	}
	if s.opt.All || s.opt.Command != nil || s.opt.WaitForLibrary {
		return append(targets, s.possible()...), nil
	}
	p := s.family.oldest
	return nil, &ProcessError{Pid: p.pid, Comm: p.comm, Err: ErrNoLibrary, Children: driverUsers(descendants(s.asked()))}
}

// possible returns the libraries that processes could load later.
func (s *Session) possible() []target {
	var targets []target
	if !s.opt.All {
		for _, p := range s.family.all() {
			for _, lib := range s.cache.candidates(p) {
				targets = append(targets, target{lib, p.pid})
			}
		}
		return targets
	}
	libraries := s.cache.candidates(&process{pid: os.Getpid()})
	for _, pid := range allPids() {
		libs, _ := s.cache.libraries(&process{pid: pid}) // of others that we may look into
		libraries = append(libraries, s.opt.Allocator.wanted(libs)...)
	}
	for _, lib := range libraries {
		targets = append(targets, target{lib, everyProcess})
	}
	return targets
}

// place probes a library: for one process, or, if children are followed and nobody
// else would pay for it, for every process. Then a child is recorded from its first
// call, however soon it comes.
func (s *Session) place(lib *library, pid int) error {
	if s.opt.All || pid != everyProcess && s.opt.Children && s.followErr == nil && !s.isCrowded(lib.id) {
		pid = everyProcess
	}
	err := s.probes.attach(lib, pid)
	if p := s.family.get(pid); err != nil && p != nil && !p.alive() {
		return &ProcessError{Pid: pid, Comm: p.comm, Err: ErrNoProcess} // it ended meanwhile
	}
	return err
}

// isCrowded reports whether processes that are not recorded have the library mapped.
// It is asked once per library.
func (s *Session) isCrowded(id fileID) bool {
	if crowded, known := s.crowded[id]; known {
		return crowded
	}
	s.crowded[id] = slices.ContainsFunc(allPids(), func(pid int) bool {
		p := process{pid: pid}
		return s.family.get(pid) == nil && p.hasMapped(id)
	})
	return s.crowded[id]
}

// welcome takes a new process in, or notes that a known one became another program.
func (s *Session) welcome(birth bpf.CudaProcessEvent) {
	pid := int(birth.Pid)
	known := s.family.get(pid)
	if birth.Change == uint16(bpf.CudaProcessChangePROCESS_EXEC) {
		if known != nil {
			known.rename()
			s.addUnwinding(known)
			s.forgetAllocator(pid)
			s.scribe.send([]format.Row{known.row(known.facts(s.gpus), s.clock.unix(birth.StartNs))})
			s.attachLibraries(known)
			return
		}
	}
	p, err := openProcess(pid)
	if err != nil { // it has ended already; its calls, if any, are recorded
		s.noteGone(birth)
		s.probes.forget(pid)
		return
	}
	if !s.family.add(p) {
		p.close()
		return
	}
	s.scribe.send([]format.Row{p.row(p.facts(s.gpus), s.clock.unix(birth.StartNs))})
	s.addUnwinding(p)
	// What the family uses is probed for the newcomer before it can map it, hopefully.
	for _, lib := range s.libraries {
		before := s.probes.placed()
		if err := s.place(lib, pid); err != nil && p.alive() {
			s.complain(p, err)
			continue
		}
		if lib.kind == driverLibrary && s.probes.placed() > before && p.hasMapped(lib.id) {
			s.noteLate(lib, p)
		}
	}
	s.attachLibraries(p)
}

// noteGone writes down a process that could not be looked at before it ended.
func (s *Session) noteGone(birth bpf.CudaProcessEvent) {
	gone := process{pid: int(birth.Pid), known: processFacts{ParentPid: int(birth.ParentPid), UID: -1}}
	s.scribe.send([]format.Row{gone.exitRow(s.clock.now())})
}

// noteUnseen writes down a process of which the recorder learns when it has ended already, or
// when the recording has.
func (s *Session) noteUnseen(birth bpf.CudaProcessEvent) {
	if birth.Change == uint16(bpf.CudaProcessChangePROCESS_EXEC) || s.family.get(int(birth.Pid)) != nil {
		return
	}
	p, err := openProcess(int(birth.Pid))
	if err != nil {
		s.noteGone(birth)
		return
	}
	defer p.close()
	s.scribe.send([]format.Row{p.row(p.facts(s.gpus), s.clock.unix(birth.StartNs))})
}

// noteLate writes down that calls of the process may be missing: it had the library
// before it was probed.
func (s *Session) noteLate(lib *library, p *process) {
	s.scribe.send([]format.Row{{
		Kind: format.KindNote, Name: "late_attach", StartNs: s.clock.now(), Pid: int32(p.pid), Device: -1,
		Message: fmt.Sprintf("%s was mapped already when it was attached to; calls made before may be missing", lib.path),
	}})
}

// attachLibraries probes what the process has mapped by now. What cannot be probed is
// noted: it may be made so that it cannot, and must not end the recording of others.
func (s *Session) attachLibraries(p *process) {
	libs, err := s.cache.libraries(p)
	failed := []error{err}
	s.renewAllocator(libs, p.pid)
	for _, lib := range s.opt.Allocator.wanted(libs) {
		s.probes.tellBy(lib, p.pid)
		failed = append(failed, s.attachLate(lib, p))
	}
	s.knowAllocator(libs, p)
	if errors.Join(failed...) != nil && p.alive() {
		s.complain(p, failed...)
	}
}

// maxComplaints bounds how many processes are told of that could not be probed: each costs
// a line and a row, and a program can start any number of them.
const maxComplaints = 100

// complain tells once per process why calls of it are missing.
func (s *Session) complain(p *process, failed ...error) {
	if s.complaints[p.pid] || len(s.complaints) == maxComplaints {
		return
	}
	s.complaints[p.pid] = true
	var why []string
	for _, err := range failed {
		if of := (*ProcessError)(nil); errors.As(err, &of) {
			err = of.Err
		}
		if err != nil {
			why = append(why, strings.ReplaceAll(err.Error(), "\n", ", "))
		}
	}
	message := fmt.Sprintf("calls of process %d (%s) are missing: %s", p.pid, p.comm, strings.Join(why, "; "))
	if len(s.complaints) == maxComplaints {
		message += "; of further processes this is not told"
	}
	s.warn(message)
	row := format.Row{Kind: format.KindNote, Name: "attach", Pid: int32(p.pid), Device: -1, Message: message}
	if s.scribe == nil { // it begins later
		s.notes = append(s.notes, row)
		return
	}
	row.StartNs = s.clock.now()
	s.scribe.send([]format.Row{row})
}

// scanLibraries attaches to libraries that were mapped since the last look and
// returns when to look again.
func (s *Session) scanLibraries() time.Duration {
	next := rescanInterval
	switch {
	case s.probes.placed() == 0:
		next = scanInterval
	case s.unwinder == nil: // nobody tells what is mapped meanwhile
		next = unwatchedInterval
	}
	for _, p := range s.family.all() {
		if !p.alive() {
			continue
		}
		s.attachLibraries(p)
	}
	return next
}

// attachLate attaches to a library that the process has mapped already, and notes
// that calls made in between are missing.
func (s *Session) attachLate(lib *library, p *process) error {
	before := s.probes.placed()
	if err := s.place(lib, p.pid); err != nil {
		if !p.alive() {
			return nil
		}
		return err
	}
	if s.probes.placed() > before {
		if !slices.Contains(s.libraries, lib) {
			s.libraries = append(s.libraries, lib)
		}
		if lib.kind == driverLibrary { // an allocator's totals tell whether something was missed
			s.noteLate(lib, p)
		}
	}
	return nil
}

// buryDead writes down which processes have ended and reports whether all have.
func (s *Session) buryDead() bool {
	living := 0
	for _, p := range s.family.all() {
		if p.alive() {
			living++
			continue
		}
		s.scribe.send([]format.Row{p.exitRow(s.clock.now())})
		s.probes.forget(p.pid)
		s.forgetAllocator(p.pid)
		if s.unwinder != nil {
			s.unwinder.Forget(p.pid)
		}
		s.family.remove(p.pid)
	}
	return living == 0
}

// lastFacts is what became of the processes, at the end of the recording.
func (s *Session) lastFacts() []format.Row {
	now := s.clock.now()
	rows := s.inferenceNotes(now)
	if n := s.probes.lostChanges(); n > 0 {
		rows = append(rows, format.Row{
			Kind: format.KindNote, Name: "children", StartNs: now, Device: -1, Value: float64(n),
			Message: "the ring buffer had no room for this many forks and execs: their processes lack facts, and if others use libcuda, calls",
		})
	}
	for _, p := range s.family.all() {
		if !p.alive() {
			rows = append(rows, p.exitRow(now))
		}
	}
	return rows
}

// hasMapped reports whether the process has the file mapped.
func (p *process) hasMapped(id fileID) bool {
	maps, err := p.maps()
	if err != nil {
		return false
	}
	for _, m := range maps {
		var st unix.Stat_t
		if m.Inode == id.inode && m.Executable() && unix.Stat(p.mapFile(m), &st) == nil && uint64(st.Dev) == id.dev {
			return true
		}
	}
	return false
}
