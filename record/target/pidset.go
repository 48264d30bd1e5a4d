//go:build linux

package target

import (
	"maps"
	"slices"
	"sync"
)

// pidSet is a set of process numbers. Safe for concurrent use.
type pidSet struct {
	mu   sync.Mutex
	pids map[int]bool
	news chan struct{} // receives an element when a process is added; capacity 1
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

// takeAll empties the set and returns its elements.
func (s *pidSet) takeAll() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	pids := slices.Collect(maps.Keys(s.pids))
	clear(s.pids)
	return pids
}
