//go:build linux

package target

import (
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/unwind"
)

// Cover probes the libraries that a held process has mapped. It returns the code of the process that
// needs unwind tables before the process calls CUDA: none if stacks are not unwound.
func (s *Set) Cover(pid int) []unwind.Mapping {
	p := s.Get(pid)
	if p == nil {
		return nil // the process has exited
	}
	s.attachLibraries(p, true)
	if s.unwinder == nil {
		return nil
	}
	code, err := mapCode(s.probes, p)
	if err != nil {
		return nil // the process has exited
	}
	s.unwinder.Refresh(pid)
	return code
}

// Drivers returns the probed files of libcuda.
func (s *Set) Drivers() []*library.Library {
	var drivers []*library.Library
	for _, lib := range s.libraries {
		if lib.Kind == library.KindDriver {
			drivers = append(drivers, lib)
		}
	}
	return drivers
}
