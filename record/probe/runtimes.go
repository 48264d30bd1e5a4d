//go:build linux

package probe

import (
	"io"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/privilege"
)

// Run times of BPF programs are measured in samples, because measuring costs some
// 40 ns a run: RunTimeSample out of every RunTimePeriod.
const (
	RunTimeSample = time.Second
	RunTimePeriod = 10 * time.Second
)

// Where the overhead is governed, it is that share of every second.
const (
	RunTimeSampleGoverned = 100 * time.Millisecond
	RunTimePeriodGoverned = time.Second
)

// SampleRunTimes measures the run times of BPF programs for on of every period until stop is
// closed. Without the capability it returns at once.
func SampleRunTimes(stop <-chan struct{}, on, every time.Duration) {
	for {
		stats, err := MeasureRunTimes()
		if err != nil {
			return
		}
		ended := clock.Sleep(stop, on)
		_ = stats.Close() // an open one goes on measuring until the recorder ends
		if ended || clock.Sleep(stop, every-on) {
			return
		}
	}
}

// MeasureRunTimes makes the kernel measure the run times of BPF programs until stats is closed. It
// needs CAP_SYS_ADMIN.
func MeasureRunTimes() (stats io.Closer, err error) {
	err = privilege.With(unix.CAP_SYS_ADMIN, func() error {
		stats, err = ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
		return err
	})
	return stats, err
}

// RunTimes returns the measured run time of the programs, in ns, and the runs that it covers.
func (p *Probes) RunTimes() (ns, runs int64) {
	for _, prog := range []*ebpf.Program{
		p.Objects.CallEnter,
		p.Objects.LaunchEnter,
		p.Objects.AllocatorEnter,
		p.Objects.CallExit,
	} {
		stats, err := prog.Stats()
		if err != nil {
			continue
		}
		ns += int64(stats.Runtime)
		runs += int64(stats.RunCount)
	}
	return ns, runs
}
