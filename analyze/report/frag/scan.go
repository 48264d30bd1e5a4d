package frag

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/cachegrowth"
	"github.com/gpurec/gpurec/analyze/report/earlier"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// memoryOwnerKey identifies an owner: a caching allocator, or a program that maps memory into
// reserved addresses. Both divide memory from the driver into parts.
type memoryOwnerKey struct {
	pid, device  int32
	reservations bool
}

// memoryOwner is a caching allocator or a program with reserved addresses, and its memory over
// time.
type memoryOwner struct {
	memoryOwnerKey
	levels     []ownerUsage   // memory at the surveyed times so far
	snapshot   *ownerSnapshot // best candidate for the reported time so far; may be nil
	addressMap *AddressMap
	failures   []int64 // times of failed requests, Unix ns
	largest    int64   // largest request, bytes
	ended      bool    // the process of the owner ended
}

// ownerUsage has the sums over an owner's spaces at one time, bytes. kept are the stranded bytes,
// largest is the largest hole.
type ownerUsage struct{ reserved, active, unused, stranded, largestHole int64 }

// ownerSnapshot is the memory of an owner at the reported time.
type ownerSnapshot struct {
	atNs   int64 // Unix ns
	level  ownerUsage
	spaces []*caching.MemorySpace
	unseen int64 // bytes of segments from before the recording
	pins   []*pinningSite
}

// pinningSite is a call site whose live blocks strand memory: their segments cannot return to the
// driver.
type pinningSite struct {
	site                    string
	live, blocks            int64 // bytes and number of the blocks
	segments                int64 // segments with such blocks
	stranded, strandedAlone int64 // bytes of holes that the blocks strand: shared with others, and alone
	oldestNs                int64 // time at which the oldest block was allocated, Unix ns
	stack                   int32 // stack id of one of the blocks
	segment, counted        int64 // number of the last segment and of the last hole that were counted
}

// Scan surveys the memory of owners at several points in time. It is not safe for concurrent use.
type Scan struct {
	Maps []AddressMap // address maps of the report, one per owner that had memory

	t              *timeline.Timeline
	opt            *Options
	window         query.Window
	moments        []int64 // surveyed times, Unix ns, ascending
	owners         map[memoryOwnerKey]*memoryOwner
	ranges         map[memoryOwnerKey]addressRanges // all addresses at which each owner had memory
	callers        *query.SeenCallers
	hasPools       bool // memory of driver pools was allocated
	hasReports     bool // an allocator is known only from its memory reports
	failureSurveys int  // number of failures at which an owner was surveyed
	caches         *cachegrowth.Scan
	before         *earlier.Scan

	last      *caching.Allocator // argument of the last ownerOfAllocator
	lastOwner *memoryOwner
}

// maxFailureSurveys limits the number of failures at which owners are surveyed.
const maxFailureSurveys = 200

// NewScan returns a scan at MapMomentCount points in time of the window, and at opt.AtNs for
// query.MomentGivenTime.
func NewScan(t *timeline.Timeline, opt *Options) *Scan {
	s := &Scan{
		t:       t,
		opt:     opt,
		window:  t.ActivityWindow(&opt.Filter),
		owners:  make(map[memoryOwnerKey]*memoryOwner),
		ranges:  make(map[memoryOwnerKey]addressRanges),
		callers: query.NewSeenCallers(),
	}
	s.caches = cachegrowth.NewScan(t, &opt.Filter, s.window)
	for i := range int64(MapMomentCount) {
		s.moments = append(s.moments, s.window.FromNs+int64(float64(s.window.DurNs())*float64(i+1)/MapMomentCount))
	}
	if opt.At == query.MomentGivenTime {
		at, found := slices.BinarySearch(s.moments, opt.AtNs)
		if !found {
			s.moments = slices.Insert(s.moments, at, opt.AtNs)
		}
	}
	return s
}

// Finish surveys the owners at the times after the last change, and reserved addresses at all
// times.
func (s *Scan) Finish(all *caching.AllocatorSet) error {
	for _, a := range all.List {
		if a != nil && !a.Reports {
			if o := s.ownerOfAllocator(a); o != nil {
				s.surveyOwnerBefore(o, a, math.MaxInt64)
			}
		}
	}
	if err := s.scanReservations(); err != nil {
		return err
	}
	for _, o := range s.owners {
		for len(o.levels) < len(s.moments) {
			o.levels = append(o.levels, ownerUsage{})
		}
	}
	return nil
}

