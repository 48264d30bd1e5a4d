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

// memoryOf returns the memory that a block had in the pause. isHot is false if it was read before.
func (s *survey) memoryOf(at uint64) (data []byte, isHot, ok bool) {
	if data, ok = s.object.image.get(at, s.width()); ok {
		return data, true, true
	}
	data, ok = s.store.get(at)
	return data, false, ok && s.isAllocated(data)
}

// addActive adds the blocks that can be active to those of the sets.
func (s *survey) addActive() {
	img := s.object.image
	for _, n := range s.store.all() {
		at := s.store.at[n]
		if data, ok := img.get(at, s.width()); !ok || s.isActive(at, data) {
			s.walk.addBlock(at)
		}
	}
	for i := range s.cached {
		s.heat(s.walk.blocks[i].at, foundTries)
	}
	for k, p := range img.parts {
		if k.length != s.width() || img.pieces[p.piece].IsMissing {
			continue
		}
		if _, isHot := s.hot[k.at]; !isHot {
			s.heat(k.at, foundTries) // it was found in the pause
		}
		if s.isAllocated(p.data) && s.isActive(k.at, p.data) {
			s.walk.addBlock(k.at)
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
		if other, _, ok := s.memoryOf(neighbor); ok && word(other, link[1]) != at {
			return false
		}
	}
	return true
}

// decodeNext reads the next block of the walk from its memory, and adds its neighbors.
func (s *survey) decodeNext() error {
	w := s.walk
	b := &w.blocks[w.read]
	data, _, ok := s.memoryOf(b.at)
	if !ok {
		s.missing = append(s.missing, b.at)
		w.read++
		return nil
	}
	b.isActive = w.read >= s.cached && data[s.layout.allocated+1] != 0
	w.read++
	if err := w.decode(b, data); err != nil {
		return err
	}
	prev, next := b.prev, b.next // b is invalid when blocks grow
	w.addBlock(prev)
	w.addBlock(next)
	if len(w.blocks) > maxBlocks {
		return errTooLarge
	}
	return nil
}

// maxChoices bounds the blocks whose requested size is chosen.
const maxChoices = 12

// choice is a cold block with another requested size behind the pause than before.
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

// choices returns the cold blocks that are still allocated behind the pause, with another requested size. Blocks that are
// not, or that have other neighbors, were in the pause as before, or the statistics would differ. Two blocks with
// another size or address can have exchanged it, so they are an error.
func (s *survey) choices() (list []choice, err error) {
	l, resized := &s.layout.blockLayout, 0
	for _, c := range s.changed {
		at := s.store.at[c.number]
		i, isRead := s.walk.places[at]
		if !isRead || c.data == nil || s.object.image.has(at, s.width()) || !s.isBlock(c.data) ||
			!s.isAllocated(c.data) {
			continue
		}
		b := &s.walk.blocks[i]
		if word(c.data, l.size) != b.Bytes || word(c.data, l.ptr) != b.Address || word(c.data, l.pool) != b.pool {
			resized++
			continue
		}
		if requested := word(c.data, l.requested); requested != b.Requested {
			list = append(list, choice{b, requested, s.walk.pools[b.pool].isSmall})
		}
	}
	if resized > 1 || len(list) > maxChoices {
		return nil, errChanged
	}
	return list, nil
}
