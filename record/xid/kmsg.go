//go:build linux

package xid

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/clock"
)

// kmsgFeed reads the kernel's log: the records from before the recording, then new ones.
//
// The log has times of the CPU's clock, which NTP does not adjust. After weeks they differ from
// CLOCK_MONOTONIC by seconds. A new record shows the difference to within the time until it is read
// (milliseconds). Times of older records are not corrected, so they can be seconds off.
type kmsgFeed struct {
	file    int
	clock   clock.Clock
	live    bool // all records from before the recording are read
	lagNs   int64
	hasLag  bool // whether lagNs was measured: Unix time minus the log's time
	beganNs int64
}

// openKmsg opens the kernel's log at its oldest record.
func openKmsg(path string, c clock.Clock) (*kmsgFeed, error) {
	file, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			return nil, fmt.Errorf("reading %s needs CAP_SYSLOG: %w", path, err)
		}
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &kmsgFeed{file: file, clock: c, beganNs: c.NowNs()}, nil
}

func (k *kmsgFeed) close() { unix.Close(k.file) }

// read returns the Xids in new records.
func (k *kmsgFeed) read() (seen []Report, ended bool) {
	buffer := make([]byte, 16<<10) // a record has at most 8 KiB
	for {
		n, err := unix.Read(k.file, buffer)
		switch {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
			continue // the kernel has overwritten unread records: continue with the next one
		case errors.Is(err, unix.EAGAIN):
			k.live = true
			return seen, false
		case err != nil, n == 0:
			k.live = true
			return seen, true
		}
		for _, record := range parseKmsgRecords(string(buffer[:n])) {
			at := k.toUnixNs(record.localNs)
			if s, ok := parseKmsgXid(record.text); ok {
				s.AtNs, s.before = at, !k.live
				seen = append(seen, s)
			}
		}
	}
}

// toUnixNs converts the time of a record in the kernel's log to Unix ns.
func (k *kmsgFeed) toUnixNs(localNs int64) int64 {
	if !k.live {
		return min(localNs+k.clock.OffsetNs, k.beganNs)
	}
	if lag := k.clock.NowNs() - localNs; !k.hasLag || lag < k.lagNs {
		k.lagNs, k.hasLag = lag, true
	}
	return localNs + k.lagNs
}
