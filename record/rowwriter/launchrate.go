//go:build linux

package rowwriter

import "time"

// launchRate counts kernel launches by process, to find the rate of the busiest process.
type launchRate struct {
	since time.Time
	calls map[int32]int64
}

func newLaunchRate() launchRate { return launchRate{since: time.Now(), calls: make(map[int32]int64)} }

func (r *launchRate) count(pid int32) { r.calls[pid]++ }

// minRateInterval is the shortest interval over which the launch rate is computed.
const minRateInterval = 300 * time.Millisecond

// update returns the highest rate, per second, in the interval that ends now, and starts the next
// interval. ok is false if the interval is shorter than minRateInterval.
func (r *launchRate) update(now time.Time) (rate int64, ok bool) {
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
