package html

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/units"
)

// A page cannot hold the live memory after each of millions of calls. So momentScan divides the
// window into numWindowBuckets equal buckets. For each bucket it keeps the exact state of memory at
// two moments: when most bytes were live, and when fewest were. A curve through these points
// reaches every peak and every minimum, and the holders at a peak are exact, not averages.

// numWindowBuckets is the number of equal parts of the window. A curve of memory has at most two
// points per bucket.
const numWindowBuckets = 200

// maxKeptHolders is the largest number of holders that memoryState keeps. The others are summed up.
const maxKeptHolders = 1000

// liveMemory is the number and size of live allocations.
type liveMemory struct{ bytes, blocks int64 }

// memoryHolder is a group of allocations that are live at a moment.
type memoryHolder struct {
	group int32 // index into momentScan.about
	liveMemory
}

// memoryState is the live memory of a device, or of the host, at one moment.
type memoryState struct {
	atNs    int64          // Unix ns
	total   int64          // live bytes of all holders
	holders []memoryHolder // the largest first
	rest    liveMemory     // sum of the holders that were left out
}

// memoryExtreme is the state of memory when most, or fewest, bytes were live. It records which
// groups have changed since, so that set copies only those and not all groups.
type memoryExtreme struct {
	atNs, total int64
	live        []liveMemory // live memory at the extreme, by group
	changed     []int32      // groups whose memory changed after atNs
	isChanged   []bool       // whether a group is in changed, by group
}

// markGroupChanged records that a group has changed after the extreme.
func (e *memoryExtreme) markGroupChanged(group int32) {
	for int(group) >= len(e.isChanged) {
		e.isChanged = append(e.isChanged, false)
	}
	if !e.isChanged[group] {
		e.isChanged[group] = true
		e.changed = append(e.changed, group)
	}
}

// setState makes the present state of memory the extreme.
func (e *memoryExtreme) setState(atNs, total int64, now []liveMemory) {
	e.atNs, e.total = atNs, total
	for len(e.live) < len(now) {
		e.live = append(e.live, liveMemory{})
	}
	for _, g := range e.changed {
		e.live[g], e.isChanged[g] = now[g], false
	}
	e.changed = e.changed[:0]
}

// copyState returns a copy of the state of memory at the extreme.
func (e *memoryExtreme) copyState() memoryState {
	m := memoryState{atNs: e.atNs, total: e.total}
	for g, h := range e.live {
		if h.bytes != 0 || h.blocks != 0 {
			m.holders = append(m.holders, memoryHolder{int32(g), h})
		}
	}
	slices.SortFunc(
		m.holders,
		func(a, b memoryHolder) int {
			return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.group, b.group))
		},
	)
	if len(m.holders) > maxKeptHolders {
		for _, h := range m.holders[maxKeptHolders:] {
			m.rest.bytes += h.bytes
			m.rest.blocks += h.blocks
		}
		m.holders = slices.Clone(m.holders[:maxKeptHolders])
	}
	return m
}

// windowBuckets divides a window into numWindowBuckets equal parts.
type windowBuckets struct{ window query.Window }

// bucketAt returns the bucket of a time (Unix ns): -1 before the window, numWindowBuckets after it.
func (b windowBuckets) bucketAt(ns int64) int {
	switch d := b.window.DurNs(); {
	case ns < b.window.FromNs:
		return -1
	case ns > b.window.ToNs:
		return numWindowBuckets
	case d < numWindowBuckets:
		return 0
	default:
		hi, lo := bits.Mul64(uint64(ns-b.window.FromNs), numWindowBuckets)
		n, _ := bits.Div64(hi, lo, uint64(d))
		return min(numWindowBuckets-1, int(n))
	}
}

// bucketStartNs returns the start time of a bucket of the window, Unix ns.
func (b windowBuckets) bucketStartNs(i int) int64 {
	whole, rest := b.window.DurNs()/numWindowBuckets, b.window.DurNs()%numWindowBuckets
	return b.window.FromNs + whole*int64(i) + (rest*int64(i)+numWindowBuckets-1)/numWindowBuckets
}

