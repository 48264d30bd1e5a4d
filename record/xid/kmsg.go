//go:build linux

package xid

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/clock"
)

// kmsg reads the kernel's log: what is in it from before the recording, then what comes.
//
// Its times are those of the CPUs' clock, which runs beside CLOCK_MONOTONIC but is not
// disciplined: after weeks they can be seconds apart. What comes while we read tells by
// how much, within the time until we read it (milliseconds). For what was there before
// nothing does, so those times are that inexact.
type kmsg struct {
	file    int
	clock   clock.Clock
	live    bool // what was there before is read
	lagNs   int64
	hasLag  bool // lagNs, to be added to the log's time to get Unix time, was measured
	beganNs int64
}

// openKmsg opens the log at its oldest record.
func openKmsg(path string, c clock.Clock) (*kmsg, error) {
	file, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			return nil, fmt.Errorf("reading %s needs CAP_SYSLOG: %w", path, err)
		}
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return &kmsg{file: file, clock: c, beganNs: c.NowNs()}, nil
}

func (k *kmsg) fd() int { return k.file }

func (k *kmsg) close() { unix.Close(k.file) }

// read returns the Xids among what has come.
func (k *kmsg) read() (seen []Report, ended bool) {
	buffer := make([]byte, 16<<10) // a record has 8 KiB at most
	for {
		n, err := unix.Read(k.file, buffer)
		switch {
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
			continue // records were overwritten before we read them: go on behind
		case errors.Is(err, unix.EAGAIN):
			k.live = true
			return seen, false
		case err != nil, n == 0:
			k.live = true
			return seen, true
		}
		for _, record := range parseKmsg(string(buffer[:n])) {
			at := k.time(record.localNs)
			if s, ok := parseKmsgXid(record.text); ok {
				s.AtNs, s.before = at, !k.live
				seen = append(seen, s)
			}
		}
	}
}

// time is when a record was written, Unix ns.
func (k *kmsg) time(localNs int64) int64 {
	if !k.live {
		return min(localNs+k.clock.OffsetNs, k.beganNs)
	}
	if lag := k.clock.NowNs() - localNs; !k.hasLag || lag < k.lagNs {
		k.lagNs, k.hasLag = lag, true
	}
	return localNs + k.lagNs
}
