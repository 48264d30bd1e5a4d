package memory

import (
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

// Scan follows who holds memory: by origin, which knows process, device, kind, stack and place.
type Scan struct {
	t      *timeline.Timeline
	opt    *Options
	window query.Window
	use    *LevelScan
	seen   *query.Callers

	matched   bool     // a change passed the filter
	atNs      int64    // the moment of the holders, Unix ns
	libraries []string // by origin
	levels    map[libraryPlace]*Level
	ofOrigin  []*Level // the level of each origin

	courses map[*Level]*metric.History

	total, peak        int64     // live bytes on devices, now and at most
	changes, peakAfter int64     // changes of device memory so far, and until the peak
	held               []Holding // at atNs, by origin
}

// Holding is the live memory of one origin or call site.
type Holding struct{ Bytes, Blocks int64 }

// libraryPlace is a device, a kind of memory and the library that asked for it.
type libraryPlace struct {
	device          int32
	memory, library string
}

// NewScan returns a scan of the memory that opt.Filter lets through.
func NewScan(t *timeline.Timeline, opt *Options) *Scan {
	s := &Scan{
		t: t, opt: opt, window: opt.Window(t.Recording()), use: NewLevelScan(t, &opt.Filter), seen: query.NewCallers(),
		levels: make(map[libraryPlace]*Level), courses: make(map[*Level]*metric.History),
	}
	s.atNs = s.window.ToNs
	if opt.At == query.AtTime {
		s.atNs = opt.AtNs
	}
	return s
}

// Consume takes the next change of a replay.
func (s *Scan) Consume(_ *livemem.Set, c *livemem.Change) {
	id := c.Block.Origin
	o := &s.t.Origins.List[id]
	s.seen.Add(o.Pid, o.Tid, o.Device, o.Stream)
	kind, onDevice := s.use.Consume(c)
	if kind == nil || c.Kind == livemem.AllocFailed {
		return
	}
	s.matched = true
	s.follow(kind, c.AtNs)
	s.follow(onDevice, c.AtNs)
	s.level(id).move(c, s.window.FromNs)
	s.hold(c)
	if onDevice == nil {
		return
	}
	s.total += livemem.SignedBytes(c)
	s.changes++
	if s.total > s.peak || c.AtNs <= s.window.FromNs {
		s.peak, s.peakAfter = s.total, s.changes
		if s.opt.At == query.AtPeak {
			s.atNs = max(c.AtNs, s.window.FromNs)
		}
	}
}

// follow adds the live bytes of a level, which may be nil, to its course.
func (s *Scan) follow(l *Level, atNs int64) {
	if l == nil {
		return
	}
	c := s.courses[l]
	if c == nil {
		c = &metric.History{Window: s.window}
		s.courses[l] = c
	}
	c.Set(atNs, l.Live)
}

// hold counts a change up to the moment of the holders.
func (s *Scan) hold(c *livemem.Change) {
	if s.opt.At != query.AtPeak && c.AtNs > s.atNs {
		return
	}
	s.held = units.Grow(s.held, c.Block.Origin)
	h := &s.held[c.Block.Origin]
	h.Bytes += livemem.SignedBytes(c)
	if c.Kind == livemem.Allocated {
		h.Blocks++
	} else {
		h.Blocks--
	}
}

// goToPeak replays the recording again, up to the peak that Consume has found.
func (s *Scan) goToPeak() error {
	s.held = s.held[:0]
	use := NewLevelScan(s.t, &s.opt.Filter)
	var changes int64
	_, err := s.t.Replay(func(_ *livemem.Set, c *livemem.Change) {
		if changes == s.peakAfter {
			return
		}
		kind, onDevice := use.Consume(c)
		if kind == nil || c.Kind == livemem.AllocFailed {
			return
		}
		s.hold(c)
		if onDevice != nil {
			changes++
		}
	})
	return err
}

// library returns the library that asked for the memory of an origin.
func (s *Scan) library(id int32) string {
	s.libraries = units.Grow(s.libraries, id)
	if s.libraries[id] == "" {
		s.libraries[id] = s.t.Stacks.LibraryOf(s.t.Origins.List[id].Stack)
	}
	return s.libraries[id]
}

// level returns the level of the device, kind and library of an origin.
func (s *Scan) level(id int32) *Level {
	s.ofOrigin = units.Grow(s.ofOrigin, id)
	if s.ofOrigin[id] == nil {
		place := libraryPlace{s.t.Origins.List[id].Device, s.t.Origins.Memory(id), s.library(id)}
		if s.levels[place] == nil {
			s.levels[place] = new(Level)
		}
		s.ofOrigin[id] = s.levels[place]
	}
	return s.ofOrigin[id]
}

// heldBytes returns the bytes that are held on devices.
func (s *Scan) heldBytes() (sum int64) {
	for id, h := range s.held {
		if !s.t.OnHost(int32(id)) {
			sum += h.Bytes
		}
	}
	return sum
}
