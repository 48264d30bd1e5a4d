package threadstate

import "time"

// Times of snapshots of silent processes, since the last call of the process.
const (
	// startSilence is for processes that have made no call since the start of the recording.
	startSilence  = 2 * time.Second
	firstSilence  = 10 * time.Second
	secondSilence = 60 * time.Second
)

// silence finds processes that have stopped to make calls. It is not safe for concurrent use.
type silence struct {
	processes map[int]*callHistory
}

// callHistory has the calls of a process at the last reading.
type callHistory struct {
	hits      uint64    // probe hits of all threads
	since     time.Time // of the last reading that differed, or the first reading
	called    bool      // it made a call before or in the recording, so silence means something
	snapshots int       // since it is silent
}

func newSilence() silence { return silence{make(map[int]*callHistory)} }

// expectCalls adds processes that used CUDA before the recording.
func (s *silence) expectCalls(pids []int, now time.Time) {
	for _, pid := range pids {
		s.processes[pid] = &callHistory{since: now, called: true}
	}
}

// update takes the probe hits of all processes, and returns the processes that need a snapshot now.
func (s *silence) update(hits map[int]uint64, now time.Time) (due []int) {
	for pid, n := range hits {
		h := s.processes[pid]
		if h == nil {
			h = &callHistory{since: now}
			s.processes[pid] = h
		}
		if n != h.hits {
			*h = callHistory{hits: n, since: now, called: true}
		} else if h.called && now.Sub(h.since) >= h.nextSnapshot() {
			h.snapshots++
			due = append(due, pid)
		}
	}
	for pid := range s.processes {
		if _, ok := hits[pid]; !ok {
			delete(s.processes, pid) // it has ended
		}
	}
	return due
}

// never is longer than any recording.
const never = 1 << 62

// nextSnapshot returns the length of the silence at which the next snapshot is due.
func (h *callHistory) nextSnapshot() time.Duration {
	switch {
	case h.snapshots == 0 && h.hits == 0:
		return startSilence
	case h.snapshots == 0:
		return firstSilence
	case h.snapshots == 1:
		return secondSilence
	}
	return never
}
