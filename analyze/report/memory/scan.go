package memory

import (
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/earlier"
	"github.com/gpurec/gpurec/analyze/units"
)

// Scan tracks the holders of memory by origin: process, device, kind, stack and call site. It is
// not safe for concurrent use.
type Scan struct {
	t         *timeline.Timeline
	opt       *Options
	window    query.Window
	levelScan *LevelScan
	callers   *query.SeenCallers
	before    *earlier.Scan

	matched       bool     // any change of memory passed the filter
	atNs          int64    // reported point in time, Unix ns
	libraries     []string // name of the allocating library, by origin
	levels        map[libraryMemoryKind]*MemoryLevel
	levelByOrigin []*MemoryLevel // level of each origin

	series map[*MemoryLevel]*metric.MaximumHistory

	total, peak        int64        // live bytes on devices: current and highest
	changes, peakAfter int64        // number of changes of device memory: so far, and until the peak
	holdings           []HeldMemory // holdings at atNs, by origin
}

// HeldMemory is the live memory of one origin or call site: bytes and number of blocks.
type HeldMemory struct{ Bytes, Blocks int64 }

// libraryMemoryKind is a device, a kind of memory and the library that allocated it.
type libraryMemoryKind struct {
	device          int32
	memory, library string
}

// NewScan returns a scan of the memory that passes opt.Filter.
func NewScan(t *timeline.Timeline, opt *Options) *Scan {
	s := &Scan{
		t: t, opt: opt, window: opt.NarrowWindow(t.RecordingWindow()),
		levelScan: NewLevelScan(t, &opt.Filter), callers: query.NewSeenCallers(),
		levels: make(map[libraryMemoryKind]*MemoryLevel), series: make(map[*MemoryLevel]*metric.MaximumHistory),
	}
	s.atNs = s.window.ToNs
	if opt.At == query.MomentGivenTime {
		s.atNs = opt.AtNs
	}
	return s
}

// OnDriverChange processes the next change of a replay.
func (s *Scan) OnDriverChange(c *livemem.Change) {
	id := c.Block.Origin
	o := &s.t.Origins.List[id]
	s.callers.AddCaller(o.Pid, o.Tid, o.Device, o.Stream)
	kind, onDevice := s.levelScan.OnDriverChange(c)
	if kind == nil || c.Kind == livemem.ChangeAllocFailed {
		return
	}
	s.matched = true
	s.extendSeries(kind, c.AtNs)
	s.extendSeries(onDevice, c.AtNs)
	s.levelOfOrigin(id).applyChange(c, s.window.FromNs)
	s.updateHoldings(c)
	if onDevice == nil {
		return
	}
	s.total += livemem.LiveBytesChange(c)
	s.changes++
	if s.total > s.peak || c.AtNs <= s.window.FromNs {
		s.peak, s.peakAfter = s.total, s.changes
		if s.opt.At == query.MomentPeak {
			s.atNs = max(c.AtNs, s.window.FromNs)
		}
	}
}

// extendSeries appends the live bytes of a level to its time series. l may be nil.
func (s *Scan) extendSeries(l *MemoryLevel, atNs int64) {
	if l == nil {
		return
	}
	c := s.series[l]
	if c == nil {
		c = &metric.MaximumHistory{Window: s.window}
		s.series[l] = c
	}
	c.SetValue(atNs, l.Live)
}

// updateHoldings applies a change to the holdings, if it is not after the reported time.
func (s *Scan) updateHoldings(c *livemem.Change) {
	if s.opt.At != query.MomentPeak && c.AtNs > s.atNs {
		return
	}
	s.holdings = units.GrowToIndex(s.holdings, c.Block.Origin)
	h := &s.holdings[c.Block.Origin]
	h.Bytes += livemem.LiveBytesChange(c)
	if c.Kind == livemem.ChangeAllocated {
		h.Blocks++
	} else {
		h.Blocks--
	}
}

// replayToPeak replays the recording again, up to the peak that Consume found.
func (s *Scan) replayToPeak() error {
	s.holdings = s.holdings[:0]
	use := NewLevelScan(s.t, &s.opt.Filter)
	var changes int64
	_, err := s.t.ReplayMemory(func(_ *livemem.Set, c *livemem.Change) {
		if changes == s.peakAfter {
			return
		}
		kind, onDevice := use.OnDriverChange(c)
		if kind == nil || c.Kind == livemem.ChangeAllocFailed {
			return
		}
		s.updateHoldings(c)
		if onDevice != nil {
			changes++
		}
	})
	return err
}

// libraryOfOrigin returns the library that allocated the memory of an origin.
func (s *Scan) libraryOfOrigin(id int32) string {
	s.libraries = units.GrowToIndex(s.libraries, id)
	if s.libraries[id] == "" {
		s.libraries[id] = s.t.LibraryOfOrigin(id)
	}
	return s.libraries[id]
}

// levelOfOrigin returns the level of the device, kind and library of an origin.
func (s *Scan) levelOfOrigin(id int32) *MemoryLevel {
	s.levelByOrigin = units.GrowToIndex(s.levelByOrigin, id)
	if s.levelByOrigin[id] == nil {
		place := libraryMemoryKind{s.t.Origins.List[id].Device, s.t.Origins.MemoryKindOf(id), s.libraryOfOrigin(id)}
		if s.levels[place] == nil {
			s.levels[place] = new(MemoryLevel)
		}
		s.levelByOrigin[id] = s.levels[place]
	}
	return s.levelByOrigin[id]
}

// heldBytes returns the bytes held on devices.
func (s *Scan) heldBytes() (sum int64) {
	for id, h := range s.holdings {
		if !s.t.IsHostOrigin(int32(id)) {
			sum += h.Bytes
		}
	}
	return sum
}
