//go:build linux

package torchallocator

// assemble returns the state in the last pause, from the hot blocks and the cold ones. It sets missing.
func (s *survey) assemble() (*State, error) {
	w, stats := s.walk, readTotals(s.walk.data[s.layout.stats:])
	s.missing = s.missing[:0]
	w.grow(len(s.store.numbers))
	s.addActive()
	for w.read < len(w.blocks) {
		if err := s.decodeNext(); err != nil {
			return nil, err
		}
	}
	if len(s.missing) > 0 {
		return nil, errIncomplete
	}
	segments, err := w.segments()
	if err != nil {
		return nil, err
	}
	isChosen, err := s.choose(stats)
	if err != nil {
		return nil, err
	}
	if isChosen {
		if segments, err = w.segments(); err != nil {
			return nil, err
		}
	}
	state := &State{
		Device: s.object.device, Version: s.layout.version, Segments: segments, Totals: w.compareTotals(stats),
		AllocatedBytes: stats[allocatedBytesStat][0], ReservedBytes: stats[reservedBytesStat][0],
		LimitBytes: findLimit(w.data, &s.layout),
	}
	return state, firstMismatch(state.Totals)
}

// memoryOf returns the memory that a block had in the pause, or before if it is cold.
func (s *survey) memoryOf(at uint64) (data []byte, ok bool) {
	if data, ok = s.object.image.get(at, s.width()); ok {
		return data, true
	}
	data, ok = s.store.get(at)
	return data, ok && s.isAllocated(data)
}

// addActive adds the blocks that can be active to those of the sets.
func (s *survey) addActive() {
	for i := range s.cached {
		s.heat(s.walk.blocks[i].at, foundTries)
	}
	s.isHot = append(s.isHot[:0], make([]bool, len(s.store.at))...)
	for k, p := range s.object.image.parts {
		if k.length != s.width() || s.object.image.pieces[p.piece].IsMissing {
			continue
		}
		if _, isHot := s.hot[k.at]; !isHot {
			s.heat(k.at, foundTries) // it was found in the pause
		}
		n, isKnown := s.store.numbers[k.at]
		if isKnown {
			s.isHot[n] = true
		}
		isListed := isKnown && s.store.isListed(n)
		if (isListed || s.isAllocated(p.data)) && s.isActive(k.at, p.data) {
			s.walk.addBlock(k.at)
		}
	}
	for _, n := range s.store.all() {
		if s.store.isListed(n) && !s.isHot[n] {
			s.walk.addBlock(s.store.at[n])
			s.walk.blocks[len(s.walk.blocks)-1].cold = n + 1
		}
	}
}

// isActive reports whether a hot block can exist: it is one, and its neighbors agree. Memory that was a block looks so,
// too, but it is not allocated, or no neighbor leads to it.
func (s *survey) isActive(at uint64, data []byte) bool {
	if !s.isBlock(data) {
		return false
	}
	for _, link := range [2][2]int{{s.layout.prev, s.layout.next}, {s.layout.next, s.layout.prev}} {
		neighbor := word(data, link[0])
		if neighbor == 0 {
			continue
		}
		if other, ok := s.memoryOf(neighbor); ok && word(other, link[1]) != at {
			return false
		}
	}
	return true
}

// decodeNext reads the next block of the walk from its memory, and adds its neighbors.
func (s *survey) decodeNext() error {
	w := s.walk
	b := &w.blocks[w.read]
	var data []byte
	ok := b.cold > 0
	if ok {
		data = s.store.of(b.cold - 1)
		ok = s.isAllocated(data)
	} else {
		data, ok = s.memoryOf(b.at)
	}
	if !ok {
		s.missing = append(s.missing, b.at)
		w.read++
		return nil
	}
	b.isActive = w.read >= s.cached && data[s.layout.allocated+1] != 0
	return w.decodeNext(data)
}

// maxChoices bounds the blocks whose requested size is chosen.
const maxChoices = 12

// choice is a cold block with another requested size behind the pause than before. A free block has its last one.
type choice struct {
	block     *block
	requested uint64 // behind the pause
	isSmall   bool
}

// choose finds out which of the cold blocks with another requested size behind the pause had it in the pause already.
// The statistics say what they must add up to. It returns an error unless there is exactly one answer.
func (s *survey) choose(want totals) (isChosen bool, err error) {
	choices, err := s.choices()
	if err != nil || len(choices) == 0 {
		return false, err
	}
	var have totals
	for i := range s.walk.blocks {
		have.addBlock(&s.walk.blocks[i], s.walk.pools[s.walk.blocks[i].pool].isSmall)
	}
	small := want[requestedBytesStat][1] - have[requestedBytesStat][1]
	large := want[requestedBytesStat][2] - have[requestedBytesStat][2]
	answer, answers := 0, 0
	for set := range 1 << len(choices) {
		var sums [2]uint64 // they wrap around
		for i, c := range choices {
			if set>>i&1 == 1 {
				sums[kindIndex(c.isSmall)] += c.requested - c.block.Requested
			}
		}
		if sums[0] == small && sums[1] == large {
			answer = set
			answers++
		}
	}
	if answers != 1 {
		return false, errChanged
	}
	for i, c := range choices {
		if answer>>i&1 == 1 {
			c.block.Requested = c.requested
		}
	}
	return answer != 0, nil
}

// kindIndex returns 0 for small pools and 1 for large ones.
func kindIndex(isSmall bool) int {
	if isSmall {
		return 0
	}
	return 1
}

// choices returns the cold blocks with another requested size behind the pause. All other members were in the pause as
// before, or the statistics would differ, but for three cases that are errors: the only block of a segment can have got
// another segment, two neighbors can have exchanged their sizes, and a block with another size or none can have
// exchanged its request with another one. The memory of a deleted block keeps its last request, until it is used again.
func (s *survey) choices() (list []choice, err error) {
	l, lost := &s.layout.blockLayout, 0
	moved := make(map[uint64]bool)
	for _, c := range s.changed {
		at := s.store.at[c.number]
		i, isRead := s.walk.places[at]
		if !isRead || s.object.image.has(at, s.width()) {
			continue // it was read in the pause, or was none
		}
		b := &s.walk.blocks[i]
		isSame := c.data != nil && s.isBlock(c.data) && word(c.data, l.size) == b.Bytes &&
			word(c.data, l.ptr) == b.Address && word(c.data, l.pool) == b.pool
		if !isSame {
			isAlone := b.prev == 0 && b.next == 0
			if isAlone || moved[b.prev] || moved[b.next] {
				return nil, errChanged
			}
			moved[at] = true
		}
		switch {
		case c.data != nil && word(c.data, l.requested) == b.Requested:
		case isSame:
			list = append(list, choice{b, word(c.data, l.requested), s.walk.pools[b.pool].isSmall})
		default:
			lost++
		}
	}
	if len(list) > maxChoices || lost > 0 && lost+len(list) > 1 {
		return nil, errChanged
	}
	return list, nil
}
