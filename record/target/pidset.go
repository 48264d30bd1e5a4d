//go:build linux

package target

import (
	"maps"
	"slices"
	"sync"
)

// pidSet collects processes; safe for concurrent use.
type pidSet struct {
	mu   sync.Mutex
	pids map[int]bool
	news chan struct{} // has an element when a process has come into the empty set
}

func newPidSet() *pidSet { return &pidSet{pids: make(map[int]bool), news: make(chan struct{}, 1)} }

func (s *pidSet) add(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pids[pid] = true
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// take empties the set.
func (s *pidSet) take() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	pids := slices.Collect(maps.Keys(s.pids))
	clear(s.pids)
	return pids
}
