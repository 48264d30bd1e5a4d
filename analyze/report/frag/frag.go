package frag

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	reportpkg "github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
)

// Options shape the report of fragmentation.
type Options struct {
	query.Options
	// Request is the size of which it is told how much free memory could serve it, bytes;
	// 0: the largest one that the owner of the memory was asked for.
	Request int64
	// At is the moment that is told of; MemoryAtPeak is that at which most was kept by
	// blocks. AtNs is the moment for MemoryAtTime, Unix ns.
	At   query.Moment
	AtNs int64
	// Maps adds address maps to the report, as text.
	Maps bool
}

// Where memory is handed out in parts, as the report calls it.
const (
	SpaceSegments     = "segments"
	SpaceExpandable   = "expandable segments"
	spaceReservations = "reserved addresses"
	spacePool         = "memory pool"
)

func String(k caching.SpaceKind) string {
	return [...]string{SpaceSegments, SpaceExpandable, spaceReservations}[k]
}

var SpaceColumns = []reportpkg.Column{
	{Key: "verdict", Title: "VERDICT", Unit: reportpkg.UnitText, About: "fragmented: blocks keep at least 20% of the reserved bytes, and more than a segment of 20 MiB, from going back to the driver; idle: a pool holds that much unused; fine: less; addresses: no memory is lost, holes in reserved addresses are addresses"},
	{Key: "reserved_bytes", Title: "RESERVED", Unit: reportpkg.UnitBytes, About: "memory from the driver; of reserved addresses their length; of pools as the program last asked"},
	{Key: "active_bytes", Title: "ACTIVE", Unit: reportpkg.UnitBytes, About: "bytes in blocks that the program has or streams still use; mapped bytes; of pools what is allocated"},
	{Key: "unused_bytes", Title: "UNUSED", Unit: reportpkg.UnitBytes, About: "bytes of gaps"},
	{Key: "kept_bytes", Title: "KEPT", Unit: reportpkg.UnitBytes, About: "of these, what blocks keep from going back to the driver: all gaps of segments that have a block; of expandable segments what is left of gaps without whole steps of 20 MiB, or 2 MiB where blocks up to 1 MiB are"},
	{Key: "external_ratio", Title: "EXTERNAL", Unit: reportpkg.UnitRatio, About: "external fragmentation index: 1 - largest gap / all gaps"},
	{Key: "largest_gap_bytes", Title: "LARGEST", Unit: reportpkg.UnitBytes, About: "the largest gap"},
	{Key: "blowup_ratio", Title: "BLOW-UP", Unit: reportpkg.UnitRatio, About: "reserved / active; absent if nothing is active"},
	{Key: "unusable_pct", Title: "UNUSABLE%", Unit: reportpkg.UnitPercent, About: "share of UNUSED in gaps that cannot take a block of the request: too small, or in segments for blocks up to 1 MiB or for larger ones only; another stream's gaps count as usable"},
	{Key: "request_bytes", Title: "", Unit: reportpkg.UnitBytes, About: "that request: --request, or the largest one seen"},
	{Key: "saved_bytes", Title: "SAVED", Unit: reportpkg.UnitBytes, About: "of KEPT, whole 2 MiB pages inside of gaps: no more than that could go back if segments were expandable (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True); absent where they are"},
	{Key: "saved_least_bytes", Title: "", Unit: reportpkg.UnitBytes, About: "of that, what is whole in the steps of 20 MiB in which PyTorch maps for blocks above 1 MiB and takes back: this much at least, if blocks lay as they do"},
	{Key: "inactive_split_bytes", Title: "", Unit: reportpkg.UnitBytes, About: "as PyTorch counts inactive_split_bytes: gaps in segments that have blocks, without expandable ones"},
	{Key: "internal_bytes", Title: "", Unit: reportpkg.UnitBytes, About: "bytes by which blocks are larger than what was asked for"},
	{Key: "extents", Title: "", Unit: reportpkg.UnitCount, About: "segments, stretches of expandable ones, or reservations"},
	{Key: "blocks", Title: "", Unit: reportpkg.UnitCount, About: "blocks, or mappings"},
	{Key: "gaps", Title: "", Unit: reportpkg.UnitCount, About: "gaps"},
	{Key: "unseen_bytes", Title: "", Unit: reportpkg.UnitBytes, About: "reserved by the same allocator before the recording began: what is in these segments is in no other number"},
	{Key: "at_ns", Title: "AT", Unit: reportpkg.UnitNs, About: "moment of these numbers, from the recording's start: see --at"},
	{Key: "confidence", Title: "", Unit: reportpkg.UnitText, About: "high, medium or low; see confidence_reasons"},
	{Key: "confidence_reasons", Title: "", Unit: reportpkg.UnitText, About: "what lowers the confidence: lost events, a model that differs from the allocator's own totals, segments from before the recording"},
	{Key: "device", Title: "DEVICE", Unit: reportpkg.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: reportpkg.UnitID, About: "process"},
	{Key: "space", Title: "WHERE", Unit: reportpkg.UnitText, About: "segments and expandable segments of PyTorch's allocator, by pool; reserved addresses; or a memory pool of the driver"},
}

