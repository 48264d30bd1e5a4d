//go:build linux

package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroup names a control group as BPF programs see it: its number and how deep it
// lies below the root.
type cgroup struct {
	id    uint64
	level uint32
}

// CgroupError says that a cgroup to record cannot be used.
type CgroupError struct {
	Path string
	Err  error
}

func (e *CgroupError) Error() string { return fmt.Sprintf("cgroup %s: %v", e.Path, e.Err) }
func (e *CgroupError) Unwrap() error { return e.Err }

// errNoCgroup2 says that there is no cgroup v2 to look a path up in.
var errNoCgroup2 = errors.New("cgroup v2 is not mounted here")

// cgroupRoot returns where cgroup v2 is mounted.
func cgroupRoot() (string, error) {
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

// openCgroup finds a cgroup by its path as in /proc/PID/cgroup.
func openCgroup(path string) (cgroup, error) {
	root, err := cgroupRoot()
	if err != nil {
		return cgroup{}, &CgroupError{path, err}
	}
	full := filepath.Join(root, path)
	// The number of a cgroup is the content of its file handle (bpf_get_current_cgroup_id(), bpf-helpers(7)).
	handle, _, err := unix.NameToHandleAt(unix.AT_FDCWD, full, 0)
	if err != nil {
		return cgroup{}, &CgroupError{path, err}
	}
	if len(handle.Bytes()) < 8 {
		return cgroup{}, &CgroupError{path, fmt.Errorf("is not of cgroup v2")}
	}
	level := uint32(0)
	if clean := strings.Trim(filepath.Clean("/"+path), "/"); clean != "" {
		level = uint32(strings.Count(clean, "/") + 1)
	}
	return cgroup{id: binary.LittleEndian.Uint64(handle.Bytes()), level: level}, nil
}

// isIn reports whether the process is in the cgroup of this path or below it.
func (p *process) isIn(path string) bool {
	text, err := os.ReadFile(p.path("cgroup"))
	if err != nil {
		return false
	}
	own, ok := cgroupPath(string(text))
	return ok && isBelow(own, path)
}

// cgroupPath returns the path of cgroup v2 from the text of /proc/PID/cgroup.
func cgroupPath(text string) (path string, ok bool) {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return path, true
		}
	}
	return "", false
}

// isBelow reports whether a cgroup's path is the given one or below it.
func isBelow(path, root string) bool {
	root = strings.TrimSuffix(filepath.Clean("/"+root), "/")
	return path == root || strings.HasPrefix(path, root+"/")
}

// CheckCgroup returns a *CgroupError if Options.Cgroup cannot be this path.
func CheckCgroup(path string) error {
	_, err := openCgroup(path)
	return err
}
