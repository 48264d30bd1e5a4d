//go:build linux

package target

import (
	"errors"
	"os"
	"slices"
	"time"

	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/process"
)

// Until all libraries are probed, a process is looked at often, and seldom afterwards, because a
// look costs about a millisecond.
const (
	scanInterval   = 20 * time.Millisecond
	rescanInterval = 2 * time.Second
	// unwatchedInterval is the one where the unwinder does not report new mappings.
	unwatchedInterval = 300 * time.Millisecond
)

// Library is a library to probe for the process Pid, or for all with probe.EveryProcess.
type Library struct {
	*library.Library
	Pid int
}

// Libraries returns what to probe now: what processes have mapped, and for a held command and for
// children to come what they could map. Without any the error is a *process.Error.
func (s *Set) Libraries() ([]Library, error) {
	var libraries []Library
	for _, p := range s.All() {
		libs, err := s.cache.Mapped(p)
		if err != nil && slices.Contains(s.opt.Pids, p.Pid) {
			return nil, err
		} // else nobody asked for this one: it has ended, or is closed to us
		for _, lib := range s.opt.Allocator.Wanted(libs) {
			libraries = append(libraries, Library{lib, p.Pid})
		}
	}
	isDriver := func(l Library) bool { return l.Kind == library.Driver }
	if slices.ContainsFunc(libraries, isDriver) && s.opt.CommandPid == 0 && !s.opt.All {
		return libraries, nil
	}
	if s.opt.All || s.opt.CommandPid != 0 || s.opt.WaitForLibrary {
		return append(libraries, s.candidates()...), nil
	}
	p := s.oldest
	return nil, &process.Error{
		Pid:      p.Pid,
		Comm:     p.Comm,
		Err:      process.ErrNoLibrary,
		Children: library.DriverUsers(process.Descendants(s.asked())),
	}
}

// candidates returns the libraries that processes could load later.
func (s *Set) candidates() []Library {
	var list []Library
	if !s.opt.All {
		for _, p := range s.All() {
			for _, lib := range s.cache.Candidates(p) {
				list = append(list, Library{lib, p.Pid})
			}
		}
		return list
	}
	libraries := s.cache.Candidates(&process.Process{Pid: os.Getpid()})
	for _, pid := range process.AllPids() {
		libs, _ := s.cache.Mapped(&process.Process{Pid: pid}) // of others that we may look into
		libraries = append(libraries, s.opt.Allocator.Wanted(libs)...)
	}
	for _, lib := range libraries {
		list = append(list, Library{lib, probe.EveryProcess})
	}
	return list
}

// place probes a library: for one process, or, if children are followed and no other process would
// pay for it, for every process. Then a child is recorded from its first call, however soon it comes.
func (s *Set) place(lib *library.Library, pid int) error {
	if s.opt.All || pid != probe.EveryProcess && s.opt.Children && s.followErr == nil && !s.isMappedByOthers(lib.ID) {
		pid = probe.EveryProcess
	}
	err := s.probes.Attach(lib, pid)
	if p := s.Get(pid); err != nil && p != nil && !p.Alive() {
		return &process.Error{Pid: pid, Comm: p.Comm, Err: process.ErrNoProcess} // it ended meanwhile
	}
	return err
}

// isMappedByOthers reports whether processes that are not recorded have the library mapped. It
// looks once per library.
func (s *Set) isMappedByOthers(id process.FileID) bool {
	if mapped, known := s.mappedByOthers[id]; known {
		return mapped
	}
	s.mappedByOthers[id] = slices.ContainsFunc(process.AllPids(), func(pid int) bool {
		p := process.Process{Pid: pid}
		return s.Get(pid) == nil && p.HasMapped(id)
	})
	return s.mappedByOthers[id]
}

// attachLibraries probes what the process has mapped by now. What cannot be probed is noted: it may
// be made so that it cannot, and must not end the recording of others.
func (s *Set) attachLibraries(p *process.Process, isHeld bool) {
	libs, err := s.cache.Mapped(p)
	failed := []error{err}
	s.renewAllocator(libs, p.Pid)
	for _, lib := range s.opt.Allocator.Wanted(libs) {
		s.probes.SetAllocatorSource(lib, p.Pid)
		failed = append(failed, s.attachLate(lib, p, isHeld))
	}
	s.noteAllocator(libs, p)
	if errors.Join(failed...) != nil && p.Alive() {
		s.warnUnprobed(p, failed...)
	}
}

// attachLate attaches to a library that the process has mapped already, and notes that calls made in
// between are missing.
func (s *Set) attachLate(lib *library.Library, p *process.Process, isHeld bool) error {
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
		if lib.Kind == library.Driver && !isHeld { // an allocator's totals show whether something was missed
			s.noteLate(lib, p)
		}
	}
	return nil
}

// Scan probes libraries that were mapped since the last look. It returns the time until the next
// look.
func (s *Set) Scan() time.Duration {
	next := rescanInterval
	switch {
	case s.probes.Placed() == 0:
		next = scanInterval
	case s.unwinder == nil: // new mappings are not reported
		next = unwatchedInterval
	}
	for _, p := range s.All() {
		if !p.Alive() {
			continue
		}
		s.attachLibraries(p, false)
	}
	return next
}