var PinColumns = []reportpkg.Column{
	{Key: "alone_bytes", Title: "ALONE", Unit: reportpkg.UnitBytes, About: "bytes of gaps that only blocks of this place keep: they could go back if these were freed"},
	{Key: "kept_bytes", Title: "KEPT", Unit: reportpkg.UnitBytes, About: "bytes of gaps in segments that have a block of this place; places share segments, so that the sum is more than what is kept"},
	{Key: "segments", Title: "SEGMENTS", Unit: reportpkg.UnitCount, About: "segments that are kept"},
	{Key: "live_bytes", Title: "LIVE", Unit: reportpkg.UnitBytes, About: "bytes of the blocks that keep them"},
	{Key: "blocks", Title: "COUNT", Unit: reportpkg.UnitCount, About: "number of these blocks"},
	{Key: "oldest_age_ns", Title: "OLDEST", Unit: reportpkg.UnitNs, About: "age of the oldest; absent if it is from before the recording"},
	{Key: "device", Title: "DEVICE", Unit: reportpkg.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: reportpkg.UnitID, About: "process"},
	{Key: "site", Title: "SITE", Unit: reportpkg.UnitText, About: "the frame of the program's own code that allocated the blocks"},
}

var FragTrendColumns = []reportpkg.Column{
	{Key: "direction", Title: "TREND", Unit: reportpkg.UnitText, About: "of the kept bytes at 48 moments of the window (of reserved addresses: of holes outside of the largest): rising (tau >= 0.8, and still in the last quarter), rose (tau >= 0.8, but not in the last quarter any more), falling (tau <= -0.8) or steady"},
	{Key: "first_bytes", Title: "FIRST", Unit: reportpkg.UnitBytes, About: "kept at the first moment with memory"},
	{Key: "peak_bytes", Title: "MOST", Unit: reportpkg.UnitBytes, About: "most kept at a moment"},
	{Key: "last_bytes", Title: "LAST", Unit: reportpkg.UnitBytes, About: "kept at the last moment"},
	{Key: "growth_bytes_per_min", Title: "GROWTH/min", Unit: reportpkg.UnitBytesRate, About: "Theil-Sen slope, per minute"},
	{Key: "forecast_bytes", Title: "FORECAST", Unit: reportpkg.UnitBytes, About: "kept at forecast_ns: of a line through all moments if lines proved better than no change in the last quarter, which was held back; else the last value; absent with fewer than 12 moments"},
	{Key: "error_bytes", Title: "ERROR", Unit: reportpkg.UnitBytes, About: "mean absolute error of such a forecast in the last quarter, from the first three"},
	{Key: "no_change_error_bytes", Title: "NO CHANGE", Unit: reportpkg.UnitBytes, About: "the same error if nothing had been foretold to change"},
	{Key: "forecast_ns", Title: "", Unit: reportpkg.UnitNs, About: "moment of FORECAST, from the recording's start: as long after the end as was held back"},
	{Key: "tau", Title: "", Unit: reportpkg.UnitRatio, About: "Mann-Kendall tau: 1 only rises, -1 only falls"},
	{Key: "device", Title: "DEVICE", Unit: reportpkg.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: reportpkg.UnitID, About: "process"},
	{Key: "owner", Title: "OF", Unit: reportpkg.UnitText, About: "PyTorch's allocator, or reserved addresses"},
}