// memoryStateSeries collects the states of the memory of one device, or of the host.
type memoryStateSeries struct {
	windowBuckets
	now        []liveMemory  // live memory at present, by group
	total      int64         // live bytes at present
	bucket     int           // current bucket; -1 before the window
	hasChanges bool          // memory changed in the current bucket
	settled    bool          // the last state in list equals the present one
	most       memoryExtreme // maximum of the current bucket
	least      memoryExtreme // minimum of the current bucket
	peak       memoryExtreme // maximum of the window
	hasPeak    bool
	list       []memoryState // in order of time
	finished   bool
}

func newMomentSeries(w query.Window) *memoryStateSeries {
	return &memoryStateSeries{windowBuckets: windowBuckets{w}, bucket: -1, settled: true}
}

// addChange adds to the live memory of a group; bytes and blocks are negative for a free. Times
// must not decrease.
func (s *memoryStateSeries) addChange(atNs int64, group int32, bytes, blocks int64) {
	if s.finished {
		return
	}
	if atNs > s.window.ToNs {
		s.finishWindow()
		return
	}
	s.advanceToBucket(s.bucketAt(atNs))
	for int(group) >= len(s.now) {
		s.now = append(s.now, liveMemory{})
	}
	s.now[group].bytes += bytes
	s.now[group].blocks += blocks
	s.total += bytes
	for _, e := range []*memoryExtreme{&s.most, &s.least, &s.peak} {
		e.markGroupChanged(group)
	}
	if s.bucket < 0 {
		return
	}
	s.hasChanges = true
	if s.total > s.most.total {
		s.most.setState(atNs, s.total, s.now)
	}
	if s.total < s.least.total {
		s.least.setState(atNs, s.total, s.now)
	}
	if s.total > s.peak.total {
		s.peak.setState(atNs, s.total, s.now)
	}
}

// advanceToBucket closes the buckets before the given one, and opens it.
func (s *memoryStateSeries) advanceToBucket(bucket int) {
	for s.bucket < bucket {
		if s.bucket >= 0 {
			s.closeBucket()
		}
		s.bucket++
		if s.settled && !s.hasChanges && s.bucket > 0 && s.bucket < bucket { // skip buckets without changes
			s.bucket = bucket
		}
		s.openBucket()
	}
}

// openBucket begins the current bucket: its maximum and minimum are the present state.
func (s *memoryStateSeries) openBucket() {
	at := s.bucketStartNs(s.bucket)
	s.hasChanges = false
	s.most.setState(at, s.total, s.now)
	s.least.setState(at, s.total, s.now)
	if !s.hasPeak {
		s.hasPeak = true
		s.peak.setState(at, s.total, s.now)
	}
}

// closeBucket appends the maximum and the minimum of the current bucket to list, in order of time.
// Without changes it appends one state, unless the last state in list is the same.
func (s *memoryStateSeries) closeBucket() {
	if !s.hasChanges {
		if !s.settled || len(s.list) == 0 {
			s.list = append(s.list, s.most.copyState())
		}
		s.settled = true
		return
	}
	first, second := s.most, s.least
	if second.atNs < first.atNs {
		first, second = second, first
	}
	s.list = append(s.list, first.copyState())
	if second.atNs != first.atNs {
		s.list = append(s.list, second.copyState())
	}
	s.settled = false
}

// finishWindow closes the window. The last state in list is that at the end of the window.
func (s *memoryStateSeries) finishWindow() {
	if s.finished {
		return
	}
	s.advanceToBucket(numWindowBuckets - 1)
	s.closeBucket()
	s.finished = true
	s.most.setState(s.window.ToNs, s.total, s.now)
	s.list = append(s.list, s.most.copyState())
}

// hostDeviceKey is the key of host memory in momentScan.devices. CUDA devices have keys of 0 and
// more, and -1 is an unknown device.
const hostDeviceKey = math.MinInt32

// momentScan collects the live memory of programs over time: tensors, and driver memory outside of
// the segments of caching allocators. When a process ends its memory is freed, so the totals are
// those of the machine.
type momentScan struct {
	t        *timeline.Timeline
	filter   *query.Filter
	window   query.Window
	groups   origin.StringNumbers // numbers of groups, by kind of memory and call site
	byOrigin []int32              // 1 + group of each origin; 0 if not yet known
	about    []allocationGroup    // by group
	devices  map[int32]*memoryStateSeries
}

