//go:build linux

package torchallocator

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
)

// survey reads the blocks of an allocator that pauses too shortly for a reading of all of them. Most blocks of a large
// heap are cold: the program keeps them, and they do not change for seconds. A reading has three steps:
//
//  1. learn reads all blocks of the table of active blocks, while the allocator works.
//  2. readPause reads in a pause what can have changed: the sets of free blocks, all blocks that are not allocated,
//     and those that changed lately. These are hot.
//  3. readAgain reads the cold blocks again. One that has the same memory before and behind the pause had it in it.
//
// The sets are those of the pause, so a cold block that was freed before the pause is found in one of them. All other
// memory of the segments is active then, and the statistics say in how many blocks. ADR 39 has the whole argument.
type survey struct {
	object object // with an image of the hot parts
	layout layout
	store  *blockStore
	hot    map[uint64]int // blocks in the image, by address: the last try in which they are hot
	recent map[uint64]int // blocks that changed while they were cold: the try
	try    int

	pending []int32 // numbers of blocks that learn reads twice
	walk    *walk   // of the last pause
	cached  int     // blocks of the walk that are in a set
	isHot   []bool  // by number in the store, in assemble
	changed []change
	missing []uint64 // blocks that another one points to, and that were not read in the pause
	// following are the parts whose links followNew follows.
	following []*imagePart
}

// change is a cold block whose memory differs behind the pause.
type change struct {
	number int32
	data   []byte // behind the pause; nil: it could not be read
}

// Numbers of tries.
const (
	foundTries  = 2  // in which a block is hot that was found in a pause, or was in a set
	hotTries    = 8  // in which a block is hot that changes often
	recentTries = 16 // between two changes of a block that changes often
)

// Bounds of what is found in a pause.
const (
	maxLinkRounds = 64
	maxLinkLoads  = 4096
)

// maxQuietMisfits is the number of tries without any change of the allocator whose blocks contradict each other. Then
// the layout is wrong.
const maxQuietMisfits = 3

// errIncomplete is the reason if blocks were not read in the pause. The next try reads them.
var errIncomplete = errors.New("a block that another one points to was not read")

// errChanged is the reason if it is not certain how a cold block was in the pause.
var errChanged = errors.New("blocks that do not change mostly have changed")

func newSurvey(m Memory, o *object, l *layout) *survey {
	s := &survey{object: *o, layout: *l, store: newBlockStore(m, int(l.blockLayout.bytes())), hot: make(map[uint64]int)}
	s.recent = make(map[uint64]int)
	s.object.image = newImage(m)
	return s
}

// survey returns the survey of an object with a layout.
func (o *object) surveyWith(m Memory, l *layout) *survey {
	if o.survey == nil || o.survey.layout != *l {
		o.survey = newSurvey(m, o, l)
	}
	return o.survey
}

// read reads the blocks. Its errors are those of Reader.read, and misfits.
func (s *survey) read(ctx context.Context, r *Reader) (*State, error) {
	w := &window{r: r, object: &s.object, device: s.layout.deviceLayout, quiet: min(r.quiet, shortQuietTime)}
	first, last := w.newHead().Data, w.newHead().Data
	s.store.calls, s.store.readBytes = 0, 0
	for misfits := 0; ctx.Err() == nil; {
		if err := w.readHead(first); err != nil {
			return nil, err
		}
		state, err := s.tryOnce(ctx, w, first)
		switch {
		case err == nil:
			state = w.finish(state)
			state.Calls += s.store.calls
			state.ReadBytes += s.store.readBytes
			return state, nil
		case !isMisfit(err):
			return nil, err
		}
		if readErr := w.readHead(last); readErr != nil {
			return nil, readErr
		}
		isQuiet := w.device.isQuiet(first) && w.device.haveSameHead(first, last)
		if misfits++; !isQuiet {
			misfits = 0
		}
		if misfits == maxQuietMisfits {
			return nil, err
		}
	}
	return nil, &BusyError{Tries: w.tries}
}

