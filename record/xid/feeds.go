//go:build linux

package xid

import (
	"errors"
	"time"

	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/rows"
)

// SourcePaths are the paths of the kernel's log and of tracefs.
type SourcePaths struct {
	Kmsg    string
	Tracefs []string
	NoBPF   bool // do not use a BPF program if tracefs is not available
}

// SystemSourcePaths are the usual paths on Linux.
var SystemSourcePaths = SourcePaths{
	Kmsg:    "/dev/kmsg",
	Tracefs: []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"},
}

// Feed is a kernel source of Xid reports.
type Feed interface {
	// read returns the new reports without blocking. ended is true if there will be no more.
	read() (seen []Report, ended bool)
	close()
}

// xidPollInterval is the interval at which FollowXids reads the feeds.
const xidPollInterval = 200 * time.Millisecond

// OpenXidFeeds opens the kernel's log and the driver's tracepoint. missing has the reason for each
// one that cannot be opened.
func OpenXidFeeds(paths SourcePaths, c clock.Clock) (feeds []Feed, missing []string) {
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

// openTracepoint opens the driver's tracepoint through tracefs or, without tracefs, by a BPF
// program.
func openTracepoint(paths SourcePaths, c clock.Clock) (Feed, error) {
	t, err := openTracefs(paths.Tracefs, c)
	if err == nil {
		return t, nil
	}
	if paths.NoBPF {
		return nil, err
	}
	x, bpfErr := openRawTracepoint(c)
	if bpfErr == nil {
		return x, nil
	}
	return nil, errors.Join(err, bpfErr)
}

// FollowXids sends rows of Xids until stop is closed, then the rows of all reports until then. It
// closes the feeds.
func FollowXids(c clock.Clock, feeds []Feed, merger *ReportMerger, sender *rows.Sender, stop <-chan struct{}) {
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
				merger.AddReport(s, c.NowNs())
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
		sender.Send(merger.takeRows(c.NowNs() - maxReportDelay.Nanoseconds()))
		if clock.Sleep(stop, xidPollInterval) {
			collect()
			sender.Send(merger.takeRows(c.NowNs() + 1))
			return
		}
	}
}
