package cachegrowth

import (
	"math"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/stats"
)

const (
	// checkpointCount is the number of intervals after the warm-up, as in the report leaks.
	checkpointCount = 20
	// warmupShare is the share of the window in which a cache may fill, as in the report leaks.
	warmupShare = 0.1
	// maxExaminedSegments limits the new segments of an interval whose cause is examined. A loop that
	// frees and allocates segments has thousands, and does not grow. So the scan stays cheap.
	maxExaminedSegments = 64
)

// Scan follows the unused memory of caching allocators over time, and finds out why they request
// segments. Allocators without events of segments are left out. A Scan is not safe for concurrent
// use.
type Scan struct {
	t      *timeline.Timeline
	filter *query.Filter
	window query.Window
	warmNs int64 // end of the warm-up, Unix ns
	caches map[*caching.Allocator]*cache
	// last is the allocator of the last event, because most events have the same one as the event
	// before. lastCache is its cache.
	last      *caching.Allocator
	lastCache *cache
}

// cache is the memory of one allocator over time. Unused memory is reserved memory that no block
// and no stream uses. Its floor is the lowest unused memory of an interval: at its busiest time.
type cache struct {
	pid, device      int32
	reserved, unused stats.Floor
	passed           int   // number of passed checkpoints
	nextNs           int64 // time of the next checkpoint, Unix ns
	ended            bool  // the window or the process ended
	segmentBytes     int64 // bytes of the segments that the next request needs; 0: none
	examined         int   // examined segments of the interval
	causes           [causeCount]causeStats
}

// causeStats are the requests that needed new segments for one cause.
type causeStats struct {
	bytes    int64               // of the segments
	requests map[int32]*requests // by origin
	// owners are the streams of CauseStreams, or the pools of CausePools.
	owners map[int64]bool
}

// requests are the requests of one origin that needed new segments for one cause.
type requests struct {
	segments, bytes   int64 // the segments and their size
	smallest, largest int64 // request, bytes
	firstNs, lastNs   int64 // Unix ns
}

// NewScan returns a scan of the window w for the allocators that pass the filter.
func NewScan(t *timeline.Timeline, f *query.Filter, w query.Window) *Scan {
	return &Scan{
		t: t, filter: f, window: w, warmNs: w.FromNs + int64(warmupShare*float64(w.DurNs())),
		caches: make(map[*caching.Allocator]*cache),
	}
}

// OnAllocatorChange processes the next change of an allocator.
func (s *Scan) OnAllocatorChange(a *caching.Allocator, c *caching.AllocatorChange) {
	k := s.cacheOf(a)
	if k == nil || k.ended || c.Op == caching.OpBlockResized {
		return
	}
	k.reserved.Add(a.Seen.Reserved - k.reserved.Level)
	k.unused.Add(a.Seen.Reserved - a.Seen.Active - k.unused.Level)
	for c.AtNs > k.nextNs && !k.ended {
		s.passCheckpoint(k)
	}
	switch {
	case c.Op == caching.OpAllocatorEnd:
		k.ended = true
	case c.Op == caching.OpStateRead || c.Op == caching.OpTotalsRead:
		k.segmentBytes = 0 // the block for which the segments were needed may not be in the recording
	case c.Op == caching.OpSegmentAllocated || c.Op == caching.OpSegmentMapped:
		k.segmentBytes += c.Bytes
	case c.Op == caching.OpBlockAllocated && k.segmentBytes > 0:
		if k.passed > 0 && !k.ended && k.examined < maxExaminedSegments {
			k.examine(a, c)
		}
		k.segmentBytes = 0
	}
}

// cacheOf returns the cache of an allocator, or nil if the filter excludes it or if its segments are
// unknown.
func (s *Scan) cacheOf(a *caching.Allocator) *cache {
	if s.last == a {
		return s.lastCache
	}
	k, ok := s.caches[a]
	if !ok && !a.Reports && s.filter.PassesAllocator(a.Pid, a.Device) {
		k = &cache{pid: a.Pid, device: a.Device, nextNs: s.warmNs}
	}
	s.caches[a] = k
	s.last, s.lastCache = a, k
	return k
}

// passCheckpoint ends an interval of a cache. The first interval is the warm-up. An interval that ends
// in the teardown of the process is left out: the frees of the end are no growth.
func (s *Scan) passCheckpoint(k *cache) {
	if s.t.IsInTeardown(k.pid, k.nextNs) {
		k.ended = true
		return
	}
	k.passed++
	k.examined = 0
	k.reserved.PassCheckpoints(k.passed)
	k.unused.PassCheckpoints(k.passed)
	k.nextNs = s.warmNs + int64(s.stepNs()*float64(k.passed))
	k.ended = k.passed > checkpointCount
}

// stepNs returns the time between two checkpoints, ns.
func (s *Scan) stepNs() float64 { return float64(s.window.ToNs-s.warmNs) / checkpointCount }

// examine finds the cause for which a request needed a new segment. Causes are counted by call site.
func (ca *cache) examine(a *caching.Allocator, c *caching.AllocatorChange) {
	ca.examined++
	b := &c.Block
	cause := causeOf(b, a.FreeMemoryFor(b))
	in := &ca.causes[cause]
	if in.requests == nil {
		in.requests, in.owners = make(map[int32]*requests), make(map[int64]bool)
	}
	r := in.requests[b.Origin]
	if r == nil {
		r = &requests{smallest: math.MaxInt64, firstNs: c.AtNs}
		in.requests[b.Origin] = r
	}
	r.add(b.Requested, ca.segmentBytes, c.AtNs)
	in.bytes += ca.segmentBytes
	switch cause {
	case CauseStreams:
		in.owners[b.Stream] = true
	case CausePools:
		in.owners[b.Pool] = true
	}
}

// add counts a request at atNs (Unix ns) that needed segments. Sizes are in bytes.
func (r *requests) add(request, segment, atNs int64) {
	r.segments++
	r.bytes += segment
	r.smallest, r.largest = min(r.smallest, request), max(r.largest, request)
	r.lastNs = atNs
}

// Finish ends the scan and returns the caches that grow, sorted by process and device. Later calls
// return the same.
func (s *Scan) Finish() []Finding {
	var list []Finding
	for _, k := range s.caches {
		if k == nil {
			continue
		}
		for !k.ended {
			s.passCheckpoint(k)
		}
		if f, ok := s.classify(k); ok {
			list = append(list, f)
		}
	}
	return sortFindings(list)
}
