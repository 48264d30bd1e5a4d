package html

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

// A page cannot hold what was live after each of millions of calls. momentScan keeps, of each
// of htmlBuckets equal parts of the window, two moments exactly: that at which most was live
// and that at which least was. So a curve through them touches every peak and every valley,
// and who held memory at a peak is told as it was, not as an average.

// htmlBuckets is in how many parts the window is divided; a curve has at most twice as many points.
const htmlBuckets = 200

// keptHolders is how many holders of memory are kept of a moment; the rest is one sum.
const keptHolders = 1000

// held is what one group of allocations holds.
type held struct{ bytes, blocks int64 }

// heldBy is a group that holds memory at a moment.
type heldBy struct {
	group int32
	held
}

// memoryMoment is who held how much memory at a time.
type memoryMoment struct {
	atNs    int64
	total   int64
	holders []heldBy // the largest first
	rest    held     // of those that were not kept
}

// extreme is what groups held when most, or least, was live. To follow the highest of a rising
// total without copying all groups at each step it notes which ones changed since.
type extreme struct {
	atNs, total int64
	held        []held
	changed     []int32
	isChanged   []bool
}

func (e *extreme) touch(group int32) {
	for int(group) >= len(e.isChanged) {
		e.isChanged = append(e.isChanged, false)
	}
	if !e.isChanged[group] {
		e.isChanged[group] = true
		e.changed = append(e.changed, group)
	}
}

// take makes now the extreme.
func (e *extreme) take(atNs, total int64, now []held) {
	e.atNs, e.total = atNs, total
	for len(e.held) < len(now) {
		e.held = append(e.held, held{})
	}
	for _, g := range e.changed {
		e.held[g], e.isChanged[g] = now[g], false
	}
	e.changed = e.changed[:0]
}

// moment copies the extreme.
func (e *extreme) moment() memoryMoment {
	m := memoryMoment{atNs: e.atNs, total: e.total}
	for g, h := range e.held {
		if h.bytes != 0 || h.blocks != 0 {
			m.holders = append(m.holders, heldBy{int32(g), h})
		}
	}
	slices.SortFunc(
		m.holders,
		func(a, b heldBy) int { return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.group, b.group)) },
	)
	if len(m.holders) > keptHolders {
		for _, h := range m.holders[keptHolders:] {
			m.rest.bytes += h.bytes
			m.rest.blocks += h.blocks
		}
		m.holders = slices.Clone(m.holders[:keptHolders])
	}
	return m
}

// buckets divides a window.
type buckets struct{ window query.Window }

// of returns the part that a moment is in, -1 before the window and htmlBuckets after it.
func (b buckets) of(ns int64) int {
	switch d := b.window.DurNs(); {
	case ns < b.window.FromNs:
		return -1
	case ns > b.window.ToNs:
		return htmlBuckets
	case d < htmlBuckets:
		return 0
	default:
		hi, lo := bits.Mul64(uint64(ns-b.window.FromNs), htmlBuckets)
		n, _ := bits.Div64(hi, lo, uint64(d))
		return min(htmlBuckets-1, int(n))
	}
}

// start returns the first moment of a part.
func (b buckets) start(i int) int64 {
	whole, rest := b.window.DurNs()/htmlBuckets, b.window.DurNs()%htmlBuckets
	return b.window.FromNs + whole*int64(i) + (rest*int64(i)+htmlBuckets-1)/htmlBuckets
}

// momentSeries follows the memory of one device, or of the host.
type momentSeries struct {
	buckets
	now      []held // by group
	total    int64
	bucket   int // that is being filled
	moves    bool
	settled  bool // the last moment is what is live now
	most     extreme
	least    extreme
	peak     extreme
	hasPeak  bool
	list     []memoryMoment
	finished bool
}

func newMomentSeries(w query.Window) *momentSeries {
	return &momentSeries{buckets: buckets{w}, bucket: -1, settled: true}
}

// move changes what a group holds.
func (s *momentSeries) move(atNs int64, group int32, bytes, blocks int64) {
	if s.finished {
		return
	}
	if atNs > s.window.ToNs {
		s.finish()
		return
	}
	s.advance(s.of(atNs))
	for int(group) >= len(s.now) {
		s.now = append(s.now, held{})
	}
	s.now[group].bytes += bytes
	s.now[group].blocks += blocks
	s.total += bytes
	for _, e := range []*extreme{&s.most, &s.least, &s.peak} {
		e.touch(group)
	}
	if s.bucket < 0 {
		return
	}
	s.moves = true
	if s.total > s.most.total {
		s.most.take(atNs, s.total, s.now)
	}
	if s.total < s.least.total {
		s.least.take(atNs, s.total, s.now)
	}
	if s.total > s.peak.total {
		s.peak.take(atNs, s.total, s.now)
	}
}

// advance closes parts of the window that have passed.
func (s *momentSeries) advance(bucket int) {
	for s.bucket < bucket {
		if s.bucket >= 0 {
			s.close()
		}
		s.bucket++
		if s.settled && !s.moves && s.bucket > 0 && s.bucket < bucket { // nothing happens until then
			s.bucket = bucket
		}
		s.open()
	}
}

