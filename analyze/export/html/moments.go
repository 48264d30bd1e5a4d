package html

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

// A page cannot hold what was live after each of millions of calls. MomentScan keeps, of each
// of HTMLBuckets equal parts of the window, two moments exactly: that at which most was live
// and that at which least was. So a curve through them touches every peak and every valley,
// and who held memory at a peak is told as it was, not as an average.

// HTMLBuckets is in how many parts the window is divided; a curve has at most twice as many points.
const HTMLBuckets = 200

// keptHolders is how many holders of memory are kept of a moment; the rest is one sum.
const keptHolders = 1000

// Held is what one group of allocations holds.
type Held struct{ Bytes, blocks int64 }

// HeldBy is a group that holds memory at a moment.
type HeldBy struct {
	group int32
	Held
}

// MemoryMoment is who held how much memory at a time.
type MemoryMoment struct {
	AtNs    int64
	Total   int64
	Holders []HeldBy // the largest first
	Rest    Held     // of those that were not kept
}

// Extreme is what groups held when most, or least, was live. To follow the highest of a rising
// total without copying all groups at each step it notes which ones changed since.
type Extreme struct {
	atNs, total int64
	held        []Held
	changed     []int32
	isChanged   []bool
}

func (e *Extreme) touch(group int32) {
	for int(group) >= len(e.isChanged) {
		e.isChanged = append(e.isChanged, false)
	}
	if !e.isChanged[group] {
		e.isChanged[group] = true
		e.changed = append(e.changed, group)
	}
}

// take makes now the extreme.
func (e *Extreme) take(atNs, total int64, now []Held) {
	e.atNs, e.total = atNs, total
	for len(e.held) < len(now) {
		e.held = append(e.held, Held{})
	}
	for _, g := range e.changed {
		e.held[g], e.isChanged[g] = now[g], false
	}
	e.changed = e.changed[:0]
}

// Moment copies the extreme.
func (e *Extreme) Moment() MemoryMoment {
	m := MemoryMoment{AtNs: e.atNs, Total: e.total}
	for g, h := range e.held {
		if h.Bytes != 0 || h.blocks != 0 {
			m.Holders = append(m.Holders, HeldBy{int32(g), h})
		}
	}
	slices.SortFunc(m.Holders, func(a, b HeldBy) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.group, b.group)) })
	if len(m.Holders) > keptHolders {
		for _, h := range m.Holders[keptHolders:] {
			m.Rest.Bytes += h.Bytes
			m.Rest.blocks += h.blocks
		}
		m.Holders = slices.Clone(m.Holders[:keptHolders])
	}
	return m
}

// Buckets divides a window.
type Buckets struct{ window query.Window }

// Of returns the part that a moment is in, -1 before the window and HTMLBuckets after it.
func (b Buckets) Of(ns int64) int {
	switch d := b.window.DurNs(); {
	case ns < b.window.FromNs:
		return -1
	case ns > b.window.ToNs:
		return HTMLBuckets
	case d < HTMLBuckets:
		return 0
	default:
		hi, lo := bits.Mul64(uint64(ns-b.window.FromNs), HTMLBuckets)
		n, _ := bits.Div64(hi, lo, uint64(d))
		return min(HTMLBuckets-1, int(n))
	}
}

// Start returns the first moment of a part.
func (b Buckets) Start(i int) int64 {
	whole, rest := b.window.DurNs()/HTMLBuckets, b.window.DurNs()%HTMLBuckets
	return b.window.FromNs + whole*int64(i) + (rest*int64(i)+HTMLBuckets-1)/HTMLBuckets
}

// MomentSeries follows the memory of one device, or of the host.
type MomentSeries struct {
	Buckets
	now      []Held // by group
	total    int64
	bucket   int // that is being filled
	moves    bool
	settled  bool // the last moment is what is live now
	most     Extreme
	least    Extreme
	Peak     Extreme
	hasPeak  bool
	List     []MemoryMoment
	finished bool
}

func newMomentSeries(w query.Window) *MomentSeries {
	return &MomentSeries{Buckets: Buckets{w}, bucket: -1, settled: true}
}

