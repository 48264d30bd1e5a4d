//go:build linux

package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/symbolize"
)

// Reasons why a process cannot be recorded. The Err of an *Error matches one of them.
var (
	// ErrNoProcess is the reason if no process has this pid, or if the process has ended.
	ErrNoProcess = errors.New("no such process")
	// ErrNoLibrary is the reason if the process has not loaded libcuda.so.1.
	ErrNoLibrary = errors.New("has not loaded libcuda.so.1")
	// ErrNotPermitted is the reason if the process belongs to another user.
	ErrNotPermitted = errors.New("belongs to another user")
)

// Error is an error about one process.
type Error struct {
	Pid  int
	Comm string // name of the process, "" if unknown
	Err  error
	// Children are the running descendants that have loaded libcuda. They are set for ErrNoLibrary.
	Children []int
}

// Error names the process and the reason why it cannot be recorded.
func (e *Error) Error() string {
	if e.Comm == "" {
		return fmt.Sprintf("process %d: %v", e.Pid, e.Err)
	}
	return fmt.Sprintf("process %d (%s) %v", e.Pid, e.Comm, e.Err)
}

// Unwrap returns the reason why the process cannot be recorded.
func (e *Error) Unwrap() error { return e.Err }

// Process is a recorded process, read through /proc. It is not safe for concurrent use.
type Process struct {
	Pid     int
	Comm    string
	StartNs int64 // start on CLOCK_BOOTTIME; identifies the process together with Pid
	pidfd   int
	exited  bool
	Known   Facts // result of the last ReadFacts
}

// Open opens a process. The pidfd keeps the kernel from reusing the pid unnoticed. An error is a
// *Error that matches ErrNoProcess. Call Close to release the pidfd.
func Open(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
			err = ErrNoProcess
		}
		return nil, &Error{Pid: pid, Err: err}
	}
	p := &Process{Pid: pid, pidfd: fd}
	stat, err := os.ReadFile(p.Path("stat"))
	if err != nil {
		p.Close()
		return nil, &Error{Pid: pid, Err: ErrNoProcess}
	}
	p.Comm, p.StartNs = parseStat(stat)
	return p, nil
}

// Close closes the pidfd.
func (p *Process) Close() { unix.Close(p.pidfd) }

// Path returns the path of a file in /proc/PID.
func (p *Process) Path(name string) string {
	return filepath.Join("/proc", strconv.Itoa(p.Pid), name)
}

// Alive reports whether the process is running. A zombie is not running.
func (p *Process) Alive() bool {
	if p.exited {
		return false
	}
	poll := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	p.exited = err == nil && n > 0
	return !p.exited
}

// parseStat returns the command name and the start time from the text of /proc/PID/stat. The name
// is in parentheses and may contain any character, including parentheses.
func parseStat(stat []byte) (comm string, startNs int64) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return "", 0
	}
	comm = string(stat[open+1 : end])
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) > 19 { // field 22 of proc(5), counted from 1 with pid and comm
		ticks, _ := strconv.ParseInt(fields[19], 10, 64)
		startNs = ticks * 1e9 / UserTicksPerSecond
	}
	return comm, startNs
}

// TruncateComm returns the first 15 bytes of a process name, which the kernel stores.
func TruncateComm(name string) string { return name[:min(len(name), 15)] }

// parseParentPid returns the parent's pid from the text of /proc/PID/stat, or 0.
func parseParentPid(stat []byte) int {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1]) // 0 for a malformed number
	return parent
}

// ParentPid returns the pid of the parent, or 0 if the process has ended.
func (p *Process) ParentPid() int {
	stat, err := os.ReadFile(p.Path("stat"))
	if err != nil {
		return 0
	}
	return parseParentPid(stat)
}

// RereadComm reads the process's name again. Call it after an exec.
func (p *Process) RereadComm() {
	if stat, err := os.ReadFile(p.Path("stat")); err == nil {
		p.Comm, _ = parseStat(stat)
	}
}

// UserTicksPerSecond is the unit of times in /proc/PID/stat, in ticks per second. It is 100 on all
// supported architectures.
const UserTicksPerSecond = 100

// Maps returns the process's mappings, sorted by address.
func (p *Process) Maps() ([]symbolize.Mapping, error) {
	file, err := os.Open(p.Path("maps"))
	if err != nil {
		return nil, p.WrapError(err)
	}
	defer file.Close()
	maps, err := symbolize.ReadMaps(file)
	if err != nil {
		return nil, p.WrapError(err)
	}
	return maps, nil
}

// WrapError converts an error of reading /proc to an *Error of this process.
func (p *Process) WrapError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
		err = ErrNoProcess
	case errors.Is(err, fs.ErrPermission):
		err = ErrNotPermitted
	}
	return &Error{Pid: p.Pid, Comm: p.Comm, Err: err}
}

// MapFile returns a path that opens exactly the mapped file, even if it was deleted or is in
// another mount namespace.
func (p *Process) MapFile(m symbolize.Mapping) string {
	return p.Path(fmt.Sprintf("map_files/%x-%x", m.Start, m.End))
}