var FragMomentColumns = []reportpkg.Column{
	{Key: "at_ns", Title: "", Unit: reportpkg.UnitNs, About: "moment, from the recording's start"},
	{Key: "reserved_bytes", Title: "", Unit: reportpkg.UnitBytes, About: "as in spaces, all of one owner together"},
	{Key: "active_bytes", Title: "", Unit: reportpkg.UnitBytes, About: "as in spaces"},
	{Key: "unused_bytes", Title: "", Unit: reportpkg.UnitBytes, About: "as in spaces"},
	{Key: "kept_bytes", Title: "", Unit: reportpkg.UnitBytes, About: "as in spaces"},
	{Key: "largest_gap_bytes", Title: "", Unit: reportpkg.UnitBytes, About: "as in spaces"},
	{Key: "device", Title: "", Unit: reportpkg.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "", Unit: reportpkg.UnitID, About: "process"},
	{Key: "owner", Title: "", Unit: reportpkg.UnitText, About: "PyTorch's allocator, or reserved addresses"},
}

var FragFacts = []reportpkg.Column{
	{Key: "result", Title: "result", Unit: reportpkg.UnitText, About: "set if there is nothing that can fragment"},
	{Key: "pools", Title: "pools", Unit: reportpkg.UnitText, About: "what is known of memory pools"},
	{Key: "note", Title: "note", Unit: reportpkg.UnitText, About: "what is not in this report"},
}

// LacksFact is told only where an allocator is known by its reports.
var LacksFact = []reportpkg.Column{
	{Key: "lacks", Title: "lacks", Unit: reportpkg.UnitText, About: "what of PyTorch's allocator the recording lacks"},
}

var FragTotals = []reportpkg.Column{
	{Key: "kept_bytes", Title: "kept", Unit: reportpkg.UnitBytes, About: "sum of KEPT"},
	{Key: "unused_bytes", Title: "unused", Unit: reportpkg.UnitBytes, About: "sum of UNUSED, without reserved addresses"},
	{Key: "reserved_bytes", Title: "reserved", Unit: reportpkg.UnitBytes, About: "sum of RESERVED, without reserved addresses"},
	{Key: "kept_pct", Title: "% kept", Unit: reportpkg.UnitPercent, About: "share of kept_bytes in reserved_bytes; absent without any"},
	{Key: "saved_bytes", Title: "saved at most by expandable segments", Unit: reportpkg.UnitBytes, About: "sum of SAVED"},
	{Key: "fragmented", Title: "fragmented", Unit: reportpkg.UnitCount, About: "rows with verdict fragmented"},
	{Key: "rising", Title: "rising", Unit: reportpkg.UnitCount, About: "trends that rise by at least 1 MiB"},
	{Key: "external_ratio_max", Title: "external at most", Unit: reportpkg.UnitRatio, About: "largest EXTERNAL of memory, without reserved addresses; absent without any"},
	{Key: "failures", Title: "failed requests", Unit: reportpkg.UnitCount, About: "requests that PyTorch's allocator could not meet in the window, at most 200"},
}

// Run is RunWith without options of its own, and without the maps.
func Run(t *timeline.Timeline, opt query.Options) (*reportpkg.Report, error) {
	r, _, err := RunWith(t, Options{Options: opt})
	return r, err
}

// RunWith reports where memory that is reserved cannot be used: see judgeSpace. It
// returns the address maps, too.
func RunWith(t *timeline.Timeline, opt Options) (*reportpkg.Report, []AddressMap, error) {
	t = t.View()
	s := NewFragScan(t, &opt)
	p, err := s.run()
	if err != nil {
		return nil, nil, err
	}
	return s.Report(p)
}