func (s *momentSeries) open() {
	at := s.start(s.bucket)
	s.moves = false
	s.most.take(at, s.total, s.now)
	s.least.take(at, s.total, s.now)
	if !s.hasPeak {
		s.hasPeak = true
		s.peak.take(at, s.total, s.now)
	}
}

// close keeps the moments of a part: where nothing moved one, if the curve does not go on as it was.
func (s *momentSeries) close() {
	if !s.moves {
		if !s.settled || len(s.list) == 0 {
			s.list = append(s.list, s.most.moment())
		}
		s.settled = true
		return
	}
	first, second := s.most, s.least
	if second.atNs < first.atNs {
		first, second = second, first
	}
	s.list = append(s.list, first.moment())
	if second.atNs != first.atNs {
		s.list = append(s.list, second.moment())
	}
	s.settled = false
}

// finish closes the window; the last moment is its end.
func (s *momentSeries) finish() {
	if s.finished {
		return
	}
	s.advance(htmlBuckets - 1)
	s.close()
	s.finished = true
	s.most.take(s.window.ToNs, s.total, s.now)
	s.list = append(s.list, s.most.moment())
}

// hostMemory is the number under which momentScan keeps the memory of the host.
const hostMemory = math.MinInt32

// momentScan follows memory as programs see it: tensors, and of the driver's memory what is
// no allocator's segment. It takes off what a process held when it ends: it shows what the
// machine had.
type momentScan struct {
	t        *timeline.Timeline
	filter   *query.Filter
	window   query.Window
	groups   origin.Names // by place and kind
	byOrigin []int32
	about    []momentGroup
	devices  map[int32]*momentSeries
}

// momentGroup is what allocations of a group have in common.
type momentGroup struct {
	site, memory string
	stack        int32 // of the first one
}

func newMomentScan(t *timeline.Timeline, f *query.Filter) *momentScan {
	return &momentScan{t: t, filter: f, window: f.Window(t.Recording()), devices: make(map[int32]*momentSeries)}
}

func (s *momentScan) consume(_ *timeline.Program, c *livemem.Change) {
	id := c.Block.Origin
	o := &s.t.Origins.List[id]
	if c.Kind == livemem.AllocFailed || c.Block.Bytes < s.filter.MinBytes ||
		!s.filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) {
		return
	}
	group, device := s.group(id), o.Device
	if s.t.OnHost(id) {
		device = hostMemory
	}
	series := s.devices[device]
	if series == nil {
		series = newMomentSeries(s.window)
		s.devices[device] = series
	}
	if c.Kind == livemem.Allocated {
		series.move(c.AtNs, group, c.Block.Bytes, 1)
	} else {
		series.move(c.AtNs, group, -c.Block.Bytes, -1)
	}
}

func (s *momentScan) group(id int32) int32 {
	s.byOrigin = units.Grow(s.byOrigin, id)
	if s.byOrigin[id] == 0 {
		site, memory := s.t.SiteLabel(id), s.t.Origins.Memory(id)
		group := s.groups.ID(memory + "\x00" + site)
		if int(group) == len(s.about) {
			s.about = append(s.about, momentGroup{site, memory, s.t.Origins.List[id].Stack})
		}
		s.byOrigin[id] = group + 1
	}
	return s.byOrigin[id] - 1
}

func (s *momentScan) finish() {
	for _, series := range s.devices {
		series.finish()
	}
}

// curve is a value over time, of each part of the window the lowest and the highest.
type curve struct {
	buckets
	bucket int
	lo, hi point
	now    float64
	points []point
}

type point struct {
	atNs  int64
	value float64
}

func newCurve(w query.Window) *curve { return &curve{buckets: buckets{w}, bucket: -1} }

// add notes the value from a moment on; moments must not go back.
func (c *curve) add(atNs int64, v float64) {
	b := c.of(max(atNs, c.window.FromNs))
	if b >= htmlBuckets {
		return
	}
	p := point{max(atNs, c.window.FromNs), v}
	if b != c.bucket {
		c.flush()
		c.bucket, c.lo, c.hi = b, p, p
	}
	if v < c.lo.value {
		c.lo = p
	}
	if v > c.hi.value {
		c.hi = p
	}
	c.now = v
}

func (c *curve) flush() {
	if c.bucket < 0 {
		return
	}
	first, second := c.lo, c.hi
	if second.atNs < first.atNs {
		first, second = second, first
	}
	c.points = append(c.points, first)
	if second.atNs != first.atNs {
		c.points = append(c.points, second)
	}
	if c.now != second.value { // what it goes on with
		c.points = append(c.points, point{c.start(c.bucket + 1), c.now})
	}
}

// raise adds to all values so far.
func (c *curve) raise(by float64) {
	for i := range c.points {
		c.points[i].value += by
	}
	c.lo.value += by
	c.hi.value += by
	c.now += by
}

// finish returns the curve.
func (c *curve) finish() []point {
	c.flush()
	c.bucket = -1
	return c.points
}
