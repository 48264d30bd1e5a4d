//go:build linux

package record

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
)

// Getters, such as cuCtxGetCurrent, are called by libraries as often as kernels are
// launched. A probe costs them more than they take themselves and tells nothing new, so
// one that is called more than maxGetterRate times a second is no longer probed. A recording
// without launches has the lower limit: its other calls are few, and getters would be its price.
const (
	getterInterval     = time.Second
	firstGetterLook    = 100 * time.Millisecond // long enough to learn the contexts of busy threads
	maxGetterRate      = 2000
	maxGetterRateAlone = 200
)

// dropGetters looks at the getters' rates until stop is closed.
func (s *Session) dropGetters(stop <-chan struct{}) {
	limit := float64(maxGetterRate)
	if len(s.opt.Classes) > 0 && !slices.Contains(s.opt.Classes, format.RecordLaunch) {
		limit = maxGetterRateAlone
	}
	last, since := s.probes.GetterCalls(), time.Now()
	for interval := firstGetterLook; !clock.Sleep(stop, interval); interval = getterInterval {
		calls, elapsed := s.probes.GetterCalls(), time.Since(since)
		since = since.Add(elapsed)
		for name, n := range calls {
			rate := float64(n-last[name]) / elapsed.Seconds()
			if rate < limit || !s.probes.DropGetter(name) {
				continue
			}
			s.scribe.Send([]format.Row{{
				Kind: format.KindNote, Name: "getter", StartNs: s.clock.NowNs(), Device: -1, Value: rate,
				Message: fmt.Sprintf("%s was called %.0f times a second: from here on its calls are missing (--keep-getters keeps them)", name, rate),
			}})
		}
		last = calls
	}
}