// FindAddressRanges finds all addresses at which each allocator had memory. Call it before a
// replay.
func (s *Scan) FindAddressRanges() error {
	for _, state := range s.t.EarlierStates() {
		if state.IsReported {
			continue
		}
		for i := range state.Segments {
			g := &state.Segments[i]
			s.addAddressRange(
				memoryOwnerKey{state.Pid, state.Device, false},
				addressRange{g.Ptr, units.EndOfRange(g.Ptr, g.Bytes)},
			)
		}
	}
	err := s.t.EachReading(func(state *caching.EarlierState) {
		for i := range state.Segments {
			g := &state.Segments[i]
			s.addAddressRange(
				memoryOwnerKey{state.Pid, state.Device, false},
				addressRange{g.Ptr, units.EndOfRange(g.Ptr, g.Bytes)},
			)
		}
	})
	if err != nil {
		return err
	}
	err = timeline.EachRowInOrder(
		s.t.Allocations,
		s.t.NewAllocatorStream(true),
		func(e *caching.AllocatorEvent) error {
			key := s.t.Allocators.Keys[e.Allocator]
			if e.Op == caching.OpSegmentAllocated || e.Op == caching.OpSegmentMapped {
				s.addAddressRange(
					memoryOwnerKey{key.Pid, key.Device, false},
					addressRange{e.Ptr, units.EndOfRange(e.Ptr, e.Bytes)},
				)
			}
			return nil
		},
	)
	for key, r := range s.ranges {
		s.ranges[key] = r.mergeTouching()
	}
	return s.t.WrapReadError(err)
}

// addAddressRange adds an address range to an owner. It merges ranges when the list grows, because
// allocators use the same addresses many times.
func (s *Scan) addAddressRange(key memoryOwnerKey, r addressRange) {
	list := append(s.ranges[key], r)
	if len(list) == cap(list) && len(list) >= 1<<12 {
		list = list.mergeTouching()
	}
	s.ranges[key] = list
}

// passesFilter reports whether a process and device pass the filter.
func (s *Scan) passesFilter(pid, device int32) bool {
	f := &s.opt.Filter
	s.callers.AddCaller(pid, pid, device, 0)
	return (len(f.Pids) == 0 || slices.Contains(f.Pids, pid)) &&
		(len(f.Devices) == 0 || slices.Contains(f.Devices, device))
}

// findOwner returns the owner of a key, or nil if the filter excludes the owner.
func (s *Scan) findOwner(key memoryOwnerKey) *memoryOwner {
	if o, ok := s.owners[key]; ok {
		return o
	}
	if !s.passesFilter(key.pid, key.device) {
		return nil
	}
	o := &memoryOwner{memoryOwnerKey: key, addressMap: newAddressMap(s.ranges[key], s.moments)}
	s.owners[key] = o
	return o
}

// ownerOfAllocator returns the owner of an allocator, or nil if the filter excludes the owner.
func (s *Scan) ownerOfAllocator(a *caching.Allocator) *memoryOwner {
	if s.last != a { // most events have the same allocator as the event before
		s.last, s.lastOwner = a, s.findOwner(memoryOwnerKey{a.Pid, a.Device, false})
	}
	return s.lastOwner
}

// OnDriverChange processes the next change of driver memory.
func (s *Scan) OnDriverChange(c *livemem.Change) {
	if c.Kind == livemem.ChangeAllocated && s.t.Origins.MemoryKindOf(c.Block.Origin) == format.MemoryAsync {
		s.hasPools = true
	}
}

