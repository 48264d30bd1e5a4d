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

// Errors about the process to record, wrapped in an *Error.
var (
	// ErrNoProcess: there is no process of that number, or it has ended.
	ErrNoProcess = errors.New("no such process")
	// ErrNoLibrary: the process has not loaded libcuda.so.1.
	ErrNoLibrary = errors.New("has not loaded libcuda.so.1")
	// ErrNotPermitted: the process belongs to another user.
	ErrNotPermitted = errors.New("belongs to another user")
)

// Error is an error about one process.
type Error struct {
	Pid  int
	Comm string // "" when unknown
	Err  error
	// Children are the running descendants that have loaded libcuda, for ErrNoLibrary.
	Children []int
}

// Error names the process and what is wrong.
func (e *Error) Error() string {
	if e.Comm == "" {
		return fmt.Sprintf("process %d: %v", e.Pid, e.Err)
	}
	return fmt.Sprintf("process %d (%s) %v", e.Pid, e.Comm, e.Err)
}

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// Process is a recorded process, read through /proc.
type Process struct {
	Pid     int
	Comm    string
	StartNs int64 // CLOCK_BOOTTIME; with Pid it identifies the process
	pidfd   int
	exited  bool
	Known   Facts // as last read
}

// Open looks up a process. Its pidfd keeps the number from being taken for a later process. An
// error is a *Error that matches ErrNoProcess. Close closes the pidfd.
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

// Path returns the path of a file of the process under /proc.
func (p *Process) Path(name string) string {
	return filepath.Join("/proc", strconv.Itoa(p.Pid), name)
}

// Alive reports whether the process still runs; a zombie does not.
func (p *Process) Alive() bool {
	if p.exited {
		return false
	}
	poll := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	p.exited = err == nil && n > 0
	return !p.exited
}

// parseStat returns the command name and the start time from /proc/PID/stat. The
// name stands in parentheses and may hold any character, parentheses too.
func parseStat(stat []byte) (comm string, startNs int64) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return "", 0
	}
	comm = string(stat[open+1 : end])
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) > 19 { // field 22 of proc(5), counted from 1 with pid and comm
		ticks, _ := strconv.ParseInt(fields[19], 10, 64)
		startNs = ticks * 1e9 / UserHz
	}
	return comm, startNs
}

// KernelComm returns a process name as the kernel keeps it: the first 15 bytes.
func KernelComm(name string) string { return name[:min(len(name), 15)] }

// parentOf returns the parent's number from /proc/PID/stat, 0 if it is not there.
func parentOf(stat []byte) int {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1]) // 0 for what is no number
	return parent
}

// Rename reads the name of the process again, after an exec.
func (p *Process) Rename() {
	if stat, err := os.ReadFile(p.Path("stat")); err == nil {
		p.Comm, _ = parseStat(stat)
	}
}

// UserHz is the unit of times in /proc/PID/stat; 100 on every architecture we know.
const UserHz = 100

// Maps returns the process's mappings.
func (p *Process) Maps() ([]symbolize.Mapping, error) {
	file, err := os.Open(p.Path("maps"))
	if err != nil {
		return nil, p.Wrap(err)
	}
	defer file.Close()
	maps, err := symbolize.ReadMaps(file)
	if err != nil {
		return nil, p.Wrap(err)
	}
	return maps, nil
}

// Wrap returns an error of /proc as an *Error of this process.
func (p *Process) Wrap(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
		err = ErrNoProcess
	case errors.Is(err, fs.ErrPermission):
		err = ErrNotPermitted
	}
	return &Error{Pid: p.Pid, Comm: p.Comm, Err: err}
}

// MapFile returns a path by which the kernel opens exactly the mapped file, also if it was deleted
// or lies in another mount namespace.
func (p *Process) MapFile(m symbolize.Mapping) string {
	return p.Path(fmt.Sprintf("map_files/%x-%x", m.Start, m.End))
}
