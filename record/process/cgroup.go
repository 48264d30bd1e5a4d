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

// Cgroup identifies a cgroup v2 for BPF programs: by its ID and its depth below the root.
type Cgroup struct {
	ID    uint64
	Level uint32
}

// CgroupError is the error for a cgroup that cannot be recorded. Path is as in /proc/PID/cgroup.
type CgroupError struct {
	Path string
	Err  error
}

// Error returns the path of the cgroup and the reason why it cannot be recorded.
func (e *CgroupError) Error() string { return fmt.Sprintf("cgroup %s: %v", e.Path, e.Err) }

// Unwrap returns the reason why the cgroup cannot be recorded.
func (e *CgroupError) Unwrap() error { return e.Err }

// errNoCgroup2 is the error on a host without cgroup v2.
var errNoCgroup2 = errors.New("cgroup v2 is not mounted here")

// FindCgroupRoot returns the mount point of cgroup v2.
func FindCgroupRoot() (string, error) {
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

// OpenCgroup returns the cgroup with a path as in /proc/PID/cgroup. An error is a *CgroupError.
func OpenCgroup(path string) (Cgroup, error) {
	root, err := FindCgroupRoot()
	if err != nil {
		return Cgroup{}, &CgroupError{path, err}
	}
	full := filepath.Join(root, path)
	// A cgroup's ID is the content of its file handle: see bpf_get_current_cgroup_id in
	// bpf-helpers(7).
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, full, 0)
	if err != nil {
		return Cgroup{}, &CgroupError{path, err}
	}
	if len(handle.Bytes()) < 8 {
		return Cgroup{}, &CgroupError{path, fmt.Errorf("the path is not in cgroup v2")}
	}
	level := uint32(0)
	if clean := strings.Trim(filepath.Clean("/"+path), "/"); clean != "" {
		level = uint32(strings.Count(clean, "/") + 1)
	}
	return Cgroup{ID: binary.LittleEndian.Uint64(handle.Bytes()), Level: level}, nil
}

// IsInCgroup reports whether the process is in the cgroup with this path or in a descendant of it.
func (p *Process) IsInCgroup(path string) bool {
	text, err := os.ReadFile(p.Path("cgroup"))
	if err != nil {
		return false
	}
	own, ok := ParseCgroupPath(string(text))
	return ok && IsCgroupBelow(own, path)
}

// ParseCgroupPath returns the cgroup v2 path in the text of /proc/PID/cgroup. ok is false if there
// is none.
func ParseCgroupPath(text string) (path string, ok bool) {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path, true
		}
	}
	return "", false
}

// IsCgroupBelow reports whether the cgroup path is root or a descendant of root.
func IsCgroupBelow(path, root string) bool {
	root = strings.TrimSuffix(filepath.Clean("/"+root), "/")
	return path == root || strings.HasPrefix(path, root+"/")
}

// CheckCgroup returns a *CgroupError if there is no cgroup v2 with this path.
func CheckCgroup(path string) error {
	_, err := OpenCgroup(path)
	return err
}
