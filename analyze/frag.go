package analyze

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
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
)

// FragOptions shape the report of fragmentation.
type FragOptions struct {
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
	spaceSegments     = "segments"
	spaceExpandable   = "expandable segments"
	spaceReservations = "reserved addresses"
	spacePool         = "memory pool"
)

func String(k caching.SpaceKind) string {
	return [...]string{spaceSegments, spaceExpandable, spaceReservations}[k]
}

var spaceColumns = []Column{
	{"verdict", "VERDICT", UnitText, "fragmented: blocks keep at least 20% of the reserved bytes, and more than a segment of 20 MiB, from going back to the driver; idle: a pool holds that much unused; fine: less; addresses: no memory is lost, holes in reserved addresses are addresses"},
	{"reserved_bytes", "RESERVED", UnitBytes, "memory from the driver; of reserved addresses their length; of pools as the program last asked"},
	{"active_bytes", "ACTIVE", UnitBytes, "bytes in blocks that the program has or streams still use; mapped bytes; of pools what is allocated"},
	{"unused_bytes", "UNUSED", UnitBytes, "bytes of gaps"},
	{"kept_bytes", "KEPT", UnitBytes, "of these, what blocks keep from going back to the driver: all gaps of segments that have a block; of expandable segments what is left of gaps without whole steps of 20 MiB, or 2 MiB where blocks up to 1 MiB are"},
	{"external_ratio", "EXTERNAL", UnitRatio, "external fragmentation index: 1 - largest gap / all gaps"},
	{"largest_gap_bytes", "LARGEST", UnitBytes, "the largest gap"},
	{"blowup_ratio", "BLOW-UP", UnitRatio, "reserved / active; absent if nothing is active"},
	{"unusable_pct", "UNUSABLE%", UnitPercent, "share of UNUSED in gaps that cannot take a block of the request: too small, or in segments for blocks up to 1 MiB or for larger ones only; another stream's gaps count as usable"},
	{"request_bytes", "", UnitBytes, "that request: --request, or the largest one seen"},
	{"saved_bytes", "SAVED", UnitBytes, "of KEPT, whole 2 MiB pages inside of gaps: no more than that could go back if segments were expandable (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True); absent where they are"},
	{"saved_least_bytes", "", UnitBytes, "of that, what is whole in the steps of 20 MiB in which PyTorch maps for blocks above 1 MiB and takes back: this much at least, if blocks lay as they do"},
	{"inactive_split_bytes", "", UnitBytes, "as PyTorch counts inactive_split_bytes: gaps in segments that have blocks, without expandable ones"},
	{"internal_bytes", "", UnitBytes, "bytes by which blocks are larger than what was asked for"},
	{"extents", "", UnitCount, "segments, stretches of expandable ones, or reservations"},
	{"blocks", "", UnitCount, "blocks, or mappings"},
	{"gaps", "", UnitCount, "gaps"},
	{"unseen_bytes", "", UnitBytes, "reserved by the same allocator before the recording began: what is in these segments is in no other number"},
	{"at_ns", "AT", UnitNs, "moment of these numbers, from the recording's start: see --at"},
	{"confidence", "", UnitText, "high, medium or low; see confidence_reasons"},
	{"confidence_reasons", "", UnitText, "what lowers the confidence: lost events, a model that differs from the allocator's own totals, segments from before the recording"},
	{"device", "DEVICE", UnitText, "CUDA device of the process"},
	{"pid", "PID", UnitID, "process"},
	{"space", "WHERE", UnitText, "segments and expandable segments of PyTorch's allocator, by pool; reserved addresses; or a memory pool of the driver"},
}

var pinColumns = []Column{
	{"alone_bytes", "ALONE", UnitBytes, "bytes of gaps that only blocks of this place keep: they could go back if these were freed"},
	{"kept_bytes", "KEPT", UnitBytes, "bytes of gaps in segments that have a block of this place; places share segments, so that the sum is more than what is kept"},
	{"segments", "SEGMENTS", UnitCount, "segments that are kept"},
	{"live_bytes", "LIVE", UnitBytes, "bytes of the blocks that keep them"},
	{"blocks", "COUNT", UnitCount, "number of these blocks"},
	{"oldest_age_ns", "OLDEST", UnitNs, "age of the oldest; absent if it is from before the recording"},
	{"device", "DEVICE", UnitText, "CUDA device of the process"},
	{"pid", "PID", UnitID, "process"},
	{"site", "SITE", UnitText, "the frame of the program's own code that allocated the blocks"},
}

