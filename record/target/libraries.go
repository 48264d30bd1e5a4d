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

// Intervals at which the mappings of target processes are read to find libraries to probe. Reading
// takes about a millisecond for a process.
const (
	scanInterval   = 20 * time.Millisecond // until a library is probed
	rescanInterval = 2 * time.Second       // after that; the unwinder reports new mappings, too
	// unwatchedInterval replaces rescanInterval if stacks are not unwound.
	unwatchedInterval = 300 * time.Millisecond
)

// Library is a library to probe in process Pid, or in every process with probe.EveryProcess.
type Library struct {
	*library.Library
	Pid      int
	IsMapped bool // the process has mapped it; otherwise it may load it later
}

// Libraries returns the libraries to probe now: those that the processes have mapped, and for a
// held command and for future children also those that they may load. If there are none, it returns
// a *process.Error.
func (s *Set) Libraries() ([]Library, error) {
	var libraries []Library
	for _, p := range s.All() {
		libs, err := s.cache.Mapped(p)
		if err != nil && slices.Contains(s.opt.Pids, p.Pid) {
			return nil, err
		} // another process may have exited, or may be inaccessible
		for _, lib := range s.opt.Allocator.SelectLibraries(libs) {
			libraries = append(libraries, Library{lib, p.Pid, true})
		}
	}
	isDriver := func(l Library) bool { return l.Kind == library.KindDriver }
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
		Children: library.FilterDriverUsers(process.Descendants(s.requestedPids())),
	}
}

// candidates returns the libraries that target processes could load later.
func (s *Set) candidates() []Library {
	var list []Library
	if !s.opt.All {
		for _, p := range s.All() {
			for _, lib := range s.cache.FindLoadable(p, s.opt.Allocator) {
				list = append(list, Library{Library: lib, Pid: p.Pid})
			}
		}
		return list
	}
	libraries := s.cache.FindLoadable(&process.Process{Pid: os.Getpid()}, s.opt.Allocator)
	for _, pid := range process.AllPids() {
		libs, _ := s.cache.Mapped(&process.Process{Pid: pid}) // readable mappings of other processes
		libraries = append(libraries, s.opt.Allocator.SelectLibraries(libs)...)
	}
	for _, lib := range libraries {
		list = append(list, Library{Library: lib, Pid: probe.EveryProcess})
	}
	return list
}

// probeLibrary probes a library in one process. If children are followed and only targets map the
// library, probeLibrary probes it in every process: a new child is then recorded from its first
// call.
func (s *Set) probeLibrary(lib *library.Library, pid int) error {
	if s.opt.All || pid != probe.EveryProcess && s.opt.Children && s.followErr == nil && !s.isMappedByOthers(lib.ID) {
		pid = probe.EveryProcess
	}
	err := s.probes.AttachLibrary(lib, pid)
	if p := s.Get(pid); err != nil && p != nil && !p.Alive() {
		// The process exited while its probes were attached.
		return &process.Error{Pid: pid, Comm: p.Comm, Err: process.ErrNoProcess}
	}
	return err
}

// isMappedByOthers reports whether processes that are no targets have mapped the library. It
// searches all processes once per library.
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

// attachLibraries probes the libraries that a process has mapped. An error is written as a note and
// does not end the recording: a process may contain files that cannot be probed.
func (s *Set) attachLibraries(p *process.Process, isHeld bool) {
	libs, err := s.cache.Mapped(p)
	failed := []error{err}
	s.forgetReplacedAllocator(libs, p.Pid)
	for _, lib := range s.opt.Allocator.SelectLibraries(libs) {
		s.probes.SetAllocatorSource(lib, p.Pid)
		failed = append(failed, s.attachLate(lib, p, isHeld))
	}
	s.noteAllocator(libs, p)
	s.noteMissingEngine(libs, p)
	if errors.Join(failed...) != nil && p.Alive() {
		s.warnUnprobed(p, failed...)
	}
}

// attachLate probes a library that the process has already mapped. Unless the process is held, it
// writes a note that earlier calls are missing.
func (s *Set) attachLate(lib *library.Library, p *process.Process, isHeld bool) error {
	before := s.probes.ProbeCount()
	if err := s.probeLibrary(lib, p.Pid); err != nil {
		if !p.Alive() {
			return nil
		}
		return err
	}
	if s.probes.ProbeCount() > before {
		if !slices.Contains(s.libraries, lib) {
			s.libraries = append(s.libraries, lib)
		}
		if !isHeld {
			s.noteLateAttach(lib, p)
		}
	}
	return nil
}

// Scan probes libraries that were mapped since the last scan. It returns the time until the next
// scan.
func (s *Set) Scan() time.Duration {
	next := rescanInterval
	switch {
	case s.probes.ProbeCount() == 0:
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
