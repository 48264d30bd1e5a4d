//go:build linux

package sampling

import (
	"errors"
	"fmt"
	"time"

	"github.com/gpurec/gpurec/record/clock"
)

// ReturnPolicy is the policy for probes of launch returns. A return probe costs as much as the
// entry probe, and most launches just succeed. If a process launches more than MaxRate kernels per
// second, returns are probed for On of every Period. Other launches are recorded at their entry,
// without duration and result.
type ReturnPolicy struct {
	On, Period time.Duration
	MaxRate    int64
}

// DefaultReturnPolicy probes returns for one second in ten above 8,000 launches per second.
var DefaultReturnPolicy = ReturnPolicy{On: time.Second, Period: 10 * time.Second, MaxRate: 8000}

// SampleLaunchReturns removes and attaches the probes of launch returns by the policy, until stop
// is closed.
func (s *Sampler) SampleLaunchReturns(policy ReturnPolicy, stop <-chan struct{}) {
	noted := false
	for !clock.Sleep(stop, policy.On/4) {
		rate := s.Recorder.LaunchesPerSecond()
		if s.launchesSampled.Load() {
			rate = s.windowLaunchRate.Load()
		}
		if rate < policy.MaxRate {
			continue
		}
		if !noted {
			s.writeNote("returns", float64(rate), fmt.Sprintf("a process launched %d kernels a second: "+
				"later launches have duration and result for %v in every %v (--keep-returns: all have)",
				rate, policy.On, policy.Period))
			noted = true
		}
		err := s.Probes.SkipLaunchReturns(stop)
		if clock.Sleep(stop, policy.Period-policy.On) {
			return
		}
		if err = errors.Join(err, s.Probes.AttachLaunchReturns()); err != nil {
			s.writeNote("returns", 0, err.Error())
			return
		}
		if clock.Sleep(stop, policy.On) {
			return
		}
	}
}
