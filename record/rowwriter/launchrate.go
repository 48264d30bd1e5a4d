//go:build linux

package rowwriter

import "time"

// launchRateMeter counts kernel launches by process, to find the rate of the busiest process.
type launchRateMeter struct {
	since time.Time
	calls map[int32]int64
}

func newLaunchRateMeter() launchRateMeter {
	return launchRateMeter{since: time.Now(), calls: make(map[int32]int64)}
}

func (r *launchRateMeter) countLaunch(pid int32) { r.calls[pid]++ }

// minLaunchRateInterval is the shortest interval over which the launch rate is computed.
const minLaunchRateInterval = 300 * time.Millisecond

// updateRate returns the highest launch rate of a process, per second, in the interval that ends
// now, and starts the next interval. ok is false if the interval is shorter than
// minLaunchRateInterval.
func (r *launchRateMeter) updateRate(now time.Time) (rate int64, ok bool) {
	elapsed := now.Sub(r.since)
	if elapsed < minLaunchRateInterval {
		return 0, false
	}
	for _, n := range r.calls {
		rate = max(rate, int64(float64(n)/elapsed.Seconds()))
	}
	r.since = now
	clear(r.calls)
	return rate, true
}
