//go:build linux

package hostcontext

import (
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/clock"
)

// meter measures the CPU time of one goroutine while it works. It binds the goroutine to its thread meanwhile, but not
// while the goroutine waits: to wake a bound goroutine, Go's runtime wakes two threads.
type meter struct{ startNs int64 }

// start begins to measure the calling goroutine.
func (m *meter) start() {
	runtime.LockOSThread()
	m.startNs = clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID)
}

// stop returns the CPU time since start, ns, and releases the thread.
func (m *meter) stop() int64 {
	defer runtime.UnlockOSThread()
	return clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID) - m.startNs
}
