//go:build linux

package simtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// SimulatedXids is a simulated kernel log and tracefs in a temporary folder. Readers get the lines
// that Log and Trace write.
type SimulatedXids struct {
	// LogPath is the path of the log. TracefsPaths are paths for tracefs; the first one does not
	// exist.
	LogPath      string
	TracefsPaths []string
	// LogFile and TraceFile are open for writing. InstancePath is the recorder's tracefs instance.
	LogFile, TraceFile *os.File
	InstancePath       string
}

// NewSimulatedXids creates a log and a tracefs. The tracefs has a stale instance of a recorder that
// has ended.
func NewSimulatedXids(t *testing.T) *SimulatedXids {
	t.Helper()
	dir := t.TempDir()
	f := &SimulatedXids{LogPath: filepath.Join(dir, "kmsg"), TracefsPaths: []string{filepath.Join(dir, "missing"), dir}}
	instance := func(pid int) string { return filepath.Join(dir, "instances", "gpurec-xid-"+strconv.Itoa(pid)) }
	f.InstancePath = instance(os.Getpid())
	stale := instance(1<<22 + 1) // above the largest pid
	for _, folder := range []string{
		filepath.Join(dir, "events/nvidia/nvidia_dev_xid"),
		filepath.Join(f.InstancePath, "events/nvidia/nvidia_dev_xid"),
		stale,
	} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"trace_clock", "events/nvidia/nvidia_dev_xid/enable"} {
		if err := os.WriteFile(filepath.Join(f.InstancePath, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func(path string) *os.File {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		return file
	}
	f.LogFile, f.TraceFile = open(f.LogPath), open(filepath.Join(f.InstancePath, "trace_pipe"))
	return f
}

// AwaitPipeRead waits until the readers have read everything in a pipe.
func AwaitPipeRead(t *testing.T, pipe *os.File) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Millisecond) {
		switch n, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ); {
		case err != nil:
			t.Fatal(err)
		case n == 0:
			return
		case time.Now().After(end):
			t.Fatalf("%d bytes of %s were not read", n, pipe.Name())
		}
	}
}

// LimitToUptime returns d, but at most half of the machine's uptime: records cannot be older than
// the kernel.
func (x *SimulatedXids) LimitToUptime(d time.Duration) time.Duration {
	return min(d, time.Duration(readMonotonicNs()/2))
}

// WriteKernelLog writes a line to the simulated kernel log. The line has the time ago before now.
func (x *SimulatedXids) WriteKernelLog(text string, ago time.Duration) {
	fmt.Fprintf(x.LogFile, "6,1,%d,-;%s\n SUBSYSTEM=pci\n", (readMonotonicNs()-ago.Nanoseconds())/1000, text)
}

// WriteTracePipe writes a line to the simulated trace pipe of tracefs.
func (x *SimulatedXids) WriteTracePipe(text string) {
	now := readMonotonicNs()
	fmt.Fprintf(x.TraceFile, "  prog-7  [000] d..1. %5d.%06d: nvidia_dev_xid: %s\n", now/1e9, now%1e9/1e3, text)
}

// readMonotonicNs returns CLOCK_MONOTONIC in ns.
func readMonotonicNs() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // every Linux kernel has this clock
	}
	return now.Nano()
}
