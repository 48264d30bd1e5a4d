//go:build linux

package record

import (
	"io"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
)

// Run times of BPF programs are measured in samples, because measuring costs some
// 40 ns a run: statsOn out of every statsEvery.
const (
	statsOn    = time.Second
	statsEvery = 10 * time.Second
)

// Where the overhead is governed, it is that share of every second.
const (
	statsOnGoverned    = 100 * time.Millisecond
	statsEveryGoverned = time.Second
)

// sampleRunTimes has the kernel measure the programs for on of every period until stop is
// closed. Without the right to do so it does nothing.
func sampleRunTimes(stop <-chan struct{}, on, every time.Duration) {
	for {
		stats, err := measureRunTimes()
		if err != nil {
			return
		}
		ended := sleep(stop, on)
		_ = stats.Close() // an open one goes on measuring until the recorder ends
		if ended || sleep(stop, every-on) {
			return
		}
	}
}

// measureRunTimes has the kernel measure BPF programs until what it returns is closed.
func measureRunTimes() (stats io.Closer, err error) {
	err = withCapability(unix.CAP_SYS_ADMIN, func() error {
		stats, err = ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
		return err
	})
	return stats, err
}

// sleep waits and reports whether stop was closed meanwhile.
func sleep(stop <-chan struct{}, d time.Duration) bool {
	select {
	case <-stop:
		return true
	case <-time.After(d):
		return false
	}
}

// runTimes returns the measured run time of the programs and the runs it covers.
func (p *probes) runTimes() (ns, runs int64) {
	for _, prog := range []*ebpf.Program{p.objects.CallEnter, p.objects.LaunchEnter, p.objects.AllocatorEnter, p.objects.CallExit} {
		stats, err := prog.Stats()
		if err != nil {
			continue
		}
		ns += int64(stats.Runtime)
		runs += int64(stats.RunCount)
	}
	return ns, runs
}

// ownCost returns the recorder's CPU time since start (as ownCost itself returned
// it) and its peak memory.
func ownCost() format.Cost {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return format.Cost{}
	}
	return format.Cost{
		CPUNs:    usage.Utime.Nano() + usage.Stime.Nano(),
		RSSBytes: usage.Maxrss << 10, // Linux counts in KiB
	}
}
