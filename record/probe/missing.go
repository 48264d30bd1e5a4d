//go:build linux

package probe

import "sync"

// MissingLaunchTimes holds the periods in which kernel launches are not recorded, on
// CLOCK_MONOTONIC, in ascending order. The last period may be unfinished. Safe for concurrent use.
type MissingLaunchTimes struct {
	mu    sync.Mutex
	times []missingLaunchTime
}

// missingLaunchTime is a period in which kernel launches are not recorded; toNs is 0 while the
// period is unfinished.
type missingLaunchTime struct{ fromNs, toNs int64 }

// Begin starts a period in which kernel launches are not recorded.
func (m *MissingLaunchTimes) Begin(ns int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times = append(m.times, missingLaunchTime{fromNs: ns})
}

// End ends the last period in which kernel launches are not recorded.
func (m *MissingLaunchTimes) End(ns int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times[len(m.times)-1].toNs = ns
}

// Overlaps reports whether launches were not recorded in a part of the time from fromNs to toNs.
func (m *MissingLaunchTimes) Overlaps(fromNs, toNs int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := len(m.times) - 1; i >= 0; i-- {
		if t := m.times[i]; t.toNs != 0 && t.toNs <= fromNs {
			return false
		} else if t.fromNs < toNs {
			return true
		}
	}
	return false
}
