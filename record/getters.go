//go:build linux

package record

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
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
	last, since := s.probes.getterCalls(), time.Now()
	for interval := firstGetterLook; !sleep(stop, interval); interval = getterInterval {
		calls, elapsed := s.probes.getterCalls(), time.Since(since)
		since = since.Add(elapsed)
		for name, n := range calls {
			rate := float64(n-last[name]) / elapsed.Seconds()
			if rate < limit || !s.probes.dropGetter(name) {
				continue
			}
			s.scribe.send([]format.Row{{
				Kind: format.KindNote, Name: "getter", StartNs: s.clock.now(), Device: -1, Value: rate,
				Message: fmt.Sprintf("%s was called %.0f times a second: from here on its calls are missing (--keep-getters keeps them)", name, rate),
			}})
		}
		last = calls
	}
}

// getterCalls returns how often each getter has been called.
func (p *probes) getterCalls() map[string]uint64 {
	calls := make(map[string]uint64)
	for cookie := range bpf.NumCookies() {
		call, _, _, _ := bpf.ByCookie(uint16(cookie))
		if !call.Getter {
			continue
		}
		var cpus []uint64
		if p.objects.Counts.Lookup(uint32(cookie), &cpus) == nil {
			for _, n := range cpus {
				calls[call.Name] += n
			}
		}
	}
	return calls
}

// dropGetter removes the probes of a getter; it reports whether there were any. Calls
// under way return before their return probe goes.
func (p *probes) dropGetter(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	links := p.getters[name]
	delete(p.getters, name)
	if links == nil {
		return false
	}
	err := closeLinks(links.entries)
	time.Sleep(10 * time.Millisecond)
	// A link that cannot be closed goes with the process: there is nothing to be done.
	_ = errors.Join(err, closeLinks(links.returns))
	return true
}
