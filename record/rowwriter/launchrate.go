//go:build linux

package rowwriter

import "time"

// launchRate counts launches by process, to find the rate of the busiest one.
type launchRate struct {
	since time.Time
	calls map[int32]int64
}

func newLaunchRate() launchRate { return launchRate{since: time.Now(), calls: make(map[int32]int64)} }

func (r *launchRate) count(pid int32) { r.calls[pid]++ }

// minRateInterval is the shortest time in which a rate shows.
const minRateInterval = 300 * time.Millisecond

// look returns the highest rate, per second, of the interval that ends now, if that is
// long enough to tell.
func (r *launchRate) look(now time.Time) (rate int64, ok bool) {
	elapsed := now.Sub(r.since)
	if elapsed < minRateInterval {
		return 0, false
	}
	for _, n := range r.calls {
		rate = max(rate, int64(float64(n)/elapsed.Seconds()))
	}
	r.since = now
	clear(r.calls)
	return rate, true
}
