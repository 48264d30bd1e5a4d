//go:build linux

package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Cgroup identifies a cgroup for BPF programs, by its number and its depth below the root.
type Cgroup struct {
	ID    uint64
	Level uint32
}

// CgroupError reports a cgroup that cannot be recorded.
type CgroupError struct {
	Path string
	Err  error
}

// Error names the cgroup and what is wrong.
func (e *CgroupError) Error() string { return fmt.Sprintf("cgroup %s: %v", e.Path, e.Err) }

// Unwrap returns what is wrong.
func (e *CgroupError) Unwrap() error { return e.Err }

// errNoCgroup2 says that there is no cgroup v2 to look a path up in.
var errNoCgroup2 = errors.New("cgroup v2 is not mounted here")

// CgroupRoot returns where cgroup v2 is mounted.
func CgroupRoot() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" {
			return f[1], nil
		}
	}
	return "", errNoCgroup2
}

// OpenCgroup looks up a cgroup by its path, as in /proc/PID/cgroup. An error is a *CgroupError.
func OpenCgroup(path string) (Cgroup, error) {
	root, err := CgroupRoot()
	if err != nil {
		return Cgroup{}, &CgroupError{path, err}
	}
	full := filepath.Join(root, path)
	// The number of a cgroup is the content of its file handle (bpf_get_current_cgroup_id(), bpf-helpers(7)).
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, full, 0)
	if err != nil {
		return Cgroup{}, &CgroupError{path, err}
	}
	if len(handle.Bytes()) < 8 {
		return Cgroup{}, &CgroupError{path, fmt.Errorf("is not of cgroup v2")}
	}
	level := uint32(0)
	if clean := strings.Trim(filepath.Clean("/"+path), "/"); clean != "" {
		level = uint32(strings.Count(clean, "/") + 1)
	}
	return Cgroup{ID: binary.LittleEndian.Uint64(handle.Bytes()), Level: level}, nil
}

// IsIn reports whether the process is in the cgroup of this path or below it.
func (p *Process) IsIn(path string) bool {
	text, err := os.ReadFile(p.Path("cgroup"))
	if err != nil {
		return false
	}
	own, ok := CgroupPath(string(text))
	return ok && IsBelow(own, path)
}

// CgroupPath returns the path of cgroup v2 from the text of /proc/PID/cgroup.
func CgroupPath(text string) (path string, ok bool) {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path, true
		}
	}
	return "", false
}

// IsBelow reports whether the path of a cgroup is root or lies below it.
func IsBelow(path, root string) bool {
	root = strings.TrimSuffix(filepath.Clean("/"+root), "/")
	return path == root || strings.HasPrefix(path, root+"/")
}

// CheckCgroup returns a *CgroupError if no cgroup v2 has this path.
func CheckCgroup(path string) error {
	_, err := OpenCgroup(path)
	return err
}
