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

// The kernel measures run times of BPF programs in samples of RunTimeSampleLength every
// RunTimeSamplePeriod, because measuring costs about 40 ns per run.
const (
	RunTimeSampleLength = time.Second
	RunTimeSamplePeriod = 10 * time.Second
)

// SampleRunTimes measures the run times of BPF programs in samples until stop is closed. It returns
// at once without CAP_SYS_ADMIN.
func SampleRunTimes(stop <-chan struct{}) {
	for {
		stats, err := EnableRunTimeStats()
		if err != nil {
			return
		}
		ended := clock.Sleep(stop, RunTimeSampleLength)
		_ = stats.Close() // on an error, the kernel measures until the recorder exits
		if ended || clock.Sleep(stop, RunTimeSamplePeriod-RunTimeSampleLength) {
			return
		}
	}
}

// EnableRunTimeStats makes the kernel measure the run times of all BPF programs until stats is
// closed. It needs CAP_SYS_ADMIN.
func EnableRunTimeStats() (stats io.Closer, err error) {
	err = privilege.WithCapability(unix.CAP_SYS_ADMIN, func() error {
		stats, err = ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
		return err
	})
	return stats, err
}

// ReadRunTimes returns the measured run time of the BPF programs, in nanoseconds, and the number of
// measured runs.
func (p *Probes) ReadRunTimes() (ns, runs int64) {
	for _, prog := range []*ebpf.Program{
		p.Objects.CallEnter,
		p.Objects.LaunchEnter,
		p.Objects.AllocatorEnter,
		p.Objects.CollectiveEnter,
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
