package analyze

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// MemoryOptions shape the report of memory.
type MemoryOptions struct {
	query.Options
	// At is the moment of which holders are told: MemoryAtPeak, MemoryAtEnd or MemoryAtTime.
	At query.Moment
	// AtNs is that moment for MemoryAtTime, Unix ns.
	AtNs int64
	// Reconcile compares with what NVML says of the processes and devices.
	Reconcile bool
}

// MemoryReport reports who holds how much memory, and with Reconcile how that compares with what the driver counts.
func MemoryReport(t *timeline.Timeline, opt MemoryOptions) (*Report, error) {
	if err := needClasses(t, "memory"); err != nil {
		return nil, err
	}
	s := newHolderScan(t, &opt)
	l, err := t.Replay(s.consume)
	if err != nil {
		return nil, err
	}
	if opt.At == query.AtPeak {
		if err := s.goToPeak(); err != nil {
			return nil, err
		}
	}
	return memoryReport(t, s, &l.Counts)
}

// memoryReport is the report of a scan that has seen a replay.
func memoryReport(t *timeline.Timeline, s *holderScan, counts *ledger.Counts) (*Report, error) {
	opt := s.opt
	r := &Report{Command: "memory", Window: s.window, Quality: qualityOf(t, counts), Notes: t.Facts.Notes}
	if !s.matched && len(t.Memory) > 0 {
		r.NoMatch = s.seen.Explain(&opt.Filter)
	}
	r.Facts = s.facts()
	holders := s.holderTable()
	if err := holders.arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	addStacks(t, &holders, &opt.Options)
	levels := s.levelTable()
	r.Tables = []Table{levels, s.libraryTable(), asidePools(t, s.window, &opt.Filter), holders}
	r.Totals = fill(memoryTotals[:3], s.heldBytes(), s.peak, s.use.failed())
	if !opt.Reconcile {
		return r, nil
	}
	c, err := reconcile(t, s.atNs, &opt.Filter)
	if err != nil {
		return nil, err
	}
	for i := range r.Tables { // what is asked for now is the comparison
		r.Tables[i].Aside = true
	}
	if len(c.accounts) == 0 {
		r.Facts[3].Value = "the recording has no samples of what the driver counts for the recorded processes, or does not pair their devices"
	}
	r.Tables = append([]Table{c.table(), c.deviceTable()}, r.Tables...)
	r.Totals = append(r.Totals, c.totals()...)
	return r, nil
}

func asidePools(t *timeline.Timeline, w query.Window, f *query.Filter) Table {
	table := poolTable(t, w, f)
	table.Aside = true
	return table
}

// failed counts the allocations that failed.
func (m *memoryUse) failed() (n int64) {
	for _, l := range m.kinds {
		n += l.failed
	}
	return n
}

// holderScan follows who holds memory: by origin, which knows process, device, kind, stack and place.
type holderScan struct {
	t      *timeline.Timeline
	opt    *MemoryOptions
	window query.Window
	use    *memoryUse
	seen   *query.Callers

	matched   bool
	atNs      int64 // the moment of which holders are told
	libraries []string
	levels    map[libraryPlace]*memoryLevel
	ofOrigin  []*memoryLevel

	courses map[*memoryLevel]*metric.Course

	// What is live now, and how many changes led there; the most that was.
	total, peak        int64
	changes, peakAfter int64
	held               []holding
}

// holding is what calls of one origin hold.
type holding struct{ bytes, blocks int64 }

// libraryPlace is where and for whom memory is.
type libraryPlace struct {
	device          int32
	memory, library string
}

func newHolderScan(t *timeline.Timeline, opt *MemoryOptions) *holderScan {
	s := &holderScan{t: t, opt: opt, window: opt.Window(t.Recording()), use: newMemoryUse(t, &opt.Filter), seen: query.NewCallers(),
		levels: make(map[libraryPlace]*memoryLevel), courses: make(map[*memoryLevel]*metric.Course)}
	s.atNs = s.window.ToNs
	if opt.At == query.AtTime {
		s.atNs = opt.AtNs
	}
	return s
}

