//go:build linux

package target

import (
	"debug/elf"
	"io"
	"time"

	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/unwind"
	"github.com/gpurec/gpurec/symbolize"
)

// Mapped notes that a process has new executable mappings. Safe for concurrent use.
func (s *Set) Mapped(pid int) { s.mapped.add(pid) }

// News returns a channel that has an element if Mapped was called since OnMapped was.
func (s *Set) News() <-chan struct{} { return s.mapped.news }

// OnMapped reads the mappings of processes that Mapped named, and probes new libraries.
func (s *Set) OnMapped() {
	for _, pid := range s.mapped.take() {
		p := s.Get(pid)
		if p == nil {
			continue
		}
		if maps, err := p.Maps(); err == nil { // or it has ended
			s.probes.MapCode(pid, maps)
		}
		s.attachLibraries(p, false)
	}
}

// addUnwinding lets stacks of a process that came later be unwound.
func (s *Set) addUnwinding(p *process.Process) {
	if s.unwinder == nil {
		return
	}
	s.unwinder.Add(p.Pid)
	s.mapped.add(p.Pid)
}

// AwaitUnwinding waits until stacks of the processes can be unwound, probe.SyncTimeout at most.
func (s *Set) AwaitUnwinding(probes *probe.Probes, unwinder *unwind.Unwinder) {
	end := time.Now().Add(probe.SyncTimeout)
	for _, p := range s.All() {
		maps, err := p.Maps()
		if err != nil {
			continue // it has ended
		}
		probes.MapCode(p.Pid, maps)
		unwinder.Sync(p.Pid, codeOf(p, maps), time.Until(end), nil)
	}
}

// codeOf returns the mappings that unwind tables are needed for.
func codeOf(p *process.Process, maps []symbolize.Mapping) []unwind.Mapping {
	var code []unwind.Mapping
	for _, m := range maps {
		if m.Executable() && m.Inode != 0 && isELF(p.MapFile(m)) {
			code = append(code, unwind.Mapping{Start: m.Start, End: m.End})
		}
	}
	return code
}

// Cover probes the libraries that a held process has mapped. It returns the code that must have
// unwind tables before the process calls CUDA: none if stacks are not unwound.
func (s *Set) Cover(pid int) []unwind.Mapping {
	p := s.Get(pid)
	if p == nil {
		return nil // it ended
	}
	s.attachLibraries(p, true)
	maps, err := p.Maps()
	if err != nil || s.unwinder == nil {
		return nil
	}
	s.probes.MapCode(pid, maps)
	s.unwinder.Refresh(pid)
	return codeOf(p, maps)
}

// Drivers returns the libcudas that are probed.
func (s *Set) Drivers() []*library.Library {
	var drivers []*library.Library
	for _, lib := range s.libraries {
		if lib.Kind == library.Driver {
			drivers = append(drivers, lib)
		}
	}
	return drivers
}

// isELF reports whether a file begins as ELF files do. Others may be mapped too, such as code that a
// compiler wrote into a memfd; no unwind table is to be waited for.
func isELF(path string) bool {
	file, err := process.OpenRegular(path)
	if err != nil {
		return false
	}
	defer file.Close()
	var magic [len(elf.ELFMAG)]byte
	_, err = io.ReadFull(file, magic[:])
	return err == nil && string(magic[:]) == elf.ELFMAG
}
