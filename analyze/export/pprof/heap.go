package pprof

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
)

var heapColumns = []report.Column{
	{
		Key: "alloc_objects", Title: "", Unit: report.UnitCount,
		About: "allocations in the window, with --at until that moment",
	},
	{Key: "alloc_space", Title: "", Unit: report.UnitBytes, About: "bytes of those"},
	{
		Key: "inuse_objects", Title: "", Unit: report.UnitCount,
		About: "allocations of the window that the program had not freed at its end, or when its process ended; " +
			"with --at peak and --at TIME, all that were live then: the peak is that of memory on all devices " +
			"together",
	},
	{Key: "inuse_space", Title: "", Unit: report.UnitBytes, About: "bytes of those"},
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
	t        *timeline.Timeline
	grouping *group.Grouping
	window   query.Window
	samples  map[heapKey]*heapValue
	sizes    []int // distinct sizes by origin

	// What is live on devices, and how many changes led there; the most that was, and when.
	live, changes           int64
	peak, peakAfter, peakNs int64
}

// profileHeap adds the memory of the window at the moment that opt names.
func profileHeap(
	t *timeline.Timeline,
	b *profileBuilder,
	opt *Options,
) (q report.Quality, none *query.NoMatch, err error) {
	by, err := group.New(t, "site", &opt.Filter)
	if err != nil {
		return q, nil, err
	}
	h := &heap{t: t, grouping: by, window: t.Activity(&opt.Filter), samples: make(map[heapKey]*heapValue)}
	consume := h.atEnd
	switch opt.At {
	case query.AtTime:
		consume = func(_ *timeline.Program, c *livemem.Change) {
			if c.AtNs <= opt.AtNs {
				h.atMoment(c)
			}
		}
		b.p.Comments = append(
			b.p.Comments,
			"in use at "+units.Duration(opt.AtNs-t.Recording().FromNs)+" from the recording's start",
		)
	case query.AtPeak:
		if _, err := t.ReplayProgram(h.findPeak, nil, nil); err != nil {
			return q, nil, err
		}
		consume = h.untilPeak
		b.p.Comments = append(
			b.p.Comments,
			"in use at the peak, "+units.Duration(h.peakNs-t.Recording().FromNs)+" from the recording's start",
		)
	}
	memory, err := t.ReplayProgram(consume, nil, nil)
	if err != nil {
		return q, nil, err
	}
	if len(h.samples) == 0 && t.HasMemory() {
		none = h.grouping.Seen.Explain(&opt.Filter)
	}
	h.addTo(b)
	return quality.OfProgram(t, memory), none, nil
}

// passes reports whether a change is one of memory that the filter lets through.
func (h *heap) passes(c *livemem.Change) bool {
	if c.AtNs > h.window.ToNs || c.Kind == livemem.AllocFailed {
		return false
	}
	_, ok := h.grouping.Of(c.Block.Origin, c.Block.Bytes)
	return ok
}

// html.atEnd follows what the program allocated in the window and did not free.
func (h *heap) atEnd(_ *timeline.Program, c *livemem.Change) {
	if c.Block.SinceNs < h.window.FromNs || c.Kind == livemem.FreedByExit || !h.passes(c) {
		return
	}
	h.count(c)
}

// atMoment follows what is live, whenever it was allocated.
func (h *heap) atMoment(c *livemem.Change) {
	if h.passes(c) {
		h.count(c)
	}
}

func (h *heap) count(c *livemem.Change) {
	v := h.sample(heapKey{c.Block.Origin, c.Block.Bytes})
	if c.Kind != livemem.Allocated {
		v.live--
		v.liveBytes -= c.Block.Bytes
		return
	}
	v.live++
	v.liveBytes += c.Block.Bytes
	if c.AtNs >= h.window.FromNs {
		v.allocs++
		v.allocBytes += c.Block.Bytes
	}
}

// findPeak notes after how many changes most memory of devices was live.
func (h *heap) findPeak(_ *timeline.Program, c *livemem.Change) {
	if h.t.OnHost(c.Block.Origin) || !h.passes(c) {
		return
	}
	h.live += livemem.SignedBytes(c)
	h.changes++
	if h.live > h.peak || c.AtNs <= h.window.FromNs {
		h.peak, h.peakAfter, h.peakNs = h.live, h.changes, max(c.AtNs, h.window.FromNs)
	}
}

// untilPeak follows what is live until the peak, which findPeak has found.
func (h *heap) untilPeak(_ *timeline.Program, c *livemem.Change) {
	if h.peakAfter == 0 {
		return
	}
	h.atMoment(c)
	if !h.t.OnHost(c.Block.Origin) && h.passes(c) {
		h.peakAfter--
	}
}

func (h *heap) sample(key heapKey) *heapValue {
	if v, ok := h.samples[key]; ok {
		return v
	}
	h.sizes = units.Grow(h.sizes, key.origin)
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
	origins := &h.t.Origins
	for _, k := range keys {
		o, v := &origins.List[k.origin], h.samples[k]
		b.add(
			&profileSample{
				stack:  o.Stack,
				api:    origins.Name(k.origin),
				kind:   origins.Memory(k.origin),
				pid:    o.Pid,
				tid:    o.Tid,
				device: o.Device,
				stream: o.Stream,
				bytes:  k.bytes,
			},
			v.allocs,
			v.allocBytes,
			v.live,
			v.liveBytes,
		)
	}
}
