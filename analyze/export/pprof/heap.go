package pprof

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/earlier"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
)

var heapProfileColumns = []report.Column{
	{
		Key: "alloc_objects", Title: "", Unit: report.UnitCount,
		About: "allocations in the window; with --at, those up to the selected time",
	},
	{Key: "alloc_space", Title: "", Unit: report.UnitBytes, About: "bytes of alloc_objects"},
	{
		Key: "inuse_objects", Title: "", Unit: report.UnitCount,
		About: "allocations of the window that were not freed before the window or the process ended. " +
			"With --at peak or --at TIME: all allocations that were live then. The peak is that of the memory of all " +
			"devices together. Includes PyTorch's blocks from before the recording if they were read from the " +
			"process, unless --from is set",
	},
	{Key: "inuse_space", Title: "", Unit: report.UnitBytes, About: "bytes of inuse_objects"},
}

// maxExactSizes is the largest number of distinct sizes for each origin. Further sizes are rounded
// up to powers of two. Otherwise a program with random sizes would have one sample for each
// allocation.
const maxExactSizes = 256

// heapSampleKey identifies a sample: allocations of one origin with the same size.
type heapSampleKey struct {
	origin int32
	bytes  int64
}

// heapSampleValue has the values of a sample: allocations and live allocations, with their bytes.
type heapSampleValue struct{ allocs, allocBytes, live, liveBytes int64 }

// heapProfile sums up memory by origin and size.
type heapProfile struct {
	t        *timeline.Timeline
	grouping *group.Grouping
	window   query.Window
	samples  map[heapSampleKey]*heapSampleValue
	sizes    []int // number of distinct sizes, by origin
	// hasEarlier is set if memory from before the recording is in use at the end of the window: it has no start.
	hasEarlier bool

	// Data of findPeakChange, about device memory.
	live      int64 // live bytes at present
	changes   int64 // number of changes so far
	peak      int64 // most live bytes
	peakAfter int64 // number of changes up to the peak
	peakNs    int64 // time of the peak, Unix ns
}

// addHeapSamples adds the samples of memory to the profile. opt.At selects the moment.
func addHeapSamples(
	t *timeline.Timeline,
	b *profileBuilder,
	opt *Options,
) (q report.Quality, none *query.NoMatchError, err error) {
	grouping, err := group.NewGrouping(t, "site", &opt.Filter)
	if err != nil {
		return q, nil, err
	}
	h := &heapProfile{
		t:        t,
		grouping: grouping,
		window:   t.ActivityWindow(&opt.Filter),
		samples:  make(map[heapSampleKey]*heapSampleValue),

		hasEarlier: opt.FromNs == 0,
	}
	consume := h.countAtEnd
	switch opt.At {
	case query.MomentGivenTime:
		consume = func(_ *timeline.ProgramMemory, c *livemem.Change) {
			if c.AtNs <= opt.AtNs {
				h.countAtMoment(c)
			}
		}
		b.p.Comments = append(
			b.p.Comments,
			"in use at "+units.FormatDuration(opt.AtNs-t.RecordingWindow().FromNs)+" from the start of the recording",
		)
	case query.MomentPeak:
		if _, err := t.ReplayProgram(h.findPeakChange, nil, nil); err != nil {
			return q, nil, err
		}
		consume = h.countUntilPeak
		b.p.Comments = append(
			b.p.Comments,
			"in use at the peak, "+units.FormatDuration(
				h.peakNs-t.RecordingWindow().FromNs,
			)+" from the start of the recording",
		)
	}
	memory, err := t.ReplayProgram(consume, nil, nil)
	if err != nil {
		return q, nil, err
	}
	if len(h.samples) == 0 && t.HasMemory() {
		none = h.grouping.Callers.ExplainNoMatch(&opt.Filter)
	}
	h.addSamplesTo(b)
	return quality.OfProgramReplay(t, memory), none, nil
}

// passesFilter reports whether a change of memory passes the filter and is not a failed allocation.
func (h *heapProfile) passesFilter(c *livemem.Change) bool {
	if c.AtNs > h.window.ToNs || c.Kind == livemem.ChangeAllocFailed {
		return false
	}
	_, ok := h.grouping.GroupOf(c.Block.Origin, c.Block.Bytes)
	return ok
}

