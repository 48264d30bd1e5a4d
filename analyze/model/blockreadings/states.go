package blockreadings

import (
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// Index has the positions of the readings of a recording. It needs about 100 bytes for each. Several States may use one
// Index at once, but not while Extend runs.
type Index struct {
	groups   []*format.Group
	readings []*indexedReading       // in the order of their first rows
	last     map[Key]*indexedReading // the last reading of each allocator
}

// indexedReading is the position of a reading: the rows of its allocator from the first one to the last one.
type indexedReading struct {
	Key
	atNs        int64 // Unix ns
	first, last position
	isOpen      bool // rows that are not in the recording yet may follow
}

// position is the position of a row.
type position struct{ group, row int }

// NewIndex returns an empty index.
func NewIndex() *Index { return &Index{last: make(map[Key]*indexedReading)} }

// Extend adds the row groups of a growing recording that are new. groups has the earlier ones first. It returns
// errors of reading the recording.
func (x *Index) Extend(groups []*format.Group) error {
	var start []int64
	var pid, device []int32
	var name format.Strings
	for n := len(x.groups); n < len(groups); n++ {
		g := groups[n]
		start, pid, device = g.Int64("start_ns", start), g.Int32("pid", pid), g.Int32("device", device)
		name = g.StringsInto("name", name)
		if err := g.Err(); err != nil {
			return err
		}
		x.groups = append(x.groups, g)
		for i, at := range start {
			x.addRow(Key{pid[i], device[i]}, at, name.At(i), position{n, i})
		}
	}
	return nil
}

// addRow adds a row.
func (x *Index) addRow(key Key, atNs int64, name string, at position) {
	r := x.last[key]
	switch name {
	case format.BlockTotals:
	case format.BlocksRefused:
		if r != nil {
			r.isOpen = false
		}
	case format.BlocksRead:
		if r != nil {
			r.isOpen = false
		} else if len(x.last) >= maxAllocators {
			return
		}
		r = &indexedReading{Key: key, atNs: atNs, first: at, last: at, isOpen: true}
		x.last[key] = r
		x.readings = append(x.readings, r)
	default:
		if r != nil {
			r.last = at
		}
	}
}

// HasReadings reports whether there is a reading.
func (x *Index) HasReadings() bool { return len(x.readings) > 0 }

// States returns the usable readings of all allocators in order of time, one after another. It keeps the present
// blocks of each allocator, and a bounded number of row groups. It is not safe for concurrent use.
type States struct {
	index   *Index
	added   int               // readings of the index in waiting, or returned
	waiting []*indexedReading // in order of time
	reader  reader
	usable  bool // the reading that ended last is usable
	loaded  []loadedGroup
}

// loadedGroup has the columns of a row group.
type loadedGroup struct {
	number  int
	columns *columns
}

// maxLoadedRows bounds the rows of the row groups that States keeps, unless a single one has more. Readings of several
// allocators in turn may need several.
const maxLoadedRows = 1 << 20

// NewStates returns the readings of an index from the first one on.
func NewStates(x *Index) *States {
	s := &States{index: x}
	s.reader = reader{
		Window: query.Window{FromNs: math.MinInt64, ToNs: math.MaxInt64}, allocators: make(map[Key]*Allocator),
		consume: func(*Allocator) { s.usable = true },
	}
	return s
}

// PeekNs returns the time of the next reading, Unix ns, or math.MaxInt64 if there is none. It may turn out not to be
// usable.
func (s *States) PeekNs() int64 {
	if s.added < len(s.index.readings) {
		s.waiting = append(s.waiting, s.index.readings[s.added:]...)
		s.added = len(s.index.readings)
		slices.SortStableFunc(s.waiting, compareReadings)
	}
	if len(s.waiting) == 0 {
		return math.MaxInt64
	}
	return s.waiting[0].atNs
}

// Next returns the next reading, or nil if it is not usable. isAtEnd says that no rows will follow: otherwise, a
// reading whose rows may be incomplete is left for a later call, and isLater is set. Next returns errors of reading
// the recording.
func (s *States) Next(isAtEnd bool) (state *caching.EarlierState, isLater bool, err error) {
	if s.PeekNs() == math.MaxInt64 {
		return nil, true, nil
	}
	r := s.waiting[0]
	a := s.reader.allocators[r.Key]
	if a == nil {
		a = newAllocator(r.Key, Span{LastNs: math.MaxInt64})
		a.last = new(lastState)
		s.reader.allocators[r.Key] = a
	}
	wasKnown := a.isKnown
	s.usable = false
	if err := s.addRows(a, r); err != nil {
		return nil, false, err
	}
	if r.isOpen && !isAtEnd && a.isKnown && !a.addsUp() {
		a.isOpen, a.isKnown = false, wasKnown
		a.restore()
		return nil, true, nil
	}
	s.waiting = s.waiting[1:]
	s.reader.endReading(a)
	if s.usable {
		state = a.State()
	}
	return state, false, nil
}

// addRows adds the rows of a reading to its allocator.
func (s *States) addRows(a *Allocator, r *indexedReading) error {
	for n := r.first.group; n <= r.last.group; n++ {
		c, err := s.load(n)
		if err != nil {
			return err
		}
		from, to := 0, len(c.start)
		if n == r.first.group {
			from = r.first.row
		}
		if n == r.last.group {
			to = r.last.row + 1
		}
		s.reader.columns = c
		for i := from; i < to; i++ {
			if c.pid[i] != a.Pid || c.device[i] != a.Device || c.name.At(i) == format.BlocksRefused {
				continue
			}
			s.reader.addRow(a, i)
		}
	}
	return nil
}

// load returns the columns of a row group.
func (s *States) load(number int) (*columns, error) {
	rows := 0
	for i := range s.loaded {
		if s.loaded[i].number == number {
			l := s.loaded[i]
			s.loaded = append(slices.Delete(s.loaded, i, i+1), l) // the last one was used last
			return l.columns, nil
		}
		rows += len(s.loaded[i].columns.start)
	}
	c := new(columns)
	for len(s.loaded) > 0 && rows > maxLoadedRows {
		c = s.loaded[0].columns
		rows -= len(c.start)
		s.loaded = slices.Delete(s.loaded, 0, 1)
	}
	g := s.index.groups[number]
	c.load(g)
	if err := g.Err(); err != nil {
		return nil, err
	}
	s.loaded = append(s.loaded, loadedGroup{number, c})
	return c, nil
}
