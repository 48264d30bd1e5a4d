//go:build linux

package process

import "golang.org/x/sys/unix"

// FileID identifies a file independently of its path, by device and inode.
type FileID struct{ Dev, Inode uint64 }

// HasMapped reports whether the process has mapped the file as executable.
func (p *Process) HasMapped(id FileID) bool {
	maps, err := p.Maps()
	if err != nil {
		return false
	}
	for _, m := range maps {
		var st unix.Stat_t
		if m.Inode == id.Inode && m.Executable() && unix.Stat(p.MapFile(m), &st) == nil && uint64(st.Dev) == id.Dev {
			return true
		}
	}
	return false
}