var fragTrendColumns = []Column{
	{"direction", "TREND", UnitText, "of the kept bytes at 48 moments of the window (of reserved addresses: of holes outside of the largest): rising (tau >= 0.8, and still in the last quarter), rose (tau >= 0.8, but not in the last quarter any more), falling (tau <= -0.8) or steady"},
	{"first_bytes", "FIRST", UnitBytes, "kept at the first moment with memory"},
	{"peak_bytes", "MOST", UnitBytes, "most kept at a moment"},
	{"last_bytes", "LAST", UnitBytes, "kept at the last moment"},
	{"growth_bytes_per_min", "GROWTH/min", UnitBytesRate, "Theil-Sen slope, per minute"},
	{"forecast_bytes", "FORECAST", UnitBytes, "kept at forecast_ns: of a line through all moments if lines proved better than no change in the last quarter, which was held back; else the last value; absent with fewer than 12 moments"},
	{"error_bytes", "ERROR", UnitBytes, "mean absolute error of such a forecast in the last quarter, from the first three"},
	{"no_change_error_bytes", "NO CHANGE", UnitBytes, "the same error if nothing had been foretold to change"},
	{"forecast_ns", "", UnitNs, "moment of FORECAST, from the recording's start: as long after the end as was held back"},
	{"tau", "", UnitRatio, "Mann-Kendall tau: 1 only rises, -1 only falls"},
	{"device", "DEVICE", UnitText, "CUDA device of the process"},
	{"pid", "PID", UnitID, "process"},
	{"owner", "OF", UnitText, "PyTorch's allocator, or reserved addresses"},
}

var fragMomentColumns = []Column{
	{"at_ns", "", UnitNs, "moment, from the recording's start"},
	{"reserved_bytes", "", UnitBytes, "as in spaces, all of one owner together"},
	{"active_bytes", "", UnitBytes, "as in spaces"},
	{"unused_bytes", "", UnitBytes, "as in spaces"},
	{"kept_bytes", "", UnitBytes, "as in spaces"},
	{"largest_gap_bytes", "", UnitBytes, "as in spaces"},
	{"device", "", UnitText, "CUDA device of the process"},
	{"pid", "", UnitID, "process"},
	{"owner", "", UnitText, "PyTorch's allocator, or reserved addresses"},
}

var fragFacts = []Column{
	{"result", "result", UnitText, "set if there is nothing that can fragment"},
	{"pools", "pools", UnitText, "what is known of memory pools"},
	{"note", "note", UnitText, "what is not in this report"},
}

// lacksFact is told only where an allocator is known by its reports.
var lacksFact = []Column{
	{"lacks", "lacks", UnitText, "what of PyTorch's allocator the recording lacks"},
}

var fragTotals = []Column{
	{"kept_bytes", "kept", UnitBytes, "sum of KEPT"},
	{"unused_bytes", "unused", UnitBytes, "sum of UNUSED, without reserved addresses"},
	{"reserved_bytes", "reserved", UnitBytes, "sum of RESERVED, without reserved addresses"},
	{"kept_pct", "% kept", UnitPercent, "share of kept_bytes in reserved_bytes; absent without any"},
	{"saved_bytes", "saved at most by expandable segments", UnitBytes, "sum of SAVED"},
	{"fragmented", "fragmented", UnitCount, "rows with verdict fragmented"},
	{"rising", "rising", UnitCount, "trends that rise by at least 1 MiB"},
	{"external_ratio_max", "external at most", UnitRatio, "largest EXTERNAL of memory, without reserved addresses; absent without any"},
	{"failures", "failed requests", UnitCount, "requests that PyTorch's allocator could not meet in the window, at most 200"},
}

