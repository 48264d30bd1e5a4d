//go:build linux

package sampling

import (
	"fmt"
	"time"

	"github.com/gpurec/gpurec/record/clock"
)

// Getters says when getters, such as cuCtxGetCurrent, are no longer probed. Libraries call them as often
// as they launch kernels. A probe costs them more than they take themselves and tells nothing new.
type Getters struct {
	// MaxRate is how often one may be called a second and still be probed.
	MaxRate float64
	// FirstLook is the time until rates are looked at first, Interval the time between later looks.
	FirstLook, Interval time.Duration
}

// DefaultGetters is for recordings that have launches. The first look is late enough to learn the
// contexts of busy threads.
var DefaultGetters = Getters{MaxRate: 2000, FirstLook: 100 * time.Millisecond, Interval: time.Second}

// GettersAlone is for recordings without launches. Their other calls are few, and probes of
// getters would be most of their cost.
var GettersAlone = Getters{MaxRate: 200, FirstLook: 100 * time.Millisecond, Interval: time.Second}

// DropGetters removes the probes of getters that are called more often than the policy allows.
func (s *Sampler) DropGetters(policy Getters, stop <-chan struct{}) {
	last, since := s.Probes.GetterCalls(), time.Now()
	for interval := policy.FirstLook; !clock.Sleep(stop, interval); interval = policy.Interval {
		calls, elapsed := s.Probes.GetterCalls(), time.Since(since)
		since = since.Add(elapsed)
		for name, n := range calls {
			rate := float64(n-last[name]) / elapsed.Seconds()
			if rate < policy.MaxRate || !s.Probes.DropGetter(name) {
				continue
			}
			s.note("getter", rate, fmt.Sprintf("%s was called %.0f times a second: from here on its calls are "+
				"missing (--keep-getters keeps them)", name, rate))
		}
		last = calls
	}
}