// OnAllocatorChange processes the next change of an allocator. It surveys an allocator at the first
// event after a surveyed time, because that event may correct the size of the newest block.
func (s *Scan) OnAllocatorChange(a *caching.Allocator, c *caching.AllocatorChange) {
	s.caches.OnAllocatorChange(a, c)
	if a.Reports {
		s.hasReports = true
		return
	}
	o := s.ownerOfAllocator(a)
	if o == nil || c.Op == caching.OpBlockResized {
		return
	}
	s.surveyOwnerBefore(o, a, c.AtNs)
	inWindow := c.AtNs >= s.window.FromNs && c.AtNs <= s.window.ToNs
	switch c.Op {
	case caching.OpBlockAllocated:
		if inWindow {
			o.largest = max(o.largest, c.Block.Requested)
		}
	case caching.OpOutOfMemory:
		if !inWindow || s.failureSurveys == maxFailureSurveys {
			return
		}
		s.failureSurveys++
		o.failures = append(o.failures, c.AtNs)
		o.largest = max(o.largest, c.Block.Requested)
		s.takeSnapshot(o, a, c.AtNs, a.MeasureSpaces(nil))
	case caching.OpAllocatorEnd:
		if inWindow {
			s.takeSnapshot(o, a, c.AtNs, a.MeasureSpaces(nil))
		}
		o.ended = true
	}
}

// surveyOwnerBefore surveys an owner at the surveyed times before ns, Unix ns.
func (s *Scan) surveyOwnerBefore(o *memoryOwner, a *caching.Allocator, ns int64) {
	for len(o.levels) < len(s.moments) && s.moments[len(o.levels)] < ns {
		moment := len(o.levels)
		spaces := a.MeasureSpaces(nil)
		o.levels = append(o.levels, sumSpaces(spaces))
		s.takeSnapshot(o, a, s.moments[moment], spaces)
		for seg := range a.SegmentsInOrder() {
			for _, p := range a.PiecesWithin(seg) {
				o.addressMap.markRange(moment, p.Ptr, p.Size, p.State != caching.PieceHole)
			}
		}
	}
}

// sumSpaces returns the sums over spaces.
func sumSpaces(spaces []*caching.MemorySpace) (l ownerUsage) {
	for _, s := range spaces {
		l.reserved += s.Reserved
		l.active += s.Active
		l.unused += s.Unused
		l.stranded += s.Stranded
		l.largestHole = max(l.largestHole, s.Largest)
	}
	return l
}

// isBetterSnapshot reports whether a snapshot at atNs (Unix ns) is a better candidate for the
// reported time.
func (s *Scan) isBetterSnapshot(o *memoryOwner, atNs int64, l ownerUsage) bool {
	if l.reserved == 0 && l.active == 0 {
		return false
	}
	switch {
	case s.opt.At == query.MomentGivenTime:
		return atNs == s.opt.AtNs
	case o.snapshot == nil || s.opt.At == query.MomentEnd:
		return true
	}
	d := &o.snapshot.level
	if o.reservations { // holes in reserved addresses strand no memory
		return cmp.Or(
			cmp.Compare(l.unused-l.largestHole, d.unused-d.largestHole),
			cmp.Compare(l.reserved, d.reserved),
		) > 0
	}
	return cmp.Or(cmp.Compare(l.stranded, d.stranded), cmp.Compare(l.reserved, d.reserved)) > 0
}

// takeSnapshot takes a snapshot of an owner if the time is a better candidate for the reported
// time.
func (s *Scan) takeSnapshot(o *memoryOwner, a *caching.Allocator, atNs int64, spaces []*caching.MemorySpace) {
	if l := sumSpaces(spaces); s.isBetterSnapshot(o, atNs, l) {
		o.snapshot = &ownerSnapshot{
			atNs:   atNs,
			level:  l,
			spaces: spaces,
			unseen: a.UnseenReservedBytes(spaces),
			pins:   s.findPinningSites(a),
		}
	}
}

// findPinningSites returns the call sites whose blocks strand memory, most bytes first.
func (s *Scan) findPinningSites(a *caching.Allocator) []*pinningSite {
	found := make(map[string]*pinningSite)
	counted := make(map[int32]bool) // counted blocks
	var holes int64
	var holePins []*pinningSite
	a.MeasureSpaces(func(g caching.StrandedHole) {
		holes++
		holePins = holePins[:0]
		for _, i := range g.Blocks {
			p := &a.Pieces[i]
			pin := s.addPinningSite(found, p)
			if !counted[i] {
				counted[i] = true
				pin.live += p.Size
				pin.blocks++
				pin.oldestNs = min(pin.oldestNs, p.SinceNs)
			}
			if pin.segment != g.Segment {
				pin.segment = g.Segment
				pin.segments++
			}
			if pin.counted != holes {
				pin.counted = holes
				pin.stranded += g.Bytes
				holePins = append(holePins, pin)
			}
		}
		if len(holePins) == 1 {
			holePins[0].strandedAlone += g.Bytes
		}
	})
	return slices.SortedFunc(maps.Values(found), func(a, b *pinningSite) int {
		return cmp.Or(
			cmp.Compare(b.strandedAlone, a.strandedAlone),
			cmp.Compare(b.stranded, a.stranded),
			cmp.Compare(a.site, b.site),
		)
	})
}