// Report is the report of a scan that has seen a replay.
func (s *FragScan) Report(p *timeline.Program) (*reportpkg.Report, []AddressMap, error) {
	t, opt := s.t, s.opt
	r := &reportpkg.Report{Command: "frag", Window: s.window, Quality: quality.OfProgram(t, p), Notes: t.Facts.Notes}
	owners := s.sorted()
	frees := p.Counts().Frees
	p.Allocators.All(func(a *caching.Allocator) { frees += a.Counts.Frees })
	level, reasons := r.Quality.Confidence(frees)
	spaces := s.spaceTable(owners, level, reasons)
	pins := s.pinTable(owners)
	trends, rising := s.trendTable(owners)
	if len(owners) == 0 && len(s.seen.Pids) > 0 && len(spaces.Rows) == 0 {
		r.NoMatch = s.seen.Explain(&opt.Filter)
	}
	r.Facts = s.facts(len(spaces.Rows))
	r.Totals = s.totals(&spaces, owners, rising)
	processes.AddRanks(t, &spaces, &pins, &trends)
	if err := spaces.Arrange(opt.Sort, opt.Top); err != nil {
		return nil, nil, err
	}
	_ = pins.Arrange("", opt.Top) // no column is asked for
	frames.Fill(t, &pins, &opt.Options)
	r.Tables = []reportpkg.Table{spaces, pins, trends, s.momentTable(owners)}
	var pictures []AddressMap
	for _, o := range owners {
		if !slices.ContainsFunc(o.levels, func(l fragLevel) bool { return l.reserved > 0 }) {
			continue // it had memory only between moments
		}
		o.picture.Title, o.picture.Failures = s.ownerTitle(o), o.failures
		pictures = append(pictures, *o.picture)
		if opt.Maps {
			r.Tables = append(r.Tables, o.picture.table(fmt.Sprintf("map%d", len(pictures))))
		}
	}
	return r, pictures, nil
}

func (o *fragOwner) name() string {
	if o.reservations {
		return spaceReservations
	}
	return "PyTorch's allocator"
}

func (s *FragScan) ownerTitle(o *fragOwner) string {
	return fmt.Sprintf("%s of %s on device %s", o.name(), s.t.PidLabel(o.pid), s.t.OrdinalLabel(o.pid, o.device))
}

// Bounds of the verdict fragmented.
const (
	fragmentedShare = 0.2
	fragmentedBytes = caching.LargeSegment
)

func fragmentedBy(kept, reserved int64) bool {
	return kept >= fragmentedBytes && float64(kept) >= fragmentedShare*float64(reserved)
}

func (s *FragScan) spaceTable(owners []*fragOwner, level string, reasons []string) reportpkg.Table {
	table := reportpkg.Table{Name: "spaces", Title: "memory that is handed out in parts", Columns: SpaceColumns, Spare: []string{"at_ns", "pid", "device", "largest_gap_bytes", "unused_bytes", "saved_bytes", "blowup_ratio"}}
	for _, o := range owners {
		if o.detail == nil {
			continue
		}
		for _, sp := range o.detail.Spaces {
			if sp.Reserved+sp.Active > 0 && sp.Reserved >= s.opt.MinBytes {
				table.Rows = append(table.Rows, s.spaceRow(o, sp, level, reasons))
			}
		}
	}
	table.Rows = append(table.Rows, s.poolRows(level, reasons)...)
	slices.SortStableFunc(table.Rows, func(a, b reportpkg.Row) int {
		return cmp.Or(reportpkg.CompareCells(a.Cells[4], b.Cells[4]), reportpkg.CompareCells(a.Cells[1], b.Cells[1]))
	})
	return table
}

func (s *FragScan) spaceRow(o *fragOwner, sp *caching.Space, level string, reasons []string) reportpkg.Row {
	d := o.detail
	request := cmp.Or(s.opt.Request, o.largest)
	var unusable, blowUp, saved, least, asked any
	if request > 0 && sp.Unused > 0 {
		unusable = 100 * sp.Unusable(request)
	}
	if request > 0 {
		asked = request
	}
	if b, ok := sp.BlowUp(); ok {
		blowUp = b
	}
	verdict, where := "fine", String(sp.Kind)
	switch {
	case sp.Kind == caching.InReservation:
		verdict = "addresses"
	case fragmentedBy(sp.Kept, sp.Reserved):
		verdict = "fragmented"
	}
	if sp.Kind == caching.InSegments {
		saved, least = sp.Saved, sp.SavedLeast
	}
	if !o.reservations {
		where += ", pool " + caching.PoolName(sp.Pool)
	}
	level, reasons = d.Trust(level, reasons)
	internal := max(0, sp.Active-sp.Requested)
	if o.reservations {
		internal = 0
	}
	evidence := ofSpaceEvidence(sp, request, unusable) + "; confidence " + level
	if len(reasons) > 0 {
		evidence += ": " + strings.Join(reasons, ", ")
	}
	return reportpkg.Row{Evidence: evidence, Brief: verdict == "fine" && len(s.owners) > 1,
		Cells: []any{verdict, sp.Reserved, sp.Active, sp.Unused, sp.Kept, sp.External(), sp.Largest, blowUp, unusable, asked, saved, least, sp.Split, internal,
			sp.Extents, sp.Blocks, int64(len(sp.Gaps)), d.Unseen, d.atNs - s.t.Recording().FromNs, level, reasons, s.t.OrdinalLabel(o.pid, o.device), int64(o.pid), where}}
}