// Fragmentation reports where memory that is reserved cannot be used: see judgeSpace. It
// returns the address maps, too.
func Fragmentation(t *timeline.Timeline, opt FragOptions) (*Report, []AddressMap, error) {
	s := newFragScan(t, &opt)
	p, err := s.run()
	if err != nil {
		return nil, nil, err
	}
	return s.report(p)
}

// report is the report of a scan that has seen a replay.
func (s *fragScan) report(p *timeline.Program) (*Report, []AddressMap, error) {
	t, opt := s.t, s.opt
	r := &Report{Command: "frag", Window: s.window, Quality: programQuality(t, p), Notes: t.Facts.Notes}
	owners := s.sorted()
	frees := p.Counts().Frees
	p.Allocators.All(func(a *caching.Allocator) { frees += a.Counts.Frees })
	level, reasons := r.Quality.confidence(frees)
	spaces := s.spaceTable(owners, level, reasons)
	pins := s.pinTable(owners)
	trends, rising := s.trendTable(owners)
	if len(owners) == 0 && len(s.seen.Pids) > 0 && len(spaces.Rows) == 0 {
		r.NoMatch = s.seen.Explain(&opt.Filter)
	}
	r.Facts = s.facts(len(spaces.Rows))
	r.Totals = s.totals(&spaces, owners, rising)
	addRanks(t, &spaces, &pins, &trends)
	if err := spaces.arrange(opt.Sort, opt.Top); err != nil {
		return nil, nil, err
	}
	_ = pins.arrange("", opt.Top) // no column is asked for
	addStacks(t, &pins, &opt.Options)
	r.Tables = []Table{spaces, pins, trends, s.momentTable(owners)}
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

func (s *fragScan) ownerTitle(o *fragOwner) string {
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

func (s *fragScan) spaceTable(owners []*fragOwner, level string, reasons []string) Table {
	table := Table{Name: "spaces", Title: "memory that is handed out in parts", Columns: spaceColumns, Spare: []string{"at_ns", "pid", "device", "largest_gap_bytes", "unused_bytes", "saved_bytes", "blowup_ratio"}}
	for _, o := range owners {
		if o.detail == nil {
			continue
		}
		for _, sp := range o.detail.spaces {
			if sp.Reserved+sp.Active > 0 && sp.Reserved >= s.opt.MinBytes {
				table.Rows = append(table.Rows, s.spaceRow(o, sp, level, reasons))
			}
		}
	}
	table.Rows = append(table.Rows, s.poolRows(level, reasons)...)
	slices.SortStableFunc(table.Rows, func(a, b Row) int {
		return cmp.Or(compareCells(a.Cells[4], b.Cells[4]), compareCells(a.Cells[1], b.Cells[1]))
	})
	return table
}

func (s *fragScan) spaceRow(o *fragOwner, sp *caching.Space, level string, reasons []string) Row {
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
	level, reasons = d.trust(level, reasons)
	internal := max(0, sp.Active-sp.Requested)
	if o.reservations {
		internal = 0
	}
	evidence := spaceEvidence(sp, request, unusable) + "; confidence " + level
	if len(reasons) > 0 {
		evidence += ": " + strings.Join(reasons, ", ")
	}
	return Row{Evidence: evidence, Brief: verdict == "fine" && len(s.owners) > 1,
		Cells: []any{verdict, sp.Reserved, sp.Active, sp.Unused, sp.Kept, sp.External(), sp.Largest, blowUp, unusable, asked, saved, least, sp.Split, internal,
			sp.Extents, sp.Blocks, int64(len(sp.Gaps)), d.unseen, d.atNs - s.t.Recording().FromNs, level, reasons, s.t.OrdinalLabel(o.pid, o.device), int64(o.pid), where}}
}

// trust lowers the confidence where an allocator has segments that were not seen to come.
func (d *fragDetail) trust(level string, reasons []string) (string, []string) {
	strays := slices.ContainsFunc(d.spaces, func(s *caching.Space) bool { return s.Strays > 0 })
	if d.unseen == 0 && !strays {
		return level, reasons
	}
	reason := "some blocks lie in segments from before the recording"
	if d.unseen > 0 {
		reason = units.Bytes(d.unseen) + " of the allocator's segments are older than the recording"
	}
	if level == confidenceHigh {
		level = confidenceMedium
	}
	return level, append(reasons[:len(reasons):len(reasons)], reason)
}

// spaceEvidence says in words what the numbers of a space mean.
func spaceEvidence(s *caching.Space, request int64, unusable any) string {
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
func (s *fragScan) poolRows(level string, reasons []string) []Row {
	var rows []Row
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
		rows = append(rows, Row{Evidence: fmt.Sprintf("the pool held %s that nobody used when the program last asked; how it lies is the driver's secret; confidence %s", units.Bytes(unused), level),
			Cells: []any{verdict, p.Reserved, p.Used, unused, nil, nil, nil, blowUp, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, max(0, p.AtNs-s.t.Recording().FromNs),
				level, reasons, s.t.OrdinalLabel(key.Pid, p.Device), int64(key.Pid), fmt.Sprintf("%s 0x%x", spacePool, uint64(key.Pool))}})
	}
	return rows
}

func (s *fragScan) pinTable(owners []*fragOwner) Table {
	table := Table{Name: "pins", Title: "whose blocks keep segments", Columns: pinColumns, Aside: true, Spare: []string{"pid", "device", "blocks"}}
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
			table.Rows = append(table.Rows, Row{stack: p.stack, Cells: []any{p.alone, p.kept, p.segments, p.live, p.blocks, age, s.t.OrdinalLabel(o.pid, o.device), int64(o.pid), p.site}})
		}
	}
	slices.SortStableFunc(table.Rows, func(a, b Row) int {
		return cmp.Or(compareCells(a.Cells[0], b.Cells[0]), compareCells(a.Cells[1], b.Cells[1]))
	})
	for i := range table.Rows {
		table.Rows[i].Brief = i >= holderRowsWithStack
	}
	return table
}

