//go:build linux

package communicator

import "math"

// maxRanks bounds a plausible number of ranks.
const maxRanks = 1 << 20

// State has the numbers of a communicator, as the library stores them.
type State struct {
	// Hash is NCCL's commHash, equal on all ranks.
	Hash       uint64
	Rank, Size int32
	// Counts are the collectives that were launched, in the order of Functions. Send, Recv, operations of captured
	// graphs and of communicators with one rank are not in it.
	Counts [len(Functions)]uint64
	// HasCounts is false if this version does not count.
	HasCounts bool
}

// Launched returns the number of collectives that were launched.
func (s *State) Launched() (sum uint64) {
	for _, n := range s.Counts {
		sum += n
	}
	return sum
}

// CountsByFunction returns the counts that are not 0, by name of Functions.
func (s *State) CountsByFunction() map[string]int64 {
	counts := make(map[string]int64)
	for i, n := range s.Counts {
		if n > 0 {
			counts[Functions[i]] = int64(min(n, math.MaxInt64))
		}
	}
	return counts
}

// Read reads the communicator at an address of a process. ok is false if the memory cannot be read, or the
// communicator is not initialized.
func (l *Layout) Read(pid int, at uint64) (s State, ok bool) {
	return l.read(&processMemory{pid: pid}, at)
}

func (l *Layout) read(m memory, at uint64) (s State, ok bool) {
	var identity [2]uint64
	var first, last [1]uint64
	if !readWords(m, at, first[:]) || !readWords(m, at+l.EndMagic, last[:]) || first[0] != magic ||
		last[0] != magic ||
		!readWords(m, at+l.Hash, identity[:]) {
		return State{}, false
	}
	s = State{Hash: identity[0], Rank: int32(identity[1]), Size: int32(identity[1] >> 32)}
	if s.Hash == 0 || s.Size < 1 || s.Size > maxRanks || s.Rank < 0 || s.Rank >= s.Size {
		return State{}, false
	}
	s.HasCounts = l.Counters != 0 && readWords(m, at+l.Counters, s.Counts[:])
	return s, true
}