// Trust lowers the confidence where an allocator has segments that were not seen to come.
func (d *FragDetail) Trust(level string, reasons []string) (string, []string) {
	strays := slices.ContainsFunc(d.Spaces, func(s *caching.Space) bool { return s.Strays > 0 })
	if d.Unseen == 0 && !strays {
		return level, reasons
	}
	reason := "some blocks lie in segments from before the recording"
	if d.Unseen > 0 {
		reason = units.Bytes(d.Unseen) + " of the allocator's segments are older than the recording"
	}
	if level == reportpkg.ConfidenceHigh {
		level = reportpkg.ConfidenceMedium
	}
	return level, append(reasons[:len(reasons):len(reasons)], reason)
}

// ofSpaceEvidence says in words what the numbers of a space mean.
func ofSpaceEvidence(s *caching.Space, request int64, unusable any) string {
	if s.Kind == caching.InReservation {
		return fmt.Sprintf("%s of %s are mapped, in %s; the largest hole has %s", units.Bytes(s.Active), units.Bytes(s.Reserved), units.Plural(s.Blocks, "mapping"), units.Bytes(s.Largest))
	}
	text := fmt.Sprintf("%s of %s are unused in %s, %s of it kept by %s", units.Bytes(s.Unused), units.Bytes(s.Reserved), units.Plural(int64(len(s.Gaps)), "gap"), units.Bytes(s.Kept), units.Plural(s.Blocks, "block"))
	if pct, ok := unusable.(float64); ok {
		text += fmt.Sprintf("; a request of %s finds no place in %.0f%% of it", units.Bytes(request), pct)
	}
	if s.Kind == caching.InSegments && s.Saved > 0 {
		text += fmt.Sprintf("; expandable segments would let up to %s go back", units.Bytes(s.Saved))
	}
	return text
}

// poolRows are the driver's memory pools of which the program asked how much they hold.
func (s *FragScan) poolRows(level string, reasons []string) []reportpkg.Row {
	var rows []reportpkg.Row
	pools := s.t.Pools(s.window, &s.opt.Filter)
	for _, key := range slices.SortedFunc(maps.Keys(pools), func(a, b timeline.PoolKey) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Pool, b.Pool))
	}) {
		p := pools[key]
		s.seen.Add(key.Pid, key.Pid, p.Device, 0)
		if p.Reserved < 0 || p.Used < 0 || p.Reserved < s.opt.MinBytes {
			continue
		}
		unused := max(0, p.Reserved-p.Used)
		verdict := "fine"
		if fragmentedBy(unused, p.Reserved) {
			verdict = "idle"
		}
		var blowUp any
		if p.Used > 0 {
			blowUp = float64(p.Reserved) / float64(p.Used)
		}
		rows = append(rows, reportpkg.Row{Evidence: fmt.Sprintf("the pool held %s that nobody used when the program last asked; how it lies is the driver's secret; confidence %s", units.Bytes(unused), level),
			Cells: []any{verdict, p.Reserved, p.Used, unused, nil, nil, nil, blowUp, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, max(0, p.AtNs-s.t.Recording().FromNs),
				level, reasons, s.t.OrdinalLabel(key.Pid, p.Device), int64(key.Pid), fmt.Sprintf("%s 0x%x", spacePool, uint64(key.Pool))}})
	}
	return rows
}

func (s *FragScan) pinTable(owners []*fragOwner) reportpkg.Table {
	table := reportpkg.Table{Name: "pins", Title: "whose blocks keep segments", Columns: PinColumns, Aside: true, Spare: []string{"pid", "device", "blocks"}}
	for _, o := range owners {
		if o.detail == nil {
			continue
		}
		for _, p := range o.detail.pins {
			if p.kept < s.opt.MinBytes {
				continue
			}
			var age any
			if p.oldestNs > 0 {
				age = max(0, o.detail.atNs-p.oldestNs)
			}
			table.Rows = append(table.Rows, reportpkg.Row{StackID: p.stack, Cells: []any{p.alone, p.kept, p.segments, p.live, p.blocks, age, s.t.OrdinalLabel(o.pid, o.device), int64(o.pid), p.site}})
		}
	}
	slices.SortStableFunc(table.Rows, func(a, b reportpkg.Row) int {
		return cmp.Or(reportpkg.CompareCells(a.Cells[0], b.Cells[0]), reportpkg.CompareCells(a.Cells[1], b.Cells[1]))
	})
	for i := range table.Rows {
		table.Rows[i].Brief = i >= reportpkg.HolderRowsWithStack
	}
	return table
}

