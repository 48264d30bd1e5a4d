//go:build linux

package probe

import "sync"

// MissingTimes are the times in which launches are not recorded, on CLOCK_MONOTONIC, in order.
// The last one may not have ended. Safe for concurrent use.
type MissingTimes struct {
	mu    sync.Mutex
	times []missingTime
}

type missingTime struct{ fromNs, toNs int64 } // toNs 0: not ended

// Begin notes that launches are not recorded from a time on.
func (m *MissingTimes) Begin(ns int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times = append(m.times, missingTime{fromNs: ns})
}

// End notes that launches are recorded again from a time on.
func (m *MissingTimes) End(ns int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times[len(m.times)-1].toNs = ns
}

// Overlaps reports whether launches were not recorded in some of the time.
func (m *MissingTimes) Overlaps(fromNs, toNs int64) bool {
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
