//go:build linux

package torchallocator

import "slices"

// fields searches the places of members of Block. It knows the memory of blocks, and what the members of active blocks
// must add up to.
type fields struct {
	active [][]byte // memory of the active blocks
	cached [][]byte // and of free ones in the sets
	width  int      // bytes of each
	want   totals
	pools  []uint64 // addresses of BlockPools
	memory Memory

	targets map[int][]target // by offset: blocks that a member points to
}

// target is the memory of an object that a block points to.
type target struct{ from, to []byte }

// Bounds of the search.
const (
	firstMember   = 16   // behind device and stream
	maxTargets    = 256  // objects that are read for each offset
	minHeapObject = 4096 // no object lies in the first page
	endOfUser     = 1 << 47
)

// searchFields returns the layouts that the memory of active blocks may have.
func searchFields(f *fields) (list []blockLayout, err error) {
	if err := f.readTargets(); err != nil {
		return nil, err
	}
	sizes := f.words(func(o int) bool { return f.sum(o) == f.want[activeBytesStat][0] && f.all(o, isSize) })
	pools := f.words(func(o int) bool {
		return f.all(o, func(w uint64) bool { return slices.Contains(f.pools, w) })
	})
	for _, size := range sizes {
		for _, l := range f.chains(size) {
			for _, l.allocated = range f.flags(&l) {
				for _, l.requested = range f.requests(size) {
					for _, l.pool = range pools {
						if list = append(list, l); len(list) == maxCandidates {
							return list, nil
						}
					}
				}
			}
		}
	}
	return list, nil
}

// isSize reports whether a number can be the size of a block.
func isSize(n uint64) bool { return n != 0 && n%blockUnit == 0 && n < 1<<48 }

// words returns the offsets of words that may be a member.
func (f *fields) words(isMember func(offset int) bool) (offsets []int) {
	for o := firstMember; o+8 <= f.width; o += 8 {
		if isMember(o) {
			offsets = append(offsets, o)
		}
	}
	return offsets
}

func (f *fields) all(offset int, holds func(uint64) bool) bool {
	return !slices.ContainsFunc(f.active, func(d []byte) bool { return !holds(word(d, offset)) })
}

func (f *fields) sum(offset int) (n uint64) {
	for _, d := range f.active {
		n += word(d, offset)
	}
	return n
}

// readTargets reads the objects that words of blocks may point to.
func (f *fields) readTargets() error {
	f.targets = make(map[int][]target)
	blocks := slices.Concat(f.active, f.cached)
	for _, o := range f.words(func(o int) bool { return f.all(o, isPointer) }) {
		var from [][]byte
		var to []uint64
		for _, d := range blocks {
			if w := word(d, o); w != 0 && len(to) < maxTargets && !slices.Contains(f.pools, w) {
				from, to = append(from, d), append(to, w)
			}
		}
		img := newImage(f.memory)
		if err := img.load(to, uint64(f.width)); err == errUnreadable || err == errTooLarge {
			continue // other words
		} else if err != nil {
			return err
		}
		var list []target
		for i, at := range to {
			if data, ok := img.get(at, uint64(f.width)); ok {
				list = append(list, target{from[i], data})
			}
		}
		if len(list) == len(to) && len(list) > 0 {
			f.targets[o] = list
		}
	}
	return nil
}

// isPointer reports whether a word can be a pointer to a block, or null.
func isPointer(w uint64) bool { return w == 0 || w%8 == 0 && w >= minHeapObject && w < endOfUser }

// chains returns layouts with members ptr, next and prev: the block behind another one begins where this one ends.
func (f *fields) chains(size int) (list []blockLayout) {
	isAddress := func(w uint64) bool { return w != 0 && w%blockUnit == 0 && w < 1<<57 }
	for _, ptr := range f.words(func(o int) bool { return o != size && f.all(o, isAddress) && f.areDifferent(o) }) {
		follows := func(before, after []byte) bool {
			return word(after, ptr) == word(before, ptr)+word(before, size) && isSize(word(after, size))
		}
		var nexts, prevs []int
		for o, targets := range f.targets {
			if !slices.ContainsFunc(targets, func(t target) bool { return !follows(t.from, t.to) }) {
				nexts = append(nexts, o)
			}
			if !slices.ContainsFunc(targets, func(t target) bool { return !follows(t.to, t.from) }) {
				prevs = append(prevs, o)
			}
		}
		slices.Sort(nexts)
		slices.Sort(prevs)
		for _, next := range nexts {
			for _, prev := range prevs {
				list = append(list, blockLayout{size: size, ptr: ptr, next: next, prev: prev})
			}
		}
	}
	return list
}

// areDifferent reports whether no two blocks have the same word.
func (f *fields) areDifferent(offset int) bool {
	seen := make(map[uint64]bool, len(f.active))
	for _, d := range f.active {
		seen[word(d, offset)] = true
	}
	return len(seen) == len(f.active)
}

// flags returns the offsets of the byte that says whether the program uses a block. The byte behind it says whether the
// block is mapped. Blocks that are neighbors and not active are free.
func (f *fields) flags(l *blockLayout) (offsets []int) {
	for o := firstMember; o+2 <= f.width; o++ {
		var blocks, bytes uint64
		isFlag := true
		for _, d := range f.active {
			if isFlag = isFlag && d[o] <= 1 && d[o+1] == 1; d[o] == 1 {
				blocks++
				bytes += word(d, l.size)
			}
		}
		if isFlag && blocks == f.want[allocationStat][0] && bytes == f.want[allocatedBytesStat][0] {
			offsets = append(offsets, o)
		}
	}
	return offsets
}

// requests returns the offsets of the requested size.
func (f *fields) requests(size int) []int {
	isRequest := func(o int) bool {
		if o == size || f.sum(o) != f.want[requestedBytesStat][0] {
			return false
		}
		return !slices.ContainsFunc(f.active, func(d []byte) bool { return word(d, o) > word(d, size) })
	}
	return f.words(isRequest)
}