func (s *holderScan) consume(_ *ledger.Ledger, c *ledger.Change) {
	id := c.Block.Origin
	o := &s.t.Origins.List[id]
	s.seen.Add(o.Pid, o.Tid, o.Device, o.Stream)
	kind, onDevice := s.use.consume(c)
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
func (s *holderScan) follow(l *memoryLevel, atNs int64) {
	if l == nil {
		return
	}
	c := s.courses[l]
	if c == nil {
		c = &metric.Course{Window: s.window}
		s.courses[l] = c
	}
	c.Set(atNs, l.live)
}

// levelTable has a row per device and kind.
func (s *holderScan) levelTable() Table {
	table := s.use.table()
	table.Name, table.Title, table.Aside = "levels", "memory by device and kind", true
	table.Columns = append(slices.Clone(table.Columns), levelCourse)
	table.Spare = append(table.Spare, levelCourse.Key)
	for i, p := range s.use.places() {
		var values any
		if c := s.courses[s.use.at(p)]; c != nil {
			values = c.Values()
		}
		table.Rows[i].Cells = append(table.Rows[i].Cells, values)
	}
	return table
}

// levelCourse is live memory, drawn.
var levelCourse = Column{"live_course_bytes", "OVER TIME", UnitCourse, "most live bytes in each twentieth of the window, from 0 to the highest of them"}

// hold notes what is held at the moment that is told of.
func (s *holderScan) hold(c *ledger.Change) {
	if s.opt.At != query.AtPeak && c.AtNs > s.atNs {
		return
	}
	s.held = units.Grow(s.held, c.Block.Origin)
	h := &s.held[c.Block.Origin]
	h.bytes += ledger.Signed(c)
	if c.Kind == ledger.Allocated {
		h.blocks++
	} else {
		h.blocks--
	}
}

// goToPeak replays again until the moment of the peak, which is known now.
func (s *holderScan) goToPeak() error {
	s.held = s.held[:0]
	use := newMemoryUse(s.t, &s.opt.Filter)
	var changes int64
	_, err := s.t.Replay(func(_ *ledger.Ledger, c *ledger.Change) {
		if changes == s.peakAfter {
			return
		}
		kind, onDevice := use.consume(c)
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
func (s *holderScan) library(id int32) string {
	s.libraries = units.Grow(s.libraries, id)
	if s.libraries[id] == "" {
		s.libraries[id] = s.t.Stacks.LibraryOf(s.t.Origins.List[id].Stack)
	}
	return s.libraries[id]
}

func (s *holderScan) level(id int32) *memoryLevel {
	s.ofOrigin = units.Grow(s.ofOrigin, id)
	if s.ofOrigin[id] == nil {
		place := libraryPlace{s.t.Origins.List[id].Device, s.t.Origins.Memory(id), s.library(id)}
		if s.levels[place] == nil {
			s.levels[place] = new(memoryLevel)
		}
		s.ofOrigin[id] = s.levels[place]
	}
	return s.ofOrigin[id]
}

// heldBytes is what is held on devices.
func (s *holderScan) heldBytes() (sum int64) {
	for id, h := range s.held {
		if !s.t.OnHost(int32(id)) {
			sum += h.bytes
		}
	}
	return sum
}

var memoryFacts = []Column{
	{"at", "holders at", UnitText, "the moment of which holders are told: the peak of memory on all devices together, the end of the window or a time; offset from the recording's start"},
	{"at_ns", "", UnitNs, "the same, from the recording's start"},
	{"async", "async memory", UnitText, "what is known of memory pools"},
	{"reconcile", "reconcile", UnitText, "why there is nothing to compare with (with --reconcile)"},
}

var memoryTotals = []Column{
	{"held_bytes", "held", UnitBytes, "memory on devices that is live at that moment: neither host nor registered"},
	{"peak_bytes", "peak", UnitBytes, "most memory live on all devices together in the window"},
	{"failed_allocs", "failed allocs", UnitCount, "allocations that returned an error"},
	{"nvml_process_bytes", "NVML", UnitBytes, "memory that the driver counts for the recorded processes, nearest samples to the moment (with --reconcile)"},
	{"attributed_pct", "attributed %", UnitPercent, "share of nvml_process_bytes that is tracked memory, or context and modules (with --reconcile)"},
	{"not_attributed_bytes", "not attributed", UnitBytes, "the rest (with --reconcile); negative if more was allocated than the driver counts"},
}

func (s *holderScan) facts() []Fact {
	offset := s.atNs - s.t.Recording().FromNs
	at := map[query.Moment]string{query.AtPeak: "the peak, ", query.AtEnd: "the end, ", query.AtTime: ""}[s.opt.At] + units.Duration(offset)
	pools := ""
	for place := range s.use.kinds {
		if place.memory == format.MemoryAsync {
			pools = "lies in pools that keep what is freed; how much they hold of the device only a program that asks for pool attributes lets know: see memory pools"
		}
	}
	return fill(memoryFacts, at, offset, pools, "")
}

var levelColumns = append(append(slices.Clone(useColumns), levelCourse), libraryColumns...)

var libraryColumns = []Column{
	{"library", "LIBRARY", UnitText, "who asked the driver: the library or program of the innermost frame outside of libcuda and the CUDA runtime"},
	{"held_bytes", "HELD", UnitBytes, "bytes live at the moment that holders are told of"},
}

// libraryTable has a row per device, kind and library.
func (s *holderScan) libraryTable() Table {
	columns := []Column{useColumns[0], useColumns[1], libraryColumns[0], useColumns[2], useColumns[3], libraryColumns[1], useColumns[4], useColumns[5]}
	table := Table{Name: "libraries", Title: "memory by the library that asked for it", Columns: columns, Aside: true, Spare: []string{"peak_at_ns"}}
	held := make(map[libraryPlace]int64)
	for id := range s.held {
		place := libraryPlace{s.t.Origins.List[id].Device, s.t.Origins.Memory(int32(id)), s.library(int32(id))}
		held[place] += s.held[id].bytes
	}
	start := s.t.Recording().FromNs
	for place, l := range s.levels {
		table.Rows = append(table.Rows, Row{Cells: []any{s.t.SharedLabel(place.device), place.memory, place.library, l.peak, max(0, l.peakNs-start), held[place], l.live, l.allocs}})
	}
	slices.SortFunc(table.Rows, func(a, b Row) int {
		return cmp.Or(compareCells(a.Cells[3], b.Cells[3]), compareCells(a.Cells[0], b.Cells[0]), compareCells(a.Cells[1], b.Cells[1]), compareCells(a.Cells[2], b.Cells[2]))
	})
	return table
}

var holderColumns = []Column{
	{"bytes", "HELD", UnitBytes, "bytes live at the moment"},
	{"share_pct", "SHARE%", UnitPercent, "share of HELD in all memory on devices that was live then; absent for memory of the host"},
	{"blocks", "COUNT", UnitCount, "allocations behind HELD"},
	{"device", "DEVICE", UnitText, "CUDA device of the process"},
	{"pid", "PID", UnitID, "process"},
	{"memory_kind", "KIND", UnitText, "kind of memory, see levels"},
	{"library", "LIBRARY", UnitText, "who asked the driver: the library or program of the innermost frame outside of libcuda and the CUDA runtime"},
	{"site", "SITE", UnitText, "the frame of the program's own code that made the allocation"},
}

// holderKey is who holds memory.
type holderKey struct {
	pid, device           int32
	memory, library, site string
}

// holder is what somebody holds; origin is the one with most of it.
type holder struct {
	holding
	origin  int32
	biggest int64
}

// holderRowsWithStack is how many holders text shows the stack of.
const holderRowsWithStack = 3

// holderTable has a row per process, device, kind, library and place that holds memory.
func (s *holderScan) holderTable() Table {
	table := Table{Name: "holders", Title: "who held memory", Columns: holderColumns, Spare: []string{"blocks", "device", "pid"}}
	found := make(map[holderKey]*holder)
	for id := range s.held {
		h := s.held[id]
		if h.blocks == 0 && h.bytes == 0 {
			continue
		}
		o := &s.t.Origins.List[id]
		key := holderKey{o.Pid, o.Device, s.t.Origins.Memory(int32(id)), s.library(int32(id)), s.t.SiteLabel(int32(id))}
		if found[key] == nil {
			found[key] = new(holder)
		}
		one := found[key]
		one.bytes += h.bytes
		one.blocks += h.blocks
		if h.bytes > one.biggest {
			one.origin, one.biggest = int32(id), h.bytes
		}
	}
	all := s.heldBytes()
	for key, h := range found {
		var share any
		if !ledger.IsHost(key.memory) {
			share = units.Percent(h.bytes, all)
		}
		table.Rows = append(table.Rows, Row{stack: s.t.Origins.List[h.origin].Stack, Evidence: fmt.Sprintf("%s of kind %s, asked for by %s", units.Plural(h.blocks, "allocation"), key.memory, key.library),
			Cells: []any{h.bytes, share, h.blocks, s.t.DeviceLabel(key.device), int64(key.pid), key.memory, key.library, key.site}})
	}
	slices.SortFunc(table.Rows, func(a, b Row) int {
		order := compareCells(a.Cells[0], b.Cells[0])
		for _, i := range []int{7, 6, 5, 3} {
			order = cmp.Or(order, strings.Compare(a.Cells[i].(string), b.Cells[i].(string)))
		}
		return cmp.Or(order, -compareCells(a.Cells[4], b.Cells[4]))
	})
	for i := range table.Rows {
		table.Rows[i].Brief = i >= holderRowsWithStack && !s.opt.AllStacks && !s.opt.AllFrames
	}
	addRanks(s.t, &table)
	return table
}