// tryOnce reads the blocks once. head is the memory with the head.
func (s *survey) tryOnce(ctx context.Context, w *window, head []byte) (*State, error) {
	if err := s.learn(head); err != nil {
		return nil, err
	}
	if err := w.run(ctx, s.readPause); err != nil {
		return nil, err
	}
	if err := s.readAgain(); err != nil {
		return nil, err
	}
	state, err := s.assemble()
	s.noteChanges()
	if len(s.missing) > 0 {
		for _, at := range s.missing {
			s.heat(at, foundTries)
		}
		if err := s.object.image.load(s.missing, s.width()); isMisfit(err) || err == nil {
			return nil, errIncomplete
		} else {
			return nil, err
		}
	}
	return state, err
}

func (s *survey) width() uint64 { return uint64(s.store.width) }

// noteChanges stores the changes of cold blocks. A block becomes hot with the second one.
func (s *survey) noteChanges() {
	for _, c := range s.changed {
		at := s.store.at[c.number]
		if _, isRecent := s.recent[at]; isRecent {
			s.heat(at, hotTries)
		}
		s.recent[at] = s.try
		copy(s.store.of(c.number), c.data)
	}
}

// heat makes a block hot for some tries.
func (s *survey) heat(at uint64, tries int) { s.hot[at] = max(s.hot[at], s.try+tries) }

// cool makes those blocks cold that did not change for some tries.
func (s *survey) cool() {
	for at, last := range s.hot {
		if s.try > last {
			delete(s.hot, at)
			s.object.image.drop(at, s.width())
		}
	}
	maps.DeleteFunc(s.recent, func(_ uint64, try int) bool { return s.try-try > recentTries })
}

// learn reads all blocks of the table of active blocks. Those that change while it reads become hot. head is the memory
// with the head.
func (s *survey) learn(head []byte) error {
	s.try++
	s.cool()
	t, ok := readTable(head[s.layout.active:], maxBlocks)
	if !ok {
		return errUnreadable
	}
	added, err := s.store.follow(t)
	if err != nil {
		return err
	}
	isNew := make(map[int32]bool, len(added))
	for _, n := range added {
		isNew[n] = true
	}
	s.pending = s.pending[:0]
	err = s.store.read(s.store.all(), func(n int32, data []byte) {
		if isNew[n] || !bytes.Equal(data, s.store.of(n)) || data[s.layout.allocated] != 1 {
			s.pending = append(s.pending, n)
			copy(s.store.of(n), data)
		}
	})
	if err != nil {
		return err
	}
	err = s.store.read(s.pending, func(n int32, data []byte) {
		if !bytes.Equal(data, s.store.of(n)) || s.store.of(n)[s.layout.allocated] != 1 {
			s.heat(s.store.at[n], hotTries)
			copy(s.store.of(n), data)
		}
	})
	if err != nil {
		return err
	}
	if err := s.glance(); err != nil {
		return err
	}
	if err := s.loadHot(); err != nil {
		return err
	}
	return s.followAgain()
}

// loadHot loads the hot blocks, and neighbors of new and changed ones that are not known yet. They came after the table
// was read.
func (s *survey) loadHot() error {
	img, list := s.object.image, slices.Collect(maps.Keys(s.hot))
	for _, n := range s.pending {
		for _, link := range [2]int{s.layout.prev, s.layout.next} {
			neighbor := word(s.store.of(n), link)
			if _, isKnown := s.store.get(neighbor); neighbor != 0 && neighbor%8 == 0 && !isKnown {
				list = append(list, neighbor)
			}
		}
	}
	err := img.load(list, s.width())
	if err == nil {
		err = s.followLinks(list)
	}
	if isMisfit(err) {
		return nil // they changed meanwhile
	}
	return err
}

// maxGlances bounds the tries of glance. Most fail because the sets change meanwhile.
const maxGlances = 8

// glance loads the blocks of the sets as they are now: some of them will be given out before the pause.
func (s *survey) glance() error {
	img := s.object.image
	for range maxGlances {
		if err := img.prepare(); err != nil {
			return err
		}
		img.missing = 0
		if err := img.readPieces(img.pieces); err != nil && !isMisfit(err) {
			return err
		}
		if err := s.readPause(); err == nil || !isMisfit(err) {
			return err
		}
	}
	return nil
}

