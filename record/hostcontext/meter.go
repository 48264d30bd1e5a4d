//go:build linux

package hostcontext

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/clock"
)

// meter measures the CPU time of one goroutine, which it binds to its thread.
type meter struct{ lastNs int64 }

// startMeter begins to measure the calling goroutine.
func startMeter() *meter {
	runtime.LockOSThread()
	return &meter{clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID)}
}

// take returns the CPU time since the last call, ns.
func (m *meter) take() int64 {
	now := clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID)
	used := now - m.lastNs
	m.lastNs = now
	return used
}

// end releases the thread.
func (m *meter) end() { runtime.UnlockOSThread() }
