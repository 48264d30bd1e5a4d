//go:build linux

package sampling

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpurec/gpurec/record/clock"
)

// GetterPolicy is the policy for probes of getters such as cuCtxGetCurrent. Libraries call getters
// as often as they launch kernels. A probe costs more than the getter itself and records no new
// information.
type GetterPolicy struct {
	// MaxRate is the largest number of calls per second up to which a getter stays probed.
	MaxRate float64
	// FirstCheck is the time until the first check of rates, Interval the time between later checks.
	FirstCheck, Interval time.Duration
}

// DefaultGetterPolicy is the policy for getters in recordings with kernel launches. The first check
// is late enough to record the contexts of busy threads.
var DefaultGetterPolicy = GetterPolicy{MaxRate: 2000, FirstCheck: 50 * time.Millisecond, Interval: time.Second}

// GetterPolicyWithoutLaunches is the policy for recordings without launches. Such recordings have
// few other calls, so probes of getters would be most of the overhead.
var GetterPolicyWithoutLaunches = GetterPolicy{MaxRate: 200, FirstCheck: 100 * time.Millisecond, Interval: time.Second}

// RemoveGetterProbes removes probes of getters that exceed the policy's rate, until stop is closed.
func (s *Sampler) RemoveGetterProbes(policy GetterPolicy, stop <-chan struct{}) {
	last, since := s.Probes.GetterCalls(), time.Now()
	for interval := policy.FirstCheck; !clock.Sleep(stop, interval); interval = policy.Interval {
		calls, elapsed := s.Probes.GetterCalls(), time.Since(since)
		since = since.Add(elapsed)
		rates := make(map[string]float64)
		for name, n := range calls {
			if rate := float64(n-last[name]) / elapsed.Seconds(); rate >= policy.MaxRate {
				rates[name] = rate
			}
		}
		last = calls
		for _, name := range s.Probes.RemoveGetterProbes(slices.Sorted(maps.Keys(rates))) {
			s.writeNote("getter", rates[name], fmt.Sprintf("%s was called %.0f times a second: its later calls are "+
				"missing (--keep-getters keeps them)", name, rates[name]))
		}
	}
}