// readPause reads the hot parts. It loads blocks that are not known yet, and to which hot ones lead.
func (s *survey) readPause() error {
	img := s.object.image
	data, err := readObject(img, &s.object)
	if err != nil {
		return err
	}
	if len(data) < s.layout.headEnd() {
		return errUnreadable
	}
	s.walk = newWalk(&s.object, &s.layout, data, s.width(), s.cached)
	if err := s.walk.addAllPools(); err != nil {
		return err
	}
	if err := s.walk.readNodes(); err != nil {
		return err
	}
	s.cached = len(s.walk.blocks)
	list := make([]uint64, s.cached)
	for i := range list {
		list[i] = s.walk.blocks[i].at
	}
	if err := img.load(list, s.width()); err != nil {
		return err
	}
	return s.followNew(list)
}

// followNew follows the links of all allocated blocks in the image and of the blocks of a list, but not those of memory
// that was followed before: the allocator does not pause for long.
func (s *survey) followNew(list []uint64) error {
	img := s.object.image
	s.following = s.following[:0]
	changed := list[:0]
	for _, at := range list {
		if p := img.parts[key{at, s.width()}]; p != nil && !bytes.Equal(p.data, p.followed) {
			changed = append(changed, at)
			s.following = append(s.following, p)
		}
	}
	for k, p := range img.parts {
		if k.length == s.width() && !img.pieces[p.piece].IsMissing && !bytes.Equal(p.data, p.followed) &&
			s.isBlock(p.data) && s.isAllocated(p.data) {
			changed = append(changed, k.at)
			s.following = append(s.following, p)
		}
	}
	if err := s.followLinks(changed); err != nil {
		return err
	}
	for _, p := range s.following {
		p.followed = append(p.followed[:0], p.data...)
	}
	return nil
}

// followAgain forgets what was followed, and follows all links while the allocator works.
func (s *survey) followAgain() error {
	for _, p := range s.object.image.parts {
		p.followed = p.followed[:0]
	}
	if s.walk == nil {
		return nil
	}
	err := s.followNew(nil)
	if isMisfit(err) {
		return nil // they changed meanwhile
	}
	return err
}

// followLinks loads those neighbors of hot blocks that are not known, or that the store knows with other neighbors.
func (s *survey) followLinks(list []uint64) error {
	img, loads := s.object.image, 0
	for range maxLinkRounds {
		var next []uint64
		for _, at := range list {
			data, ok := img.get(at, s.width())
			if !ok || !s.isBlock(data) {
				continue
			}
			for _, link := range [2][2]int{{s.layout.prev, s.layout.next}, {s.layout.next, s.layout.prev}} {
				neighbor := word(data, link[0])
				if neighbor == 0 || img.has(neighbor, s.width()) {
					continue
				}
				if known, ok := s.store.get(neighbor); !ok || word(known, link[1]) != at {
					next = append(next, neighbor)
				}
			}
		}
		if len(next) == 0 {
			return nil
		}
		if loads += len(next); loads > maxLinkLoads {
			return errDamaged
		}
		if err := img.load(next, s.width()); err != nil {
			return err
		}
		list = next
	}
	return errDamaged
}

// isBlock reports whether memory can be a block of this allocator.
func (s *survey) isBlock(data []byte) bool {
	l := &s.layout.blockLayout
	areFlags := data[l.allocated] <= 1 && data[l.allocated+1] <= 1
	isHere := int(data[blockDeviceOffset]) == s.object.device && word(data, l.ptr) != 0
	if s.walk == nil || !areFlags || !isHere || !isSize(word(data, l.size)) {
		return false
	}
	_, isKnown := s.walk.pools[word(data, l.pool)]
	return isKnown
}

func (s *survey) isAllocated(data []byte) bool { return data[s.layout.allocated] != 0 }

// readAgain reads the cold blocks again, and keeps the memory of those that have changed.
func (s *survey) readAgain() error {
	s.changed = s.changed[:0]
	return s.store.read(s.store.all(), func(n int32, data []byte) {
		if !bytes.Equal(data, s.store.of(n)) {
			s.changed = append(s.changed, change{n, bytes.Clone(data)})
		}
	})
}
