//go:build linux

package xid

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/rows"
)

// Paths are the files of the kernel's log and tracefs.
type Paths struct {
	Kmsg    string
	Tracefs []string
	NoBPF   bool // do not try by BPF what tracefs does not give
}

// SystemPaths are the paths of a running system.
var SystemPaths = Paths{Kmsg: "/dev/kmsg", Tracefs: []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}}

// Feed is a source of Xids in the kernel.
type Feed interface {
	fd() int
	// read returns what has come without waiting; ended says that no more will.
	read() (seen []Report, ended bool)
	close()
}

// xidPoll is how often the end of the recording, and of waiting for other sources, is
// looked for.
const xidPoll = 200 * time.Millisecond

// OpenFeeds opens the kernel's log and the driver's tracepoint. For what cannot be opened,
// missing says why.
func OpenFeeds(paths Paths, c clock.Clock) (feeds []Feed, missing []string) {
	if k, err := openKmsg(paths.Kmsg, c); err == nil {
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
func openTracepoint(paths Paths, c clock.Clock) (Feed, error) {
	t, err := openTrace(paths.Tracefs, c)
	if err == nil {
		return t, nil
	}
	if paths.NoBPF {
		return nil, err
	}
	x, bpfErr := openRaw(c)
	if bpfErr == nil {
		return x, nil
	}
	return nil, errors.Join(err, bpfErr)
}

// Follow sends the rows of Xids until stop is closed, and then those that have come by then. It
// closes the feeds.
func Follow(c clock.Clock, feeds []Feed, merger *Merger, sender *rows.Sender, stop <-chan struct{}) {
	defer func() {
		for _, f := range feeds {
			f.close()
		}
	}()
	collect := func() {
		var open []Feed
		for _, f := range feeds {
			seen, ended := f.read()
			for _, s := range seen {
				merger.Add(s, c.NowNs())
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
		sender.Send(merger.take(c.NowNs() - sameXid.Nanoseconds()))
		if waitForXids(feeds, stop) {
			collect()
			sender.Send(merger.take(c.NowNs() + 1))
			return
		}
	}
}

// waitForXids waits for something to read, and not longer than xidPoll; it reports
// whether stop was closed.
func waitForXids(feeds []Feed, stop <-chan struct{}) bool {
	if len(feeds) == 0 {
		return clock.Sleep(stop, xidPoll)
	}
	fds := make([]unix.PollFd, len(feeds))
	for i, f := range feeds {
		fds[i] = unix.PollFd{Fd: int32(f.fd()), Events: unix.POLLIN}
	}
	if _, err := unix.Poll(fds, int(xidPoll.Milliseconds())); err != nil && err != unix.EINTR {
		return clock.Sleep(stop, xidPoll)
	}
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
