//go:build linux

package record

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
)

// xidPaths says where the kernel tells of Xids.
type xidPaths struct {
	kmsg    string
	tracefs []string
	noBPF   bool // do not try by BPF what tracefs does not give
}

var systemXidPaths = xidPaths{kmsg: "/dev/kmsg", tracefs: []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}}

// xidFeed is a file that Xids come from.
type xidFeed interface {
	fd() int
	// read returns what has come without waiting; ended says that no more will.
	read() (seen []sighting, ended bool)
	close()
}

// xidPoll is how often the end of the recording, and of waiting for other sources, is
// looked for.
const xidPoll = 200 * time.Millisecond

// watchXids follows every source of Xids that there is, and notes what is missing.
func (s *Session) watchXids(c clock) {
	paths := systemXidPaths
	if s.opt.xids != nil {
		paths = *s.opt.xids
	}
	merger := newXidMerger(s.gpus)
	feeds, missing := openXidFeeds(paths, c)
	if len(feeds) == 0 && s.nvml != nil {
		if err := s.nvml.watchXids(c, merger, s.stop, &s.helpers); err != nil {
			missing = append(missing, err.Error())
		}
	}
	if len(missing) > 0 && s.hasDriver() {
		s.machine.send([]format.Row{{
			Kind: format.KindNote, Name: "xids", StartNs: c.now(), Device: -1,
			Message: fmt.Sprintf("Xids are recorded without some sources: %s", strings.ReplaceAll(strings.Join(missing, "; "), "\n", "; ")),
		}})
	}
	s.helpers.Go(func() { followXids(c, feeds, merger, s.machine, s.stop) })
}

// openXidFeeds opens the kernel's log and the driver's tracepoint. For what cannot be opened,
// missing says why.
func openXidFeeds(paths xidPaths, c clock) (feeds []xidFeed, missing []string) {
	if k, err := openKmsg(paths.kmsg, c); err == nil {
		feeds = append(feeds, k)
	} else {
		missing = append(missing, err.Error())
	}
	if f, err := openTracepoint(paths, c); err == nil {
		feeds = append(feeds, f)
	} else {
		missing = append(missing, err.Error())
	}
	return feeds, missing
}

// openTracepoint follows the driver's tracepoint in the way that there is.
func openTracepoint(paths xidPaths, c clock) (xidFeed, error) {
	t, err := openXidTrace(paths.tracefs, c)
	if err == nil {
		return t, nil
	}
	if paths.noBPF {
		return nil, err
	}
	x, bpfErr := openXidRaw(c)
	if bpfErr == nil {
		return x, nil
	}
	return nil, errors.Join(err, bpfErr)
}

// hasDriver reports whether this host has NVIDIA's driver, and so can have Xids.
func (s *Session) hasDriver() bool {
	_, err := os.Stat("/proc/driver/nvidia")
	return err == nil || len(s.gpus) > 0
}

// followXids writes down what the feeds tell until stop is closed, and what they have
// told by then.
func followXids(c clock, feeds []xidFeed, merger *xidMerger, rows *rowSender, stop <-chan struct{}) {
	defer func() {
		for _, f := range feeds {
			f.close()
		}
	}()
	collect := func() {
		var open []xidFeed
		for _, f := range feeds {
			seen, ended := f.read()
			for _, s := range seen {
				merger.add(s, c.now())
			}
			if ended {
				f.close()
			} else {
				open = append(open, f)
			}
		}
		feeds = open
	}
	for {
		collect()
		rows.send(merger.take(c.now() - sameXid.Nanoseconds()))
		if waitForXids(feeds, stop) {
			collect()
			rows.send(merger.take(c.now() + 1))
			return
		}
	}
}

// waitForXids waits for something to read, and not longer than xidPoll; it reports
// whether stop was closed.
func waitForXids(feeds []xidFeed, stop <-chan struct{}) bool {
	if len(feeds) == 0 {
		return sleep(stop, xidPoll)
	}
	fds := make([]unix.PollFd, len(feeds))
	for i, f := range feeds {
		fds[i] = unix.PollFd{Fd: int32(f.fd()), Events: unix.POLLIN}
	}
	if _, err := unix.Poll(fds, int(xidPoll.Milliseconds())); err != nil && err != unix.EINTR {
		return sleep(stop, xidPoll)
	}
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
