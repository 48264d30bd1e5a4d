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
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// ownerKey identifies an owner of memory that is handed out in parts: a caching allocator, or a
// program that maps memory into reserved addresses.
type ownerKey struct {
	pid, device  int32
	reservations bool
}

// owner is an allocator or a program with reserved addresses, and its memory over time.
type owner struct {
	ownerKey
	levels   []usage   // at the moments so far
	detail   *snapshot // at the moment of the report, as far as it is known; may be nil
	picture  *AddressMap
	failures []int64 // when requests failed, Unix ns
	largest  int64   // largest request, bytes
	ended    bool    // its process ended
}

// usage sums up the spaces of an owner at a moment, bytes. largest is the largest gap.
type usage struct{ reserved, active, unused, kept, largest int64 }

// snapshot is the memory of an owner at the moment of the report.
type snapshot struct {
	atNs   int64 // Unix ns
	level  usage
	spaces []*caching.Space
	unseen int64 // bytes of segments from before the recording
	pins   []*pin
}

// pin is a call site whose blocks keep memory from going back to the driver.
type pin struct {
	site             string
	live, blocks     int64 // bytes and number of the blocks
	segments         int64 // segments that they keep
	kept, alone      int64 // bytes of gaps that they keep, and that only they keep
	oldestNs         int64 // when the oldest block was allocated, Unix ns
	stack            int32 // stack id of one of them
	segment, counted int64 // last segment and last gap that were counted
}

// Scan surveys the memory of owners at moments. It is not safe for concurrent use.
type Scan struct {
	t       *timeline.Timeline
	opt     *Options
	window  query.Window
	moments []int64 // Unix ns, rising
	owners  map[ownerKey]*owner
	ranges  map[ownerKey]addressRanges // addresses at which each owner ever had memory
	seen    *query.Callers
	pools   bool // memory of pools was allocated
	reports bool // an allocator is known by its reports only
	looks   int  // failures at which an owner was surveyed

	last      *caching.Allocator // of the last ownerOf
	lastOwner *owner
}

// maxFailureLooks bounds the failures at which owners are surveyed, in addition to the moments.
const maxFailureLooks = 200

// NewScan returns a scan of MapMoments moments of the window, and of opt.AtNs for query.AtTime.
func NewScan(t *timeline.Timeline, opt *Options) *Scan {
	s := &Scan{
		t:      t,
		opt:    opt,
		window: t.Activity(&opt.Filter),
		owners: make(map[ownerKey]*owner),
		ranges: make(map[ownerKey]addressRanges),
		seen:   query.NewCallers(),
	}
	for i := range int64(MapMoments) {
		s.moments = append(s.moments, s.window.FromNs+int64(float64(s.window.DurNs())*float64(i+1)/MapMoments))
	}
	if opt.At == query.AtTime {
		at, found := slices.BinarySearch(s.moments, opt.AtNs)
		if !found {
			s.moments = slices.Insert(s.moments, at, opt.AtNs)
		}
	}
	return s
}

// run replays the recording.
func (s *Scan) run() (*timeline.Program, error) {
	if err := s.FindRanges(); err != nil {
		return nil, err
	}
	l, all, err := s.t.ReplayAll(func(_ *livemem.Set, c *livemem.Change) { s.Driver(c) }, s.Watch)
	if err != nil {
		return nil, err
	}
	return &timeline.Program{T: s.t, Driver: l, Allocators: all}, s.Finish(all)
}

// Finish surveys the owners at the moments after the last change, and reserved addresses at all
// moments.
func (s *Scan) Finish(all *caching.Set) error {
	for _, a := range all.List {
		if a != nil && !a.Reports {
			if o := s.ownerOf(a); o != nil {
				s.until(o, a, math.MaxInt64)
			}
		}
	}
	if err := s.watchReservations(); err != nil {
		return err
	}
	for _, o := range s.owners {
		for len(o.levels) < len(s.moments) {
			o.levels = append(o.levels, usage{})
		}
	}
	return nil
}

// FindRanges finds the addresses at which each allocator ever had memory. Call it before a replay.
func (s *Scan) FindRanges() error {
	err := timeline.InOrder(s.t.Allocations, s.t.StreamAllocators(true), func(e *caching.Event) error {
		key := s.t.Allocators.Keys[e.Allocator]
		if e.Op == caching.SegmentAllocated || e.Op == caching.SegmentMapped {
			s.addRange(ownerKey{key.Pid, key.Device, false}, addressRange{e.Ptr, units.EndOf(e.Ptr, e.Bytes)})
		}
		return nil
	})
	for key, r := range s.ranges {
		s.ranges[key] = r.joined()
	}
	return s.t.Wrap(err)
}