// countAtEnd counts a change for a profile at the end of the window: allocations of the window that
// the program did not free itself. If the window is the whole recording, those from before it are counted, too.
func (h *heapProfile) countAtEnd(_ *timeline.ProgramMemory, c *livemem.Change) {
	isOlder := c.Block.SinceNs < h.window.FromNs && !(c.Block.IsEarlier() && h.hasEarlier)
	if isOlder || c.Kind == livemem.ChangeFreedByExit || !h.passesFilter(c) {
		return
	}
	h.countChange(c)
}

// countAtMoment counts a change for a profile at a moment: all live allocations, also those from
// before the window.
func (h *heapProfile) countAtMoment(c *livemem.Change) {
	if h.passesFilter(c) {
		h.countChange(c)
	}
}

// countChange adds an allocation or a free to the values of its sample.
func (h *heapProfile) countChange(c *livemem.Change) {
	v := h.findSample(heapSampleKey{c.Block.Origin, c.Block.Bytes})
	if c.Kind != livemem.ChangeAllocated {
		v.live--
		v.liveBytes -= c.Block.Bytes
		return
	}
	v.live++
	v.liveBytes += c.Block.Bytes
	if c.AtNs >= h.window.FromNs && !c.Block.IsEarlier() {
		v.allocs++
		v.allocBytes += c.Block.Bytes
	}
}

// findPeakChange finds the change after which most device memory was live.
func (h *heapProfile) findPeakChange(_ *timeline.ProgramMemory, c *livemem.Change) {
	if h.t.IsHostOrigin(c.Block.Origin) || !h.passesFilter(c) {
		return
	}
	h.live += livemem.LiveBytesChange(c)
	h.changes++
	if h.live > h.peak || c.AtNs <= h.window.FromNs {
		h.peak, h.peakAfter, h.peakNs = h.live, h.changes, max(c.AtNs, h.window.FromNs)
	}
}

// countUntilPeak counts the changes up to the peak. findPeakChange must have seen all changes
// before.
func (h *heapProfile) countUntilPeak(_ *timeline.ProgramMemory, c *livemem.Change) {
	if h.peakAfter == 0 {
		return
	}
	h.countAtMoment(c)
	if !h.t.IsHostOrigin(c.Block.Origin) && h.passesFilter(c) {
		h.peakAfter--
	}
}

// findSample returns the values of the sample with a key. If the origin has too many sizes, it
// rounds the size up.
func (h *heapProfile) findSample(key heapSampleKey) *heapSampleValue {
	if v, ok := h.samples[key]; ok {
		return v
	}
	h.sizes = units.GrowToIndex(h.sizes, key.origin)
	if h.sizes[key.origin] >= maxExactSizes {
		key.bytes = roundUpSize(key.bytes)
		if v, ok := h.samples[key]; ok {
			return v
		}
	}
	h.sizes[key.origin]++
	v := new(heapSampleValue)
	h.samples[key] = v
	return v
}

// roundUpSize returns the smallest power of two that is not less than bytes.
func roundUpSize(bytes int64) int64 { return 1 << bits.Len64(uint64(bytes-1)) & (1<<62 - 1) }

// addSamplesTo adds the samples of memory to the profile, in order of origin and size.
func (h *heapProfile) addSamplesTo(b *profileBuilder) {
	keys := make([]heapSampleKey, 0, len(h.samples))
	for k := range h.samples {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b heapSampleKey) int {
		return cmp.Or(cmp.Compare(a.origin, b.origin), cmp.Compare(a.bytes, b.bytes))
	})
	origins := &h.t.Origins
	for _, k := range keys {
		o, v := &origins.List[k.origin], h.samples[k]
		s := &profileSample{
			stack:  o.Stack,
			api:    origins.FunctionOf(k.origin),
			kind:   origins.MemoryKindOf(k.origin),
			pid:    o.Pid,
			tid:    o.Tid,
			device: o.Device,
			stream: o.Stream,
			bytes:  k.bytes,
		}
		if origins.IsEarlier(k.origin) {
			if v.live == 0 {
				continue
			}
			s.pool, s.sizeClass, s.api = origins.FunctionOf(k.origin), earlier.SizeClass(k.bytes), ""
		}
		if origins.IsUnseen(k.origin) {
			s.pool, s.isUnseen, s.api = origins.FunctionOf(k.origin), true, ""
		}
		b.addSample(s, v.allocs, v.allocBytes, v.live, v.liveBytes)
	}
}
