//go:build linux

package xid

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/clock"
)

// tracefsFeed follows the driver's Xid tracepoint in its own tracefs instance, which does not
// affect other tracers.
type tracefsFeed struct {
	instance string
	pipe     int
	clock    clock.Clock
	rest     string // start of an incomplete line
}

// errNoTracefs is the error if tracefs is not mounted. gpurec does not change the host, so it does
// not mount tracefs.
var errNoTracefs = errors.New("tracefs is not mounted on /sys/kernel/tracing")

// openTracefs opens the tracepoint in the first of roots that is a tracefs.
func openTracefs(roots []string, c clock.Clock) (*tracefsFeed, error) {
	for _, root := range roots {
		if _, err := os.Stat(filepath.Join(root, "events")); err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, "events/nvidia/nvidia_dev_xid")); err != nil {
			return nil, errors.New("the driver has no tracepoint nvidia:nvidia_dev_xid")
		}
		return openTracefsInstance(root, c)
	}
	return nil, errNoTracefs
}

// openTracefsInstance creates a tracefs instance and enables the tracepoint in it.
func openTracefsInstance(root string, c clock.Clock) (_ *tracefsFeed, err error) {
	removeStaleInstances(filepath.Join(root, "instances"))
	t := &tracefsFeed{instance: filepath.Join(root, "instances", tracefsInstanceName(os.Getpid())), pipe: -1, clock: c}
	if err := os.Mkdir(t.instance, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("make a tracing instance: %w", err)
	}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if err := t.writeInstanceFile("trace_clock", "mono"); err != nil {
		return nil, err
	}
	if err := t.writeInstanceFile("events/nvidia/nvidia_dev_xid/enable", "1"); err != nil {
		return nil, err
	}
	pipe := filepath.Join(t.instance, "trace_pipe")
	if t.pipe, err = unix.Open(pipe, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open %s: %w", pipe, err)
	}
	return t, nil
}

// tracefsInstancePrefix starts the names of gpurec's tracefs instances. The recorder's pid follows.
const tracefsInstancePrefix = "gpurec-xid-"

func tracefsInstanceName(pid int) string { return tracefsInstancePrefix + strconv.Itoa(pid) }

// removeStaleInstances removes the instances of recorders that no longer exist.
func removeStaleInstances(instances string) {
	entries, err := os.ReadDir(instances)
	if err != nil {
		return
	}
	for _, e := range entries {
		number, ours := strings.CutPrefix(e.Name(), tracefsInstancePrefix)
		pid, err := strconv.Atoi(number)
		if ours && err == nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			_ = unix.Rmdir(filepath.Join(instances, e.Name())) // another recorder may remove it first
		}
	}
}

// writeInstanceFile writes a value to a file of the tracefs instance.
func (t *tracefsFeed) writeInstanceFile(file, value string) error {
	path := filepath.Join(t.instance, file)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("trace Xids: %w", err)
	}
	_, err = f.WriteString(value)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("trace Xids: %w", err)
	}
	return nil
}

// close removes the tracefs instance, which stops its tracing.
func (t *tracefsFeed) close() {
	if t.pipe >= 0 {
		unix.Close(t.pipe)
	}
	_ = t.writeInstanceFile("events/nvidia/nvidia_dev_xid/enable", "0") // in case the instance cannot be removed
	_ = unix.Rmdir(t.instance)
}

// read returns the new Xid reports of the trace pipe.
func (t *tracefsFeed) read() (seen []Report, ended bool) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := unix.Read(t.pipe, buffer)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return seen, false
		case err != nil, n == 0:
			return seen, true
		}
		lines := strings.Split(t.rest+string(buffer[:n]), "\n")
		t.rest = lines[len(lines)-1]
		if len(t.rest) > len(buffer) {
			t.rest = "" // longer than any line of the tracepoint
		}
		for _, line := range lines[:len(lines)-1] {
			if s, monotonicNs, ok := parseTraceXid(line); ok {
				s.AtNs = t.clock.UnixNs(uint64(monotonicNs))
				seen = append(seen, s)
			}
		}
	}
}
