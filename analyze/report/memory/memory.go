package memory

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Options shape the report of memory.
type Options struct {
	query.Options
	// At is the moment of which holders are told: MemoryAtPeak, MemoryAtEnd or MemoryAtTime.
	At query.Moment
	// AtNs is that moment for MemoryAtTime, Unix ns.
	AtNs int64
	// Reconcile compares with what NVML says of the processes and devices.
	Reconcile bool
}

// Run is RunWith without options of its own.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return RunWith(t, Options{Options: opt})
}

// RunWith reports who holds how much memory, and with Reconcile how that compares with what the driver counts.
func RunWith(t *timeline.Timeline, opt Options) (*report.Report, error) {
	t = t.View()
	if err := quality.Needs(t, "memory"); err != nil {
		return nil, err
	}
	s := NewHolderScan(t, &opt)
	l, err := t.Replay(s.Consume)
	if err != nil {
		return nil, err
	}
	if opt.At == query.AtPeak {
		if err := s.goToPeak(); err != nil {
			return nil, err
		}
	}
	return MemoryReport(t, s, &l.Counts)
}

// MemoryReport is the report of a scan that has seen a replay.
func MemoryReport(t *timeline.Timeline, s *HolderScan, counts *ledger.Counts) (*report.Report, error) {
	opt := s.opt
	r := &report.Report{Command: "memory", Window: s.window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes}
	if !s.matched && len(t.Memory) > 0 {
		r.NoMatch = s.seen.Explain(&opt.Filter)
	}
	r.Facts = s.facts("")
	holders := s.holderTable()
	if err := holders.Arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	frames.Fill(t, &holders, &opt.Options)
	levels := s.levelTable()
	r.Tables = []report.Table{levels, s.libraryTable(), asidePools(t, s.window, &opt.Filter), holders}
	r.Totals = report.Facts(MemoryTotals, report.Values{
		"held_bytes":    s.heldBytes(),
		"peak_bytes":    s.peak,
		"failed_allocs": s.use.failed(),
	})
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
		r.Facts = s.facts("the recording has no samples of what the driver counts for the recorded processes, or does not pair their devices")
	}
	r.Tables = append([]report.Table{c.table(), c.deviceTable()}, r.Tables...)
	r.Totals = append(r.Totals, c.totals()...)
	return r, nil
}

func asidePools(t *timeline.Timeline, w query.Window, f *query.Filter) report.Table {
	table := PoolTable(t, w, f)
	table.Aside = true
	return table
}

// failed counts the allocations that failed.
func (m *MemoryUse) failed() (n int64) {
	for _, l := range m.kinds {
		n += l.failed
	}
	return n
}

