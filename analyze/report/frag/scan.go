package frag

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// ownerKey names who hands out memory in parts: a caching allocator, or a program that
// maps memory into addresses which it reserved.
type ownerKey struct {
	pid, device  int32
	reservations bool
}

// owner is what was seen of an owner.
type owner struct {
	ownerKey
	levels   []usage // at the moments so far
	detail   *snapshot
	picture  *AddressMap
	failures []int64 // when requests failed, Unix ns
	// largest is the largest request, in bytes.
	largest int64
	ended   bool
}

// usage is what an owner has at a moment, all its spaces together.
type usage struct{ reserved, active, unused, kept, largest int64 }

// snapshot is what an owner has at the moment that is told of.
type snapshot struct {
	atNs   int64
	level  usage
	Spaces []*caching.Space
	Unseen int64
	pins   []*pin
}

// pin is a place whose blocks keep memory from going back to the driver.
type pin struct {
	site             string
	live, blocks     int64
	segments         int64
	kept, alone      int64
	oldestNs         int64
	stack            int32
	segment, counted int64 // last segment, last gap
}

// Scan looks at owners at moments.
type Scan struct {
	t       *timeline.Timeline
	opt     *Options
	window  query.Window
	moments []int64
	owners  map[ownerKey]*owner
	ranges  map[ownerKey]addressRanges
	seen    *query.Callers
	pools   bool // memory of pools was allocated
	reports bool // an allocator is known by its reports only
	looks   int  // at failures

	last      *caching.Allocator // that ownerOf was asked for
	lastOwner *owner
}

// maxFailureLooks bounds the failures at which owners are looked at beside the moments.
const maxFailureLooks = 200

func NewScan(t *timeline.Timeline, opt *Options) *Scan {
	s := &Scan{t: t, opt: opt, window: t.Activity(&opt.Filter), owners: make(map[ownerKey]*owner), ranges: make(map[ownerKey]addressRanges), seen: query.NewCallers()}
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
	l, all, err := s.t.ReplayAll(func(_ *ledger.Ledger, c *ledger.Change) { s.Driver(c) }, s.Watch)
	if err != nil {
		return nil, err
	}
	return &timeline.Program{T: s.t, Driver: l, Allocators: all}, s.Finish(all)
}

// Finish looks at owners at the moments after the last change.
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

// FindRanges notes at which addresses each allocator ever had memory.
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

// addRange keeps the list short where addresses are used again and again.
func (s *Scan) addRange(key ownerKey, r addressRange) {
	list := append(s.ranges[key], r)
	if len(list) == cap(list) && len(list) >= 1<<12 {
		list = list.joined()
	}
	s.ranges[key] = list
}

func (s *Scan) wants(pid, device int32) bool {
	f := &s.opt.Filter
	s.seen.Add(pid, pid, device, 0)
	return (len(f.Pids) == 0 || slices.Contains(f.Pids, pid)) && (len(f.Devices) == 0 || slices.Contains(f.Devices, device))
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

func (s *Scan) ownerOf(a *caching.Allocator) *owner {
	if s.last != a { // most events are of the same one as the event before
		s.last, s.lastOwner = a, s.owner(ownerKey{a.Pid, a.Device, false})
	}
	return s.lastOwner
}

func (s *Scan) Driver(c *ledger.Change) {
	if c.Kind == ledger.Allocated && s.t.Origins.Memory(c.Block.Origin) == format.MemoryAsync {
		s.pools = true
	}
}

// Watch takes the changes of allocators. Each is looked at when its own next event
// comes: that may correct the size of its newest block.
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

// until looks at an owner at all moments before one.
func (s *Scan) until(o *owner, a *caching.Allocator, ns int64) {
	for len(o.levels) < len(s.moments) && s.moments[len(o.levels)] < ns {
		moment := len(o.levels)
		spaces := a.Survey(nil)
		o.levels = append(o.levels, levelOf(spaces))
		s.detail(o, a, s.moments[moment], spaces)
		for seg := range a.Ranges() {
			for _, p := range a.Within(seg) {
				o.picture.add(moment, p.Ptr, p.Size, p.State != caching.IsGap)
			}
		}
	}
}

func levelOf(spaces []*caching.Space) (l usage) {
	for _, s := range spaces {
		l.reserved += s.Reserved
		l.active += s.Active
		l.unused += s.Unused
		l.kept += s.Kept
		l.largest = max(l.largest, s.Largest)
	}
	return l
}

// wanted reports whether the moment is the one to tell of, as far as is known.
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

// detail keeps what there is now, if this is the moment.
func (s *Scan) detail(o *owner, a *caching.Allocator, atNs int64, spaces []*caching.Space) {
	if l := levelOf(spaces); s.wanted(o, atNs, l) {
		o.detail = &snapshot{atNs: atNs, level: l, Spaces: spaces, Unseen: a.Unseen(spaces), pins: s.pinsOf(a)}
	}
}

// pinsOf finds the places whose blocks keep gaps.
func (s *Scan) pinsOf(a *caching.Allocator) []*pin {
	found := make(map[string]*pin)
	met := make(map[int32]bool) // blocks
	var gaps int64
	var here []*pin
	a.Survey(func(g caching.Pinned) {
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
				one.kept += g.Kept
				here = append(here, one)
			}
		}
		if len(here) == 1 {
			here[0].alone += g.Kept
		}
	})
	return slices.SortedFunc(maps.Values(found), func(a, b *pin) int {
		return cmp.Or(cmp.Compare(b.alone, a.alone), cmp.Compare(b.kept, a.kept), cmp.Compare(a.site, b.site))
	})
}

// pinOf returns the place that allocated a block.
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

// watchReservations looks at reserved addresses that are not those of allocators.
func (s *Scan) watchReservations() error {
	ofAllocators := make(map[int32]addressRanges)
	for key, r := range s.ranges {
		ofAllocators[key.pid] = append(ofAllocators[key.pid], r...)
	}
	for pid, r := range ofAllocators {
		ofAllocators[pid] = r.joined()
	}
	err := eachAddressCall(s.t, func(c *addressCall) {
		if c.what == addressReserve && !ofAllocators[c.pid].overlaps(c.ptr, units.EndOf(c.ptr, c.bytes)) {
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
			r.mapped.Each(func(m ledger.Mapping) { o.picture.use(moment, m.Start, m.End-m.Start) })
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
			o.detail = &snapshot{atNs: atNs, level: l, Spaces: list}
		}
	}
}

// sorted returns the owners in order of process and device.
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