// move changes what a group holds.
func (s *MomentSeries) move(atNs int64, group int32, bytes, blocks int64) {
	if s.finished {
		return
	}
	if atNs > s.window.ToNs {
		s.finish()
		return
	}
	s.advance(s.Of(atNs))
	for int(group) >= len(s.now) {
		s.now = append(s.now, Held{})
	}
	s.now[group].Bytes += bytes
	s.now[group].blocks += blocks
	s.total += bytes
	for _, e := range []*Extreme{&s.most, &s.least, &s.Peak} {
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
	if s.total > s.Peak.total {
		s.Peak.take(atNs, s.total, s.now)
	}
}

// advance closes parts of the window that have passed.
func (s *MomentSeries) advance(bucket int) {
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

func (s *MomentSeries) open() {
	at := s.Start(s.bucket)
	s.moves = false
	s.most.take(at, s.total, s.now)
	s.least.take(at, s.total, s.now)
	if !s.hasPeak {
		s.hasPeak = true
		s.Peak.take(at, s.total, s.now)
	}
}

// close keeps the moments of a part: where nothing moved one, if the curve does not go on as it was.
func (s *MomentSeries) close() {
	if !s.moves {
		if !s.settled || len(s.List) == 0 {
			s.List = append(s.List, s.most.Moment())
		}
		s.settled = true
		return
	}
	first, second := s.most, s.least
	if second.atNs < first.atNs {
		first, second = second, first
	}
	s.List = append(s.List, first.Moment())
	if second.atNs != first.atNs {
		s.List = append(s.List, second.Moment())
	}
	s.settled = false
}

// finish closes the window; the last moment is its end.
func (s *MomentSeries) finish() {
	if s.finished {
		return
	}
	s.advance(HTMLBuckets - 1)
	s.close()
	s.finished = true
	s.most.take(s.window.ToNs, s.total, s.now)
	s.List = append(s.List, s.most.Moment())
}

// hostMemory is the number under which MomentScan keeps the memory of the host.
const hostMemory = math.MinInt32

// MomentScan follows memory as programs see it: tensors, and of the driver's memory what is
// no allocator's segment. It takes off what a process held when it ends: it shows what the
// machine had.
type MomentScan struct {
	t        *timeline.Timeline
	filter   *query.Filter
	window   query.Window
	groups   origin.Names // by place and kind
	byOrigin []int32
	about    []momentGroup
	Devices  map[int32]*MomentSeries
}

// momentGroup is what allocations of a group have in common.
type momentGroup struct {
	site, memory string
	stack        int32 // of the first one
}

func NewMomentScan(t *timeline.Timeline, f *query.Filter) *MomentScan {
	return &MomentScan{t: t, filter: f, window: f.Window(t.Recording()), Devices: make(map[int32]*MomentSeries)}
}

func (s *MomentScan) Consume(_ *timeline.Program, c *ledger.Change) {
	id := c.Block.Origin
	o := &s.t.Origins.List[id]
	if c.Kind == ledger.AllocFailed || c.Block.Bytes < s.filter.MinBytes || !s.filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) {
		return
	}
	group, device := s.group(id), o.Device
	if s.t.OnHost(id) {
		device = hostMemory
	}
	series := s.Devices[device]
	if series == nil {
		series = newMomentSeries(s.window)
		s.Devices[device] = series
	}
	if c.Kind == ledger.Allocated {
		series.move(c.AtNs, group, c.Block.Bytes, 1)
	} else {
		series.move(c.AtNs, group, -c.Block.Bytes, -1)
	}
}

func (s *MomentScan) group(id int32) int32 {
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

func (s *MomentScan) Finish() {
	for _, series := range s.Devices {
		series.finish()
	}
}

// Curve is a value over time, of each part of the window the lowest and the highest.
type Curve struct {
	Buckets
	bucket int
	lo, hi Point
	now    float64
	points []Point
}

type Point struct {
	AtNs  int64
	Value float64
}

func NewCurve(w query.Window) *Curve { return &Curve{Buckets: Buckets{w}, bucket: -1} }

// Add notes the value from a moment on; moments must not go back.
func (c *Curve) Add(atNs int64, v float64) {
	b := c.Of(max(atNs, c.window.FromNs))
	if b >= HTMLBuckets {
		return
	}
	p := Point{max(atNs, c.window.FromNs), v}
	if b != c.bucket {
		c.flush()
		c.bucket, c.lo, c.hi = b, p, p
	}
	if v < c.lo.Value {
		c.lo = p
	}
	if v > c.hi.Value {
		c.hi = p
	}
	c.now = v
}

func (c *Curve) flush() {
	if c.bucket < 0 {
		return
	}
	first, second := c.lo, c.hi
	if second.AtNs < first.AtNs {
		first, second = second, first
	}
	c.points = append(c.points, first)
	if second.AtNs != first.AtNs {
		c.points = append(c.points, second)
	}
	if c.now != second.Value { // what it goes on with
		c.points = append(c.points, Point{c.Start(c.bucket + 1), c.now})
	}
}

// raise adds to all values so far.
func (c *Curve) raise(by float64) {
	for i := range c.points {
		c.points[i].Value += by
	}
	c.lo.Value += by
	c.hi.Value += by
	c.now += by
}

// Finish returns the curve.
func (c *Curve) Finish() []Point {
	c.flush()
	c.bucket = -1
	return c.points
}