// HolderScan follows who holds memory: by origin, which knows process, device, kind, stack and place.
type HolderScan struct {
	t      *timeline.Timeline
	opt    *Options
	window query.Window
	use    *MemoryUse
	seen   *query.Callers

	matched   bool
	atNs      int64 // the moment of which holders are told
	libraries []string
	levels    map[libraryPlace]*MemoryLevel
	ofOrigin  []*MemoryLevel

	courses map[*MemoryLevel]*metric.Course

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

func NewHolderScan(t *timeline.Timeline, opt *Options) *HolderScan {
	s := &HolderScan{t: t, opt: opt, window: opt.Window(t.Recording()), use: NewMemoryUse(t, &opt.Filter), seen: query.NewCallers(),
		levels: make(map[libraryPlace]*MemoryLevel), courses: make(map[*MemoryLevel]*metric.Course)}
	s.atNs = s.window.ToNs
	if opt.At == query.AtTime {
		s.atNs = opt.AtNs
	}
	return s
}

func (s *HolderScan) Consume(_ *ledger.Ledger, c *ledger.Change) {
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
func (s *HolderScan) follow(l *MemoryLevel, atNs int64) {
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

// levelTable has a row per device and kind.
func (s *HolderScan) levelTable() report.Table {
	table := report.Table{Name: "levels", Title: "memory by device and kind", Columns: slices.Concat(UseColumns, []report.Column{levelCourse}), Aside: true, Spare: []string{"peak_at_ns", levelCourse.Key}}
	for _, p := range s.use.places() {
		values := s.use.values(p)
		values[levelCourse.Key] = nil
		if c := s.courses[s.use.at(p)]; c != nil {
			values[levelCourse.Key] = c.Values()
		}
		table.Add(values)
	}
	return table
}

// levelCourse is live memory, drawn.
var levelCourse = report.Column{Key: "live_course_bytes", Title: "OVER TIME", Unit: report.UnitCourse, About: "most live bytes in each twentieth of the window, from 0 to the highest of them"}

// hold notes what is held at the moment that is told of.
func (s *HolderScan) hold(c *ledger.Change) {
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
func (s *HolderScan) goToPeak() error {
	s.held = s.held[:0]
	use := NewMemoryUse(s.t, &s.opt.Filter)
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
func (s *HolderScan) library(id int32) string {
	s.libraries = units.Grow(s.libraries, id)
	if s.libraries[id] == "" {
		s.libraries[id] = s.t.Stacks.LibraryOf(s.t.Origins.List[id].Stack)
	}
	return s.libraries[id]
}

func (s *HolderScan) level(id int32) *MemoryLevel {
	s.ofOrigin = units.Grow(s.ofOrigin, id)
	if s.ofOrigin[id] == nil {
		place := libraryPlace{s.t.Origins.List[id].Device, s.t.Origins.Memory(id), s.library(id)}
		if s.levels[place] == nil {
			s.levels[place] = new(MemoryLevel)
		}
		s.ofOrigin[id] = s.levels[place]
	}
	return s.ofOrigin[id]
}

// heldBytes is what is held on devices.
func (s *HolderScan) heldBytes() (sum int64) {
	for id, h := range s.held {
		if !s.t.OnHost(int32(id)) {
			sum += h.Bytes
		}
	}
	return sum
}

var MemoryFacts = []report.Column{
	{Key: "at", Title: "holders at", Unit: report.UnitText, About: "the moment of which holders are told: the peak of memory on all devices together, the end of the window or a time; offset from the recording's start"},
	{Key: "at_ns", Title: "", Unit: report.UnitNs, About: "the same, from the recording's start"},
	{Key: "async", Title: "async memory", Unit: report.UnitText, About: "what is known of memory pools"},
	{Key: "reconcile", Title: "reconcile", Unit: report.UnitText, About: "why there is nothing to compare with (with --reconcile)"},
}

var MemoryTotals = []report.Column{
	{Key: "held_bytes", Title: "held", Unit: report.UnitBytes, About: "memory on devices that is live at that moment: neither host nor registered"},
	{Key: "peak_bytes", Title: "peak", Unit: report.UnitBytes, About: "most memory live on all devices together in the window"},
	{Key: "failed_allocs", Title: "failed allocs", Unit: report.UnitCount, About: "allocations that returned an error"},
}

// reconcileTotalColumns are the totals that Options.Reconcile adds.
var reconcileTotalColumns = []report.Column{
	{Key: "nvml_process_bytes", Title: "NVML", Unit: report.UnitBytes, About: "memory that the driver counts for the recorded processes, nearest samples to the moment (with --reconcile)"},
	{Key: "attributed_pct", Title: "attributed %", Unit: report.UnitPercent, About: "share of nvml_process_bytes that is tracked memory, or context and modules (with --reconcile)"},
	{Key: "not_attributed_bytes", Title: "not attributed", Unit: report.UnitBytes, About: "the rest (with --reconcile); negative if more was allocated than the driver counts"},
}

// facts returns the facts of the report; reconciled says why there is nothing to reconcile with.
func (s *HolderScan) facts(reconciled string) []report.Fact {
	offset := s.atNs - s.t.Recording().FromNs
	at := map[query.Moment]string{query.AtPeak: "the peak, ", query.AtEnd: "the end, ", query.AtTime: ""}[s.opt.At] + units.Duration(offset)
	pools := ""
	for place := range s.use.kinds {
		if place.Memory == format.MemoryAsync {
			pools = "lies in pools that keep what is freed; how much they hold of the device only a program that asks for pool attributes lets know: see memory pools"
		}
	}
	return report.Facts(MemoryFacts, report.Values{
		"at":        at,
		"at_ns":     offset,
		"async":     pools,
		"reconcile": reconciled,
	})
}

var LevelColumns = slices.Concat(UseColumns, []report.Column{levelCourse}, libraryColumns)

var libraryColumns = []report.Column{
	{Key: "library", Title: "LIBRARY", Unit: report.UnitText, About: "who asked the driver: the library or program of the innermost frame outside of libcuda and the CUDA runtime"},
	{Key: "held_bytes", Title: "HELD", Unit: report.UnitBytes, About: "bytes live at the moment that holders are told of"},
}

// libraryTable has a row per device, kind and library.
func (s *HolderScan) libraryTable() report.Table {
	columns := report.Pick(slices.Concat(UseColumns, libraryColumns), "device", "memory_kind", "library", "peak_bytes", "peak_at_ns", "held_bytes", "live_bytes", "allocs")
	table := report.Table{Name: "libraries", Title: "memory by the library that asked for it", Columns: columns, Aside: true, Spare: []string{"peak_at_ns"}}
	held := make(map[libraryPlace]int64)
	for id := range s.held {
		place := libraryPlace{s.t.Origins.List[id].Device, s.t.Origins.Memory(int32(id)), s.library(int32(id))}
		held[place] += s.held[id].Bytes
	}
	start := s.t.Recording().FromNs
	for place, l := range s.levels {
		table.Add(report.Values{
			"device":      s.t.SharedLabel(place.device),
			"memory_kind": place.memory,
			"library":     place.library,
			"peak_bytes":  l.Peak,
			"peak_at_ns":  max(0, l.peakNs-start),
			"held_bytes":  held[place],
			"live_bytes":  l.Live,
			"allocs":      l.allocs,
		})
	}
	table.Sort("peak_bytes", "device", "memory_kind", "library")
	return table
}

var HolderColumns = []report.Column{
	{Key: "bytes", Title: "HELD", Unit: report.UnitBytes, About: "bytes live at the moment"},
	{Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent, About: "share of HELD in all memory on devices that was live then; absent for memory of the host"},
	{Key: "blocks", Title: "COUNT", Unit: report.UnitCount, About: "allocations behind HELD"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "memory_kind", Title: "KIND", Unit: report.UnitText, About: "kind of memory, see levels"},
	{Key: "library", Title: "LIBRARY", Unit: report.UnitText, About: "who asked the driver: the library or program of the innermost frame outside of libcuda and the CUDA runtime"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "the frame of the program's own code that made the allocation"},
}

// holderKey is who holds memory.
type holderKey struct {
	pid, device           int32
	memory, library, site string
}

// holder is what somebody holds; origin is the one with most of it.
type holder struct {
	Holding
	origin  int32
	biggest int64
}

// holderTable has a row per process, device, kind, library and place that holds memory.
func (s *HolderScan) holderTable() report.Table {
	table := report.Table{Name: "holders", Title: "who held memory", Columns: HolderColumns, Spare: []string{"blocks", "device", "pid"}}
	found := make(map[holderKey]*holder)
	for id := range s.held {
		h := s.held[id]
		if h.Blocks == 0 && h.Bytes == 0 {
			continue
		}
		o := &s.t.Origins.List[id]
		key := holderKey{o.Pid, o.Device, s.t.Origins.Memory(int32(id)), s.library(int32(id)), s.t.SiteLabel(int32(id))}
		if found[key] == nil {
			found[key] = new(holder)
		}
		one := found[key]
		one.Bytes += h.Bytes
		one.Blocks += h.Blocks
		if h.Bytes > one.biggest {
			one.origin, one.biggest = int32(id), h.Bytes
		}
	}
	all := s.heldBytes()
	for key, h := range found {
		var share any
		if !ledger.IsHost(key.memory) {
			share = units.Percent(h.Bytes, all)
		}
		row := table.Add(report.Values{
			"bytes":       h.Bytes,
			"share_pct":   share,
			"blocks":      h.Blocks,
			"device":      s.t.DeviceLabel(key.device),
			"pid":         int64(key.pid),
			"memory_kind": key.memory,
			"library":     key.library,
			"site":        key.site,
		})
		row.StackID, row.Evidence = s.t.Origins.List[h.origin].Stack, fmt.Sprintf("%s of kind %s, asked for by %s", units.Plural(h.Blocks, "allocation"), key.memory, key.library)
	}
	table.Sort("bytes", "site", "library", "memory_kind", "device", "-pid")
	for i := range table.Rows {
		table.Rows[i].Brief = i >= report.HolderRowsWithStack && !s.opt.AllStacks && !s.opt.AllFrames
	}
	processes.AddRanks(s.t, &table)
	return table
}
