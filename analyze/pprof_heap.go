package analyze

import (
	"cmp"
	"math/bits"
	"slices"
)

var heapColumns = []Column{
	{"alloc_objects", "", UnitCount, "allocations in the window, with --at until that moment"},
	{"alloc_space", "", UnitBytes, "bytes of those"},
	{"inuse_objects", "", UnitCount, "allocations of the window that the program had not freed at its end, or when its process ended; with --at peak and --at TIME, all that were live then: the peak is that of memory on all devices together"},
	{"inuse_space", "", UnitBytes, "bytes of those"},
}

// exactSizes is how many different sizes a place may allocate before further ones
// are put together by powers of two: a sample per size of a program that allocates
// random sizes would make the profile as long as the recording.
const exactSizes = 256

// heapKey is what one sample of the profile stands for.
type heapKey struct {
	origin int32
	bytes  int64
}

type heapValue struct{ allocs, allocBytes, live, liveBytes int64 }

// heap sums up memory by who allocated it and by size.
type heap struct {
	t        *Timeline
	grouping *grouping
	window   Window
	samples  map[heapKey]*heapValue
	sizes    []int // distinct sizes by origin

	// What is live on devices, and how many changes led there; the most that was, and when.
	live, changes           int64
	peak, peakAfter, peakNs int64
}

// profileHeap adds the memory of the window at the moment that opt names.
func (t *Timeline) profileHeap(b *profileBuilder, opt *ProfileOptions) (q Quality, none *NoMatch, err error) {
	by, err := t.groupBy("site", &opt.Filter)
	if err != nil {
		return q, nil, err
	}
	h := &heap{t: t, grouping: by, window: t.activity(&opt.Filter), samples: make(map[heapKey]*heapValue)}
	consume := h.atEnd
	switch opt.At {
	case MemoryAtTime:
		consume = func(_ *programMemory, c *change) {
			if c.atNs <= opt.AtNs {
				h.atMoment(c)
			}
		}
		b.p.Comments = append(b.p.Comments, "in use at "+durText(opt.AtNs-t.Recording().FromNs)+" from the recording's start")
	case MemoryAtPeak:
		if _, err := t.replayProgram(h.findPeak, nil, nil); err != nil {
			return q, nil, err
		}
		consume = h.untilPeak
		b.p.Comments = append(b.p.Comments, "in use at the peak, "+durText(h.peakNs-t.Recording().FromNs)+" from the recording's start")
	}
	memory, err := t.replayProgram(consume, nil, nil)
	if err != nil {
		return q, nil, err
	}
	if len(h.samples) == 0 && t.hasMemory() {
		none = h.grouping.seen.explain(&opt.Filter)
	}
	h.addTo(b)
	return t.programQuality(memory), none, nil
}

// passes reports whether a change is one of memory that the filter lets through.
func (h *heap) passes(c *change) bool {
	if c.atNs > h.window.ToNs || c.what == allocFailed {
		return false
	}
	_, ok := h.grouping.of(c.block.origin, c.block.bytes)
	return ok
}

// atEnd follows what the program allocated in the window and did not free.
func (h *heap) atEnd(_ *programMemory, c *change) {
	if c.block.sinceNs < h.window.FromNs || c.what == freedByExit || !h.passes(c) {
		return
	}
	h.count(c)
}

// atMoment follows what is live, whenever it was allocated.
func (h *heap) atMoment(c *change) {
	if h.passes(c) {
		h.count(c)
	}
}

func (h *heap) count(c *change) {
	v := h.sample(heapKey{c.block.origin, c.block.bytes})
	if c.what != allocated {
		v.live--
		v.liveBytes -= c.block.bytes
		return
	}
	v.live++
	v.liveBytes += c.block.bytes
	if c.atNs >= h.window.FromNs {
		v.allocs++
		v.allocBytes += c.block.bytes
	}
}

// findPeak notes after how many changes most memory of devices was live.
func (h *heap) findPeak(_ *programMemory, c *change) {
	if h.t.onHost(c.block.origin) || !h.passes(c) {
		return
	}
	h.live += signed(c)
	h.changes++
	if h.live > h.peak || c.atNs <= h.window.FromNs {
		h.peak, h.peakAfter, h.peakNs = h.live, h.changes, max(c.atNs, h.window.FromNs)
	}
}

// untilPeak follows what is live until the peak, which findPeak has found.
func (h *heap) untilPeak(_ *programMemory, c *change) {
	if h.peakAfter == 0 {
		return
	}
	h.atMoment(c)
	if !h.t.onHost(c.block.origin) && h.passes(c) {
		h.peakAfter--
	}
}

func (h *heap) sample(key heapKey) *heapValue {
	if v, ok := h.samples[key]; ok {
		return v
	}
	h.sizes = grow(h.sizes, key.origin)
	if h.sizes[key.origin] >= exactSizes {
		key.bytes = roundedSize(key.bytes)
		if v, ok := h.samples[key]; ok {
			return v
		}
	}
	h.sizes[key.origin]++
	v := new(heapValue)
	h.samples[key] = v
	return v
}

// roundedSize is the next power of two.
func roundedSize(bytes int64) int64 { return 1 << bits.Len64(uint64(bytes-1)) & (1<<62 - 1) }

func (h *heap) addTo(b *profileBuilder) {
	keys := make([]heapKey, 0, len(h.samples))
	for k := range h.samples {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b heapKey) int {
		return cmp.Or(cmp.Compare(a.origin, b.origin), cmp.Compare(a.bytes, b.bytes))
	})
	origins := &h.t.origins
	for _, k := range keys {
		o, v := &origins.list[k.origin], h.samples[k]
		b.add(&profileSample{stack: o.stack, api: origins.name(k.origin), kind: origins.memory(k.origin), pid: o.pid, tid: o.tid, device: o.device, stream: o.stream, bytes: k.bytes},
			v.allocs, v.allocBytes, v.live, v.liveBytes)
	}
}
