//go:build linux

package library

import (
	"io"

	"github.com/gpurec/gpurec/symbolize"
	"github.com/gpurec/gpurec/symbolize/elffile"
)

// allocatorVariable is the mangled name of c10::cuda::CUDACachingAllocator::allocator, a pointer to the allocator that
// the process uses.
const allocatorVariable = "_ZN3c104cuda20CUDACachingAllocator9allocatorE"

// findAllocatorVariable returns the virtual address of allocatorVariable, less the distance of addresses from file
// offsets in the executable segment. It returns 0 if the file has no such variable.
func findAllocatorVariable(file io.ReaderAt, size int64) uint64 {
	f, err := elffile.New(file, size)
	if err != nil {
		return 0
	}
	vaddr, ok := findExport(f, allocatorVariable)
	if !ok {
		return 0
	}
	for i := range f.Segments {
		if p := &f.Segments[i]; elffile.IsExecutable(p) {
			return vaddr - (p.Vaddr - p.Off)
		}
	}
	return 0
}

// AllocatorVariable returns the address of PyTorch's pointer to the allocator in a process with some mappings. ok is
// false if the process has not mapped the library, or it has no such variable.
func (l *Library) AllocatorVariable(maps []symbolize.Mapping) (address uint64, ok bool) {
	if l.variable == 0 {
		return 0, false
	}
	for i := range maps {
		if m := &maps[i]; m.Executable() && m.Inode == l.ID.Inode && m.Path == l.Path {
			return m.Start - m.Offset + l.variable, true
		}
	}
	return 0, false
}