// allocationGroup describes a group of allocations: those of one call site with one kind of memory.
type allocationGroup struct {
	site, memory string
	stack        stack.Pair // of the first allocation
}

func newMomentScan(t *timeline.Timeline, f *query.Filter) *momentScan {
	return &momentScan{
		t:       t,
		filter:  f,
		window:  f.NarrowWindow(t.RecordingWindow()),
		devices: make(map[int32]*memoryStateSeries),
	}
}

// consumeChange follows one change of the program's memory.
func (s *momentScan) consumeChange(_ *timeline.ProgramMemory, c *livemem.Change) {
	id := c.Block.Origin
	o := &s.t.Origins.List[id]
	if c.Kind == livemem.ChangeAllocFailed || c.Block.Bytes < s.filter.MinBytes ||
		!s.filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) {
		return
	}
	group, device := s.groupOfOrigin(id), o.Device
	if s.t.IsHostOrigin(id) {
		device = hostDeviceKey
	}
	series := s.devices[device]
	if series == nil {
		series = newMomentSeries(s.window)
		s.devices[device] = series
	}
	if c.Kind == livemem.ChangeAllocated {
		series.addChange(c.AtNs, group, c.Block.Bytes, 1)
	} else {
		series.addChange(c.AtNs, group, -c.Block.Bytes, -1)
	}
}

// groupOfOrigin returns the group to which the allocations of an origin belong.
func (s *momentScan) groupOfOrigin(id int32) int32 {
	s.byOrigin = units.GrowToIndex(s.byOrigin, id)
	if s.byOrigin[id] == 0 {
		o := &s.t.Origins.List[id]
		named := group.Group{Label: s.t.SiteOfOrigin(id), Via: s.t.ViaOfOrigin(id)}
		memory := s.t.Origins.MemoryKindOf(id)
		number := s.groups.NumberOf(memory + "\x00" + named.Text())
		if int(number) == len(s.about) {
			s.about = append(s.about, allocationGroup{named.Text(), memory, stack.Pair{Stack: o.Stack, Via: o.Via}})
		}
		s.byOrigin[id] = number + 1
	}
	return s.byOrigin[id] - 1
}

// finishSeries completes the memory series of all devices at the end of the window.
func (s *momentScan) finishSeries() {
	for _, series := range s.devices {
		series.finishWindow()
	}
}

// valueCurve collects a value over time. It keeps the lowest and the highest value of each bucket.
type valueCurve struct {
	windowBuckets
	bucket int          // current bucket; -1 before the first value
	lo, hi curvePoint   // lowest and highest value of the current bucket
	now    float64      // last value of the curve
	points []curvePoint // in order of time
}

// curvePoint is a value from a time (Unix ns) on.
type curvePoint struct {
	atNs  int64
	value float64
}

func newValueCurve(w query.Window) *valueCurve {
	return &valueCurve{windowBuckets: windowBuckets{w}, bucket: -1}
}

// addValue sets the value from a time (Unix ns) on. Times must not decrease.
func (c *valueCurve) addValue(atNs int64, v float64) {
	b := c.bucketAt(max(atNs, c.window.FromNs))
	if b >= numWindowBuckets {
		return
	}
	p := curvePoint{max(atNs, c.window.FromNs), v}
	if b != c.bucket {
		c.flushBucket()
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

// flushBucket appends the lowest and the highest value of the current bucket to the curve.
func (c *valueCurve) flushBucket() {
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
	if c.now != second.value { // the last value holds from the next bucket on
		c.points = append(c.points, curvePoint{c.bucketStartNs(c.bucket + 1), c.now})
	}
}

// raiseValues adds a constant to all values of the curve so far.
func (c *valueCurve) raiseValues(by float64) {
	for i := range c.points {
		c.points[i].value += by
	}
	c.lo.value += by
	c.hi.value += by
	c.now += by
}

// finishPoints returns the points of the curve.
func (c *valueCurve) finishPoints() []curvePoint {
	c.flushBucket()
	c.bucket = -1
	return c.points
}