func (s *FragScan) trendTable(owners []*fragOwner) (table reportpkg.Table, rising int64) {
	table = reportpkg.Table{Name: "trends", Title: "what blocks keep, over time", Columns: FragTrendColumns, Aside: true, Spare: []string{"pid", "device", "first_bytes", "peak_bytes"}}
	step := float64(s.window.DurNs()) / MapMoments
	for _, o := range owners {
		_, series := o.series()
		if len(series) == 0 {
			continue
		}
		f, ok := stats.NewForecast(series)
		perMin := int64(0)
		if step > 0 {
			perMin = units.RoundInt(f.Slope / step * float64(time.Minute))
		}
		if f.Lasting() && slices.Max(series)-series[0] >= stats.MinGrowth {
			rising++
		}
		var next, wrong, steady, at any
		if ok {
			next, wrong, steady = f.Next, units.RoundInt(f.Error()), units.RoundInt(f.SteadyError)
			at = s.window.ToNs + units.RoundInt(step*float64(f.HeldBack)) - s.t.Recording().FromNs
		}
		table.Rows = append(table.Rows, reportpkg.Row{Cells: []any{f.Direction(), series[0], slices.Max(series), series[len(series)-1], perMin, next, wrong, steady, at, f.Tau,
			s.t.OrdinalLabel(o.pid, o.device), int64(o.pid), o.name()}})
	}
	return table, rising
}

func (s *FragScan) momentTable(owners []*fragOwner) reportpkg.Table {
	table := reportpkg.Table{Name: "moments", Title: "moments", Columns: FragMomentColumns, Aside: true}
	for _, o := range owners {
		for i, l := range o.levels {
			table.Rows = append(table.Rows, reportpkg.Row{Cells: []any{s.moments[i] - s.t.Recording().FromNs, l.reserved, l.active, l.unused, l.kept, l.largest, s.t.OrdinalLabel(o.pid, o.device), int64(o.pid), o.name()}})
		}
	}
	processes.AddRanks(s.t, &table)
	return table
}

func (s *FragScan) facts(rows int) []reportpkg.Fact {
	result, pools := "", ""
	var lacks []reportpkg.Fact
	if rows == 0 {
		result = "nothing that can fragment is known: no caching allocator, no reserved addresses, no memory pool that the program asked about"
	}
	if s.reports {
		result = ""
		lacks = reportpkg.Fill(LacksFact, "the segments of PyTorch's allocator, and what lies unused in them, are not in this recording, which has its reports only; "+caching.RecordSegments)
	}
	if s.pools {
		pools = "how much of the device a memory pool holds is known only where the program asked for its attributes"
	}
	return append(lacks, reportpkg.Fill(FragFacts, result, pools, "holes between allocations of cuMemAlloc are addresses, not memory: they are in nothing here")...)
}

func (s *FragScan) totals(spaces *reportpkg.Table, owners []*fragOwner, rising int64) []reportpkg.Fact {
	var kept, unused, reserved, saved, fragmented, failures int64
	var external, share any
	for _, r := range spaces.Rows {
		if r.Cells[0] == "addresses" {
			continue
		}
		number := func(i int) int64 { n, _ := r.Cells[i].(int64); return n }
		kept, unused, reserved, saved = kept+number(4), unused+number(3), reserved+number(1), saved+number(10)
		if r.Cells[0] == "fragmented" {
			fragmented++
		}
		if e, ok := r.Cells[5].(float64); ok && (external == nil || e > external.(float64)) {
			external = e
		}
	}
	for _, o := range owners {
		failures += int64(len(o.failures))
	}
	if reserved > 0 {
		share = units.Percent(kept, reserved)
	}
	return reportpkg.Fill(FragTotals, kept, unused, reserved, share, saved, fragmented, rising, external, failures)
}