// addRange adds a range of addresses. It keeps the list short where addresses are used again and
// again.
func (s *Scan) addRange(key ownerKey, r addressRange) {
	list := append(s.ranges[key], r)
	if len(list) == cap(list) && len(list) >= 1<<12 {
		list = list.joined()
	}
	s.ranges[key] = list
}

// wants reports whether the filter lets a process and device through.
func (s *Scan) wants(pid, device int32) bool {
	f := &s.opt.Filter
	s.seen.Add(pid, pid, device, 0)
	return (len(f.Pids) == 0 || slices.Contains(f.Pids, pid)) &&
		(len(f.Devices) == 0 || slices.Contains(f.Devices, device))
}

// owner returns the owner of a key, nil if the filter leaves it out.
func (s *Scan) owner(key ownerKey) *owner {
	if o, ok := s.owners[key]; ok {
		return o
	}
	if !s.wants(key.pid, key.device) {
		return nil
	}
	o := &owner{ownerKey: key, picture: newAddressMap(s.ranges[key], s.moments)}
	s.owners[key] = o
	return o
}

// ownerOf returns the owner of an allocator, nil if the filter leaves it out.
func (s *Scan) ownerOf(a *caching.Allocator) *owner {
	if s.last != a { // most events are of the same one as the event before
		s.last, s.lastOwner = a, s.owner(ownerKey{a.Pid, a.Device, false})
	}
	return s.lastOwner
}

// Driver takes the next change of the driver's memory.
func (s *Scan) Driver(c *livemem.Change) {
	if c.Kind == livemem.Allocated && s.t.Origins.Memory(c.Block.Origin) == format.MemoryAsync {
		s.pools = true
	}
}

// Watch takes the next change of an allocator. An allocator is surveyed at its next event after a
// moment, which may correct the size of its newest block.
func (s *Scan) Watch(a *caching.Allocator, c *caching.Change) {
	if a.Reports {
		s.reports = true
		return
	}
	o := s.ownerOf(a)
	if o == nil || c.Op == caching.BlockResized {
		return
	}
	s.until(o, a, c.AtNs)
	inWindow := c.AtNs >= s.window.FromNs && c.AtNs <= s.window.ToNs
	switch c.Op {
	case caching.BlockAllocated:
		if inWindow {
			o.largest = max(o.largest, c.Block.Requested)
		}
	case caching.OutOfMemory:
		if !inWindow || s.looks == maxFailureLooks {
			return
		}
		s.looks++
		o.failures = append(o.failures, c.AtNs)
		o.largest = max(o.largest, c.Block.Requested)
		s.detail(o, a, c.AtNs, a.Survey(nil))
	case caching.AllocatorEnd:
		if inWindow {
			s.detail(o, a, c.AtNs, a.Survey(nil))
		}
		o.ended = true
	}
}

// until surveys an owner at the moments before ns, Unix ns.
func (s *Scan) until(o *owner, a *caching.Allocator, ns int64) {
	for len(o.levels) < len(s.moments) && s.moments[len(o.levels)] < ns {
		moment := len(o.levels)
		spaces := a.Survey(nil)
		o.levels = append(o.levels, levelOf(spaces))
		s.detail(o, a, s.moments[moment], spaces)
		for seg := range a.Ranges() {
			for _, p := range a.Within(seg) {
				o.picture.add(moment, p.Ptr, p.Size, p.State != caching.IsHole)
			}
		}
	}
}

// levelOf sums up spaces.
func levelOf(spaces []*caching.Space) (l usage) {
	for _, s := range spaces {
		l.reserved += s.Reserved
		l.active += s.Active
		l.unused += s.Unused
		l.kept += s.Stranded
		l.largest = max(l.largest, s.Largest)
	}
	return l
}

// wanted reports whether this is the moment of the report, by what is known so far.
func (s *Scan) wanted(o *owner, atNs int64, l usage) bool {
	if l.reserved == 0 && l.active == 0 {
		return false
	}
	switch {
	case s.opt.At == query.AtTime:
		return atNs == s.opt.AtNs
	case o.detail == nil || s.opt.At == query.AtEnd:
		return true
	}
	d := &o.detail.level
	if o.reservations { // holes are addresses: nothing is kept
		return cmp.Or(cmp.Compare(l.unused-l.largest, d.unused-d.largest), cmp.Compare(l.reserved, d.reserved)) > 0
	}
	return cmp.Or(cmp.Compare(l.kept, d.kept), cmp.Compare(l.reserved, d.reserved)) > 0
}

// detail takes a snapshot if this is the moment of the report.
func (s *Scan) detail(o *owner, a *caching.Allocator, atNs int64, spaces []*caching.Space) {
	if l := levelOf(spaces); s.wanted(o, atNs, l) {
		o.detail = &snapshot{atNs: atNs, level: l, spaces: spaces, unseen: a.Unseen(spaces), pins: s.pinsOf(a)}
	}
}

