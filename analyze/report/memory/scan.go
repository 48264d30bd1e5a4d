package memory

import (
	"github.com/gpurec/gpurec/analyze/model/ledger"
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

	matched   bool
	atNs      int64 // the moment of which holders are told
	libraries []string
	levels    map[libraryPlace]*Level
	ofOrigin  []*Level

	courses map[*Level]*metric.Course

	// What is live now, and how many changes led there; the most that was.
	total, peak        int64
	changes, peakAfter int64
	held               []Holding
}

// Holding is what calls of one origin hold.
type Holding struct{ Bytes, Blocks int64 }

// libraryPlace is where and for whom memory is.
type libraryPlace struct {
	device          int32
	memory, library string
}

func NewScan(t *timeline.Timeline, opt *Options) *Scan {
	s := &Scan{t: t, opt: opt, window: opt.Window(t.Recording()), use: NewLevelScan(t, &opt.Filter), seen: query.NewCallers(),
		levels: make(map[libraryPlace]*Level), courses: make(map[*Level]*metric.Course)}
	s.atNs = s.window.ToNs
	if opt.At == query.AtTime {
		s.atNs = opt.AtNs
	}
	return s
}

func (s *Scan) Consume(_ *ledger.Ledger, c *ledger.Change) {
	id := c.Block.Origin
	o := &s.t.Origins.List[id]
	s.seen.Add(o.Pid, o.Tid, o.Device, o.Stream)
	kind, onDevice := s.use.Consume(c)
	if kind == nil || c.Kind == ledger.AllocFailed {
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
	s.total += ledger.Signed(c)
	s.changes++
	if s.total > s.peak || c.AtNs <= s.window.FromNs {
		s.peak, s.peakAfter = s.total, s.changes
		if s.opt.At == query.AtPeak {
			s.atNs = max(c.AtNs, s.window.FromNs)
		}
	}
}

// follow notes how much is live.
func (s *Scan) follow(l *Level, atNs int64) {
	if l == nil {
		return
	}
	c := s.courses[l]
	if c == nil {
		c = &metric.Course{Window: s.window}
		s.courses[l] = c
	}
	c.Set(atNs, l.Live)
}

// hold notes what is held at the moment that is told of.
func (s *Scan) hold(c *ledger.Change) {
	if s.opt.At != query.AtPeak && c.AtNs > s.atNs {
		return
	}
	s.held = units.Grow(s.held, c.Block.Origin)
	h := &s.held[c.Block.Origin]
	h.Bytes += ledger.Signed(c)
	if c.Kind == ledger.Allocated {
		h.Blocks++
	} else {
		h.Blocks--
	}
}

// goToPeak replays again until the moment of the peak, which is known now.
func (s *Scan) goToPeak() error {
	s.held = s.held[:0]
	use := NewLevelScan(s.t, &s.opt.Filter)
	var changes int64
	_, err := s.t.Replay(func(_ *ledger.Ledger, c *ledger.Change) {
		if changes == s.peakAfter {
			return
		}
		kind, onDevice := use.Consume(c)
		if kind == nil || c.Kind == ledger.AllocFailed {
			return
		}
		s.hold(c)
		if onDevice != nil {
			changes++
		}
	})
	return err
}

// library names who asked for memory of an origin.
func (s *Scan) library(id int32) string {
	s.libraries = units.Grow(s.libraries, id)
	if s.libraries[id] == "" {
		s.libraries[id] = s.t.Stacks.LibraryOf(s.t.Origins.List[id].Stack)
	}
	return s.libraries[id]
}

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

// heldBytes is what is held on devices.
func (s *Scan) heldBytes() (sum int64) {
	for id, h := range s.held {
		if !s.t.OnHost(int32(id)) {
			sum += h.Bytes
		}
	}
	return sum
}
