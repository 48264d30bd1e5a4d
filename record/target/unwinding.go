//go:build linux

package target

import (
	"debug/elf"
	"io"
	"time"

	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/unwind"
)

// NoteMapped reports that a process has new executable mappings. Safe for concurrent use.
func (s *Set) NoteMapped(pid int) { s.mapped.add(pid) }

// MappedSignal returns a channel that has an element if NoteMapped was called after AttachMapped.
func (s *Set) MappedSignal() <-chan struct{} { return s.mapped.news }

// AttachMapped reads the mappings of the processes passed to NoteMapped, and probes new libraries.
func (s *Set) AttachMapped() {
	for _, pid := range s.mapped.takeAll() {
		p := s.Get(pid)
		if p == nil {
			continue
		}
		if maps, err := p.Maps(); err == nil { // otherwise the process has exited
			s.probes.MapCode(pid, maps)
		}
		s.attachLibraries(p, false)
	}
}

// addUnwinding makes the unwinder read the unwind tables of a new process.
func (s *Set) addUnwinding(p *process.Process) {
	if s.unwinder == nil {
		return
	}
	s.unwinder.Add(p.Pid)
	s.mapped.add(p.Pid)
}

// AwaitUnwinding waits until the unwind tables of all targets are loaded, at most
// probe.SyncTimeout.
func (s *Set) AwaitUnwinding(probes *probe.Probes, unwinder *unwind.Unwinder) {
	end := time.Now().Add(probe.SyncTimeout)
	for _, p := range s.All() {
		if code, err := mapCode(probes, p); err == nil { // otherwise the process has exited
			unwinder.Sync(p.Pid, code, time.Until(end), nil)
		}
	}
}

// mapCode passes the mappings of a process to the BPF programs. It returns those that need unwind
// tables.
func mapCode(probes *probe.Probes, p *process.Process) ([]unwind.Mapping, error) {
	maps, err := p.Maps()
	if err != nil {
		return nil, err
	}
	probes.MapCode(p.Pid, maps)
	var code []unwind.Mapping
	for _, m := range maps {
		if m.Executable() && m.Inode != 0 && isELF(p.MapFile(m)) {
			code = append(code, unwind.Mapping{Start: m.Start, End: m.End})
		}
	}
	return code, nil
}

// isELF reports whether a file begins as an ELF file. Other executable mappings, such as JIT code
// in a memfd, have no unwind tables to wait for.
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