// pinsOf returns the call sites whose blocks keep gaps, most bytes first.
func (s *Scan) pinsOf(a *caching.Allocator) []*pin {
	found := make(map[string]*pin)
	met := make(map[int32]bool) // blocks
	var gaps int64
	var here []*pin
	a.Survey(func(g caching.StrandedHole) {
		gaps++
		here = here[:0]
		for _, i := range g.Blocks {
			p := &a.Pieces[i]
			one := s.pinOf(found, p)
			if !met[i] {
				met[i] = true
				one.live += p.Size
				one.blocks++
				one.oldestNs = min(one.oldestNs, p.SinceNs)
			}
			if one.segment != g.Segment {
				one.segment = g.Segment
				one.segments++
			}
			if one.counted != gaps {
				one.counted = gaps
				one.kept += g.Bytes
				here = append(here, one)
			}
		}
		if len(here) == 1 {
			here[0].alone += g.Bytes
		}
	})
	return slices.SortedFunc(maps.Values(found), func(a, b *pin) int {
		return cmp.Or(cmp.Compare(b.alone, a.alone), cmp.Compare(b.kept, a.kept), cmp.Compare(a.site, b.site))
	})
}

// pinOf returns the call site that allocated a block.
func (s *Scan) pinOf(found map[string]*pin, p *caching.Piece) *pin {
	site := s.t.BlockSite(p.Origin)
	if found[site] == nil {
		found[site] = &pin{site: site, oldestNs: p.SinceNs}
		if p.Origin != origin.None {
			found[site].stack = s.t.Origins.List[p.Origin].Stack
		}
	}
	return found[site]
}

// watchReservations surveys, at all moments, the reserved addresses that no allocator uses.
func (s *Scan) watchReservations() error {
	ofAllocators := make(map[int32]addressRanges)
	for key, r := range s.ranges {
		ofAllocators[key.pid] = append(ofAllocators[key.pid], r...)
	}
	for pid, r := range ofAllocators {
		ofAllocators[pid] = r.joined()
	}
	err := eachAddressCall(s.t, func(c *addressCall) {
		if c.op == addressReserve && !ofAllocators[c.pid].overlaps(c.ptr, units.EndOf(c.ptr, c.bytes)) {
			s.addRange(ownerKey{c.pid, c.device, true}, addressRange{c.ptr, units.EndOf(c.ptr, c.bytes)})
		}
	})
	if err != nil {
		return err
	}
	for key, r := range s.ranges {
		if key.reservations {
			s.ranges[key] = r.joined()
			s.owner(key)
		}
	}
	now := make(reservations)
	moment := 0
	err = eachAddressCall(s.t, func(c *addressCall) {
		for ; moment < len(s.moments) && s.moments[moment] < c.atNs; moment++ {
			s.lookAtReservations(now, moment)
		}
		if !ofAllocators[c.pid].overlaps(c.ptr, units.EndOf(c.ptr, c.bytes)) {
			now.apply(c)
		}
	})
	for ; moment < len(s.moments); moment++ {
		s.lookAtReservations(now, moment)
	}
	return err
}

// lookAtReservations surveys the reservations at a moment, an index of s.moments.
func (s *Scan) lookAtReservations(now reservations, moment int) {
	atNs := s.moments[moment]
	spaces := make(map[ownerKey]*caching.Space)
	for pid, list := range now {
		if exit := s.t.Facts.Processes[pid].ExitNs; exit > 0 && exit < atNs {
			continue
		}
		for _, r := range list {
			key := ownerKey{pid, r.device, true}
			o := s.owners[key]
			if o == nil {
				continue
			}
			if spaces[key] == nil {
				spaces[key] = &caching.Space{Kind: caching.InReservation}
			}
			r.survey(spaces[key])
			o.picture.add(moment, r.ptr, r.end-r.ptr, false)
			r.mapped.Each(func(m livemem.Mapping) { o.picture.use(moment, m.Start, m.End-m.Start) })
		}
	}
	for key, o := range s.owners {
		if !key.reservations {
			continue
		}
		var list []*caching.Space
		if sp := spaces[key]; sp != nil {
			list = append(list, sp)
		}
		l := levelOf(list)
		o.levels = append(o.levels, l)
		if s.wanted(o, atNs, l) {
			o.detail = &snapshot{atNs: atNs, level: l, spaces: list}
		}
	}
}

// sorted returns the owners by process and device.
func (s *Scan) sorted() []*owner {
	return slices.SortedFunc(maps.Values(s.owners), func(a, b *owner) int {
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