// addPinningSite returns the entry for the call site that allocated a block, and creates it if
// necessary.
func (s *Scan) addPinningSite(found map[string]*pinningSite, p *caching.SegmentPiece) *pinningSite {
	site := s.t.SiteOfPiece(p)
	if found[site] == nil {
		found[site] = &pinningSite{site: site, oldestNs: p.SinceNs}
		if p.Origin != origin.NoOrigin {
			found[site].stack = s.t.Origins.List[p.Origin].Stack
		}
	}
	return found[site]
}

// scanReservations surveys, at all times, the reserved addresses that no allocator uses.
func (s *Scan) scanReservations() error {
	ofAllocators := make(map[int32]addressRanges)
	for key, r := range s.ranges {
		ofAllocators[key.pid] = append(ofAllocators[key.pid], r...)
	}
	for pid, r := range ofAllocators {
		ofAllocators[pid] = r.mergeTouching()
	}
	err := forEachAddressCall(s.t, func(c *addressCall) {
		if c.op == addressOpReserve && !ofAllocators[c.pid].overlaps(c.ptr, units.EndOfRange(c.ptr, c.bytes)) {
			s.addAddressRange(
				memoryOwnerKey{c.pid, c.device, true},
				addressRange{c.ptr, units.EndOfRange(c.ptr, c.bytes)},
			)
		}
	})
	if err != nil {
		return err
	}
	for key, r := range s.ranges {
		if key.reservations {
			s.ranges[key] = r.mergeTouching()
			s.findOwner(key)
		}
	}
	now := make(reservationsByPid)
	moment := 0
	err = forEachAddressCall(s.t, func(c *addressCall) {
		for ; moment < len(s.moments) && s.moments[moment] < c.atNs; moment++ {
			s.surveyReservations(now, moment)
		}
		if !ofAllocators[c.pid].overlaps(c.ptr, units.EndOfRange(c.ptr, c.bytes)) {
			now.applyCall(c)
		}
	})
	for ; moment < len(s.moments); moment++ {
		s.surveyReservations(now, moment)
	}
	return err
}

// surveyReservations surveys the reservations at s.moments[moment].
func (s *Scan) surveyReservations(now reservationsByPid, moment int) {
	atNs := s.moments[moment]
	spaces := make(map[memoryOwnerKey]*caching.MemorySpace)
	for pid, list := range now {
		if exit := s.t.Facts.Processes[pid].ExitNs; exit > 0 && exit < atNs {
			continue
		}
		for _, r := range list {
			key := memoryOwnerKey{pid, r.device, true}
			o := s.owners[key]
			if o == nil {
				continue
			}
			if spaces[key] == nil {
				spaces[key] = &caching.MemorySpace{Kind: caching.SpaceReservation}
			}
			r.addToSpace(spaces[key])
			o.addressMap.markRange(moment, r.ptr, r.end-r.ptr, false)
			r.mapped.EachMapping(func(m livemem.Mapping) { o.addressMap.markUsed(moment, m.Start, m.End-m.Start) })
		}
	}
	for key, o := range s.owners {
		if !key.reservations {
			continue
		}
		var list []*caching.MemorySpace
		if sp := spaces[key]; sp != nil {
			list = append(list, sp)
		}
		l := sumSpaces(list)
		o.levels = append(o.levels, l)
		if s.isBetterSnapshot(o, atNs, l) {
			o.snapshot = &ownerSnapshot{atNs: atNs, level: l, spaces: list}
		}
	}
}

// sortedOwners returns the owners sorted by process and device.
func (s *Scan) sortedOwners() []*memoryOwner {
	return slices.SortedFunc(maps.Values(s.owners), func(a, b *memoryOwner) int {
		order := cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.device, b.device))
		if order == 0 && a.reservations != b.reservations {
			if a.reservations {
				return 1
			}
			return -1
		}
		return order
	})
}