func (s *fragScan) trendTable(owners []*fragOwner) (table Table, rising int64) {
	table = Table{Name: "trends", Title: "what blocks keep, over time", Columns: fragTrendColumns, Aside: true, Spare: []string{"pid", "device", "first_bytes", "peak_bytes"}}
	step := float64(s.window.DurNs()) / mapMoments
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
		table.Rows = append(table.Rows, Row{Cells: []any{f.Direction(), series[0], slices.Max(series), series[len(series)-1], perMin, next, wrong, steady, at, f.Tau,
			s.t.OrdinalLabel(o.pid, o.device), int64(o.pid), o.name()}})
	}
	return table, rising
}

func (s *fragScan) momentTable(owners []*fragOwner) Table {
	table := Table{Name: "moments", Title: "moments", Columns: fragMomentColumns, Aside: true}
	for _, o := range owners {
		for i, l := range o.levels {
			table.Rows = append(table.Rows, Row{Cells: []any{s.moments[i] - s.t.Recording().FromNs, l.reserved, l.active, l.unused, l.kept, l.largest, s.t.OrdinalLabel(o.pid, o.device), int64(o.pid), o.name()}})
		}
	}
	addRanks(s.t, &table)
	return table
}

func (s *fragScan) facts(rows int) []Fact {
	result, pools := "", ""
	var lacks []Fact
	if rows == 0 {
		result = "nothing that can fragment is known: no caching allocator, no reserved addresses, no memory pool that the program asked about"
	}
	if s.reports {
		result = ""
		lacks = fill(lacksFact, "the segments of PyTorch's allocator, and what lies unused in them, are not in this recording, which has its reports only; "+caching.RecordSegments)
	}
	if s.pools {
		pools = "how much of the device a memory pool holds is known only where the program asked for its attributes"
	}
	return append(lacks, fill(fragFacts, result, pools, "holes between allocations of cuMemAlloc are addresses, not memory: they are in nothing here")...)
}

func (s *fragScan) totals(spaces *Table, owners []*fragOwner, rising int64) []Fact {
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
	return fill(fragTotals, kept, unused, reserved, share, saved, fragmented, rising, external, failures)
}
