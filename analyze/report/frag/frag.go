package frag

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
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

var SpaceColumns = []report.Column{
	{Key: "verdict", Title: "VERDICT", Unit: report.UnitText, About: "fragmented: blocks keep at least 20% of the reserved bytes, and more than a segment of 20 MiB, from going back to the driver; idle: a pool holds that much unused; fine: less; addresses: no memory is lost, holes in reserved addresses are addresses"},
	{Key: "reserved_bytes", Title: "RESERVED", Unit: report.UnitBytes, About: "memory from the driver; of reserved addresses their length; of pools as the program last asked"},
	{Key: "active_bytes", Title: "ACTIVE", Unit: report.UnitBytes, About: "bytes in blocks that the program has or streams still use; mapped bytes; of pools what is allocated"},
	{Key: "unused_bytes", Title: "UNUSED", Unit: report.UnitBytes, About: "bytes of gaps"},
	{Key: "kept_bytes", Title: "KEPT", Unit: report.UnitBytes, About: "of these, what blocks keep from going back to the driver: all gaps of segments that have a block; of expandable segments what is left of gaps without whole steps of 20 MiB, or 2 MiB where blocks up to 1 MiB are"},
	{Key: "external_ratio", Title: "EXTERNAL", Unit: report.UnitRatio, About: "external fragmentation index: 1 - largest gap / all gaps"},
	{Key: "largest_gap_bytes", Title: "LARGEST", Unit: report.UnitBytes, About: "the largest gap"},
	{Key: "blowup_ratio", Title: "BLOW-UP", Unit: report.UnitRatio, About: "reserved / active; absent if nothing is active"},
	{Key: "unusable_pct", Title: "UNUSABLE%", Unit: report.UnitPercent, About: "share of UNUSED in gaps that cannot take a block of the request: too small, or in segments for blocks up to 1 MiB or for larger ones only; another stream's gaps count as usable"},
	{Key: "request_bytes", Title: "", Unit: report.UnitBytes, About: "that request: --request, or the largest one seen"},
	{Key: "saved_bytes", Title: "SAVED", Unit: report.UnitBytes, About: "of KEPT, whole 2 MiB pages inside of gaps: no more than that could go back if segments were expandable (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True); absent where they are"},
	{Key: "saved_least_bytes", Title: "", Unit: report.UnitBytes, About: "of that, what is whole in the steps of 20 MiB in which PyTorch maps for blocks above 1 MiB and takes back: this much at least, if blocks lay as they do"},
	{Key: "inactive_split_bytes", Title: "", Unit: report.UnitBytes, About: "as PyTorch counts inactive_split_bytes: gaps in segments that have blocks, without expandable ones"},
	{Key: "internal_bytes", Title: "", Unit: report.UnitBytes, About: "bytes by which blocks are larger than what was asked for"},
	{Key: "extents", Title: "", Unit: report.UnitCount, About: "segments, stretches of expandable ones, or reservations"},
	{Key: "blocks", Title: "", Unit: report.UnitCount, About: "blocks, or mappings"},
	{Key: "gaps", Title: "", Unit: report.UnitCount, About: "gaps"},
	{Key: "unseen_bytes", Title: "", Unit: report.UnitBytes, About: "reserved by the same allocator before the recording began: what is in these segments is in no other number"},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "moment of these numbers, from the recording's start: see --at"},
	{Key: "confidence", Title: "", Unit: report.UnitText, About: "high, medium or low; see confidence_reasons"},
	{Key: "confidence_reasons", Title: "", Unit: report.UnitText, About: "what lowers the confidence: lost events, a model that differs from the allocator's own totals, segments from before the recording"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "space", Title: "WHERE", Unit: report.UnitText, About: "segments and expandable segments of PyTorch's allocator, by pool; reserved addresses; or a memory pool of the driver"},
}

var PinColumns = []report.Column{
	{Key: "alone_bytes", Title: "ALONE", Unit: report.UnitBytes, About: "bytes of gaps that only blocks of this place keep: they could go back if these were freed"},
	{Key: "kept_bytes", Title: "KEPT", Unit: report.UnitBytes, About: "bytes of gaps in segments that have a block of this place; places share segments, so that the sum is more than what is kept"},
	{Key: "segments", Title: "SEGMENTS", Unit: report.UnitCount, About: "segments that are kept"},
	{Key: "live_bytes", Title: "LIVE", Unit: report.UnitBytes, About: "bytes of the blocks that keep them"},
	{Key: "blocks", Title: "COUNT", Unit: report.UnitCount, About: "number of these blocks"},
	{Key: "oldest_age_ns", Title: "OLDEST", Unit: report.UnitNs, About: "age of the oldest; absent if it is from before the recording"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "the frame of the program's own code that allocated the blocks"},
}

var FragTrendColumns = []report.Column{
	{Key: "direction", Title: "TREND", Unit: report.UnitText, About: "of the kept bytes at 48 moments of the window (of reserved addresses: of holes outside of the largest): rising (tau >= 0.8, and still in the last quarter), rose (tau >= 0.8, but not in the last quarter any more), falling (tau <= -0.8) or steady"},
	{Key: "first_bytes", Title: "FIRST", Unit: report.UnitBytes, About: "kept at the first moment with memory"},
	{Key: "peak_bytes", Title: "MOST", Unit: report.UnitBytes, About: "most kept at a moment"},
	{Key: "last_bytes", Title: "LAST", Unit: report.UnitBytes, About: "kept at the last moment"},
	{Key: "growth_bytes_per_min", Title: "GROWTH/min", Unit: report.UnitBytesRate, About: "Theil-Sen slope, per minute"},
	{Key: "forecast_bytes", Title: "FORECAST", Unit: report.UnitBytes, About: "kept at forecast_ns: of a line through all moments if lines proved better than no change in the last quarter, which was held back; else the last value; absent with fewer than 12 moments"},
	{Key: "error_bytes", Title: "ERROR", Unit: report.UnitBytes, About: "mean absolute error of such a forecast in the last quarter, from the first three"},
	{Key: "no_change_error_bytes", Title: "NO CHANGE", Unit: report.UnitBytes, About: "the same error if nothing had been foretold to change"},
	{Key: "forecast_ns", Title: "", Unit: report.UnitNs, About: "moment of FORECAST, from the recording's start: as long after the end as was held back"},
	{Key: "tau", Title: "", Unit: report.UnitRatio, About: "Mann-Kendall tau: 1 only rises, -1 only falls"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "owner", Title: "OF", Unit: report.UnitText, About: "PyTorch's allocator, or reserved addresses"},
}

var FragMomentColumns = []report.Column{
	{Key: "at_ns", Title: "", Unit: report.UnitNs, About: "moment, from the recording's start"},
	{Key: "reserved_bytes", Title: "", Unit: report.UnitBytes, About: "as in spaces, all of one owner together"},
	{Key: "active_bytes", Title: "", Unit: report.UnitBytes, About: "as in spaces"},
	{Key: "unused_bytes", Title: "", Unit: report.UnitBytes, About: "as in spaces"},
	{Key: "kept_bytes", Title: "", Unit: report.UnitBytes, About: "as in spaces"},
	{Key: "largest_gap_bytes", Title: "", Unit: report.UnitBytes, About: "as in spaces"},
	{Key: "device", Title: "", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "", Unit: report.UnitID, About: "process"},
	{Key: "owner", Title: "", Unit: report.UnitText, About: "PyTorch's allocator, or reserved addresses"},
}

var FragFacts = []report.Column{
	{Key: "result", Title: "result", Unit: report.UnitText, About: "set if there is nothing that can fragment"},
	{Key: "pools", Title: "pools", Unit: report.UnitText, About: "what is known of memory pools"},
	{Key: "note", Title: "note", Unit: report.UnitText, About: "what is not in this report"},
}

// LacksFact is told only where an allocator is known by its reports.
var LacksFact = []report.Column{
	{Key: "lacks", Title: "lacks", Unit: report.UnitText, About: "what of PyTorch's allocator the recording lacks"},
}

var FragTotals = []report.Column{
	{Key: "kept_bytes", Title: "kept", Unit: report.UnitBytes, About: "sum of KEPT"},
	{Key: "unused_bytes", Title: "unused", Unit: report.UnitBytes, About: "sum of UNUSED, without reserved addresses"},
	{Key: "reserved_bytes", Title: "reserved", Unit: report.UnitBytes, About: "sum of RESERVED, without reserved addresses"},
	{Key: "kept_pct", Title: "% kept", Unit: report.UnitPercent, About: "share of kept_bytes in reserved_bytes; absent without any"},
	{Key: "saved_bytes", Title: "saved at most by expandable segments", Unit: report.UnitBytes, About: "sum of SAVED"},
	{Key: "fragmented", Title: "fragmented", Unit: report.UnitCount, About: "rows with verdict fragmented"},
	{Key: "rising", Title: "rising", Unit: report.UnitCount, About: "trends that rise by at least 1 MiB"},
	{Key: "external_ratio_max", Title: "external at most", Unit: report.UnitRatio, About: "largest EXTERNAL of memory, without reserved addresses; absent without any"},
	{Key: "failures", Title: "failed requests", Unit: report.UnitCount, About: "requests that PyTorch's allocator could not meet in the window, at most 200"},
}

// Run is RunWith without options of its own, and without the maps.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	r, _, err := RunWith(t, Options{Options: opt})
	return r, err
}

// RunWith reports where memory that is reserved cannot be used: see judgeSpace. It
// returns the address maps, too.
func RunWith(t *timeline.Timeline, opt Options) (*report.Report, []AddressMap, error) {
	t = t.View()
	s := NewFragScan(t, &opt)
	p, err := s.run()
	if err != nil {
		return nil, nil, err
	}
	return s.Report(p)
}

// Report is the report of a scan that has seen a replay.
func (s *FragScan) Report(p *timeline.Program) (*report.Report, []AddressMap, error) {
	t, opt := s.t, s.opt
	r := &report.Report{Command: "frag", Window: s.window, Quality: quality.OfProgram(t, p), Notes: t.Facts.Notes}
	owners := s.sorted()
	frees := p.Counts().Frees
	p.Allocators.All(func(a *caching.Allocator) { frees += a.Counts.Frees })
	level, reasons := r.Quality.Confidence(frees)
	spaces := s.spaceTable(s.findSpaces(owners, level, reasons), level, reasons)
	pins := s.pinTable(owners)
	found := findTrends(owners)
	trends := s.trendTable(found)
	if len(owners) == 0 && len(s.seen.Pids) > 0 && len(spaces.Rows) == 0 {
		r.NoMatch = s.seen.Explain(&opt.Filter)
	}
	r.Facts = s.facts(len(spaces.Rows))
	r.Totals = s.totals(&spaces, owners, found)
	processes.AddRanks(t, &spaces, &pins, &trends)
	if err := spaces.Arrange(opt.Sort, opt.Top); err != nil {
		return nil, nil, err
	}
	_ = pins.Arrange("", opt.Top) // no column is asked for
	frames.Fill(t, &pins, &opt.Options)
	r.Tables = []report.Table{spaces, pins, trends, s.momentTable(owners)}
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

// spaceTable returns a table with a row per space and memory pool, most kept bytes first.
func (s *FragScan) spaceTable(findings []spaceFinding, level string, reasons []string) report.Table {
	table := report.Table{Name: "spaces", Title: "memory that is handed out in parts", Columns: SpaceColumns, Spare: []string{"at_ns", "pid", "device", "largest_gap_bytes", "unused_bytes", "saved_bytes", "blowup_ratio"}}
	for i := range findings {
		s.addSpace(&table, &findings[i])
	}
	s.addPools(&table, level, reasons)
	table.Sort("kept_bytes", "reserved_bytes")
	return table
}

// addSpace adds the row of a space.
func (s *FragScan) addSpace(table *report.Table, f *spaceFinding) {
	sp, o := f.Space, f.owner
	row := table.Add(report.Values{
		"verdict":              f.verdict,
		"reserved_bytes":       sp.Reserved,
		"active_bytes":         sp.Active,
		"unused_bytes":         sp.Unused,
		"kept_bytes":           sp.Kept,
		"external_ratio":       sp.External(),
		"largest_gap_bytes":    sp.Largest,
		"blowup_ratio":         f.blowUp,
		"unusable_pct":         f.unusable,
		"request_bytes":        f.request,
		"saved_bytes":          f.saved,
		"saved_least_bytes":    f.savedLeast,
		"inactive_split_bytes": sp.Split,
		"internal_bytes":       f.internal,
		"extents":              sp.Extents,
		"blocks":               sp.Blocks,
		"gaps":                 int64(len(sp.Gaps)),
		"unseen_bytes":         o.detail.Unseen,
		"at_ns":                o.detail.atNs - s.t.Recording().FromNs,
		"confidence":           f.level,
		"confidence_reasons":   f.reasons,
		"device":               s.t.OrdinalLabel(o.pid, o.device),
		"pid":                  int64(o.pid),
		"space":                f.where,
	})
	row.Evidence, row.Brief = f.evidence(), f.verdict == verdictFine && len(s.owners) > 1
}

// spaceFinding is a space of an owner, with its verdict.
type spaceFinding struct {
	*caching.Space
	owner    *fragOwner
	verdict  string
	where    string // as in the column "space"
	internal int64  // bytes by which blocks are larger than requested
	level    string // confidence
	reasons  []string

	// Cells that are nil where they do not apply: see SpaceColumns.
	request, unusable, blowUp, saved, savedLeast any
}

// Verdicts of spaces.
const (
	verdictFine       = "fine"
	verdictFragmented = "fragmented"
	verdictIdle       = "idle"
	verdictAddresses  = "addresses"
)

// findSpaces returns the spaces of all owners that the filter lets through. level and reasons are
// the confidence of the recording.
func (s *FragScan) findSpaces(owners []*fragOwner, level string, reasons []string) []spaceFinding {
	var findings []spaceFinding
	for _, o := range owners {
		if o.detail == nil {
			continue
		}
		for _, sp := range o.detail.Spaces {
			if sp.Reserved+sp.Active > 0 && sp.Reserved >= s.opt.MinBytes {
				f := spaceFinding{Space: sp, owner: o}
				f.level, f.reasons = o.detail.Trust(level, reasons)
				f.judge(cmp.Or(s.opt.Request, o.largest))
				findings = append(findings, f)
			}
		}
	}
	return findings
}

// judge sets the verdict and what depends on the size of a request, bytes; 0 if there is none:
//
//	addresses   reserved addresses: their holes are no memory
//	fragmented  blocks keep at least fragmentedShare of the reserved bytes, and more than a segment
//	fine        the rest
func (f *spaceFinding) judge(request int64) {
	f.verdict, f.where = verdictFine, String(f.Kind)
	switch {
	case f.Kind == caching.InReservation:
		f.verdict = verdictAddresses
	case fragmentedBy(f.Kept, f.Reserved):
		f.verdict = verdictFragmented
	}
	if request > 0 {
		f.request = request
		if f.Unused > 0 {
			f.unusable = 100 * f.Unusable(request)
		}
	}
	if b, ok := f.BlowUp(); ok {
		f.blowUp = b
	}
	if f.Kind == caching.InSegments {
		f.saved, f.savedLeast = f.Saved, f.SavedLeast
	}
	if !f.owner.reservations {
		f.where += ", pool " + caching.PoolName(f.Pool)
		f.internal = max(0, f.Active-f.Requested)
	}
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
	if level == report.ConfidenceHigh {
		level = report.ConfidenceMedium
	}
	return level, append(reasons[:len(reasons):len(reasons)], reason)
}

// evidence says in words what the verdict rests on.
func (f *spaceFinding) evidence() string {
	return f.inWords() + "; " + report.ConfidenceText(f.level, f.reasons)
}

// inWords says in words what the numbers of a space mean.
func (f *spaceFinding) inWords() string {
	if f.Kind == caching.InReservation {
		return fmt.Sprintf("%s of %s are mapped, in %s; the largest hole has %s", units.Bytes(f.Active), units.Bytes(f.Reserved), units.Plural(f.Blocks, "mapping"), units.Bytes(f.Largest))
	}
	text := fmt.Sprintf("%s of %s are unused in %s, %s of it kept by %s", units.Bytes(f.Unused), units.Bytes(f.Reserved), units.Plural(int64(len(f.Gaps)), "gap"), units.Bytes(f.Kept), units.Plural(f.Blocks, "block"))
	if pct, ok := f.unusable.(float64); ok {
		text += fmt.Sprintf("; a request of %s finds no place in %.0f%% of it", units.Bytes(f.request.(int64)), pct)
	}
	if f.Kind == caching.InSegments && f.Saved > 0 {
		text += fmt.Sprintf("; expandable segments would let up to %s go back", units.Bytes(f.Saved))
	}
	return text
}

// addPools adds a row per memory pool of the driver of which the program asked how much it holds.
func (s *FragScan) addPools(table *report.Table, level string, reasons []string) {
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
		var blowUp any
		if p.Used > 0 {
			blowUp = float64(p.Reserved) / float64(p.Used)
		}
		row := table.Add(report.Values{
			"verdict":              judgePool(unused, p.Reserved),
			"reserved_bytes":       p.Reserved,
			"active_bytes":         p.Used,
			"unused_bytes":         unused,
			"kept_bytes":           nil,
			"external_ratio":       nil,
			"largest_gap_bytes":    nil,
			"blowup_ratio":         blowUp,
			"unusable_pct":         nil,
			"request_bytes":        nil,
			"saved_bytes":          nil,
			"saved_least_bytes":    nil,
			"inactive_split_bytes": nil,
			"internal_bytes":       nil,
			"extents":              nil,
			"blocks":               nil,
			"gaps":                 nil,
			"unseen_bytes":         nil,
			"at_ns":                max(0, p.AtNs-s.t.Recording().FromNs),
			"confidence":           level,
			"confidence_reasons":   reasons,
			"device":               s.t.OrdinalLabel(key.Pid, p.Device),
			"pid":                  int64(key.Pid),
			"space":                fmt.Sprintf("%s 0x%x", spacePool, uint64(key.Pool)),
		})
		row.Evidence = fmt.Sprintf("the pool held %s that nobody used when the program last asked; how it lies is the driver's secret; confidence %s", units.Bytes(unused), level)
	}
}

// judgePool returns the verdict of a memory pool of the driver.
func judgePool(unused, reserved int64) string {
	if fragmentedBy(unused, reserved) {
		return verdictIdle
	}
	return verdictFine
}

func (s *FragScan) pinTable(owners []*fragOwner) report.Table {
	table := report.Table{Name: "pins", Title: "whose blocks keep segments", Columns: PinColumns, Aside: true, Spare: []string{"pid", "device", "blocks"}}
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
			table.Add(report.Values{
				"alone_bytes":   p.alone,
				"kept_bytes":    p.kept,
				"segments":      p.segments,
				"live_bytes":    p.live,
				"blocks":        p.blocks,
				"oldest_age_ns": age,
				"device":        s.t.OrdinalLabel(o.pid, o.device),
				"pid":           int64(o.pid),
				"site":          p.site,
			}).StackID = p.stack
		}
	}
	table.Sort("alone_bytes", "kept_bytes")
	for i := range table.Rows {
		table.Rows[i].Brief = i >= report.HolderRowsWithStack
	}
	return table
}

// trend is the course of what blocks of an owner keep: a value per moment at which it had memory.
type trend struct {
	owner  *fragOwner
	series []int64
	stats.Forecast
	foretold bool // there are enough moments for a forecast
}

// isRising reports whether the trend counts as rising: lasting, and by at least 1 MiB.
func (t *trend) isRising() bool {
	return t.Lasting() && slices.Max(t.series)-t.series[0] >= stats.MinGrowth
}

// findTrends returns the trends of the owners that had memory at a moment.
func findTrends(owners []*fragOwner) []trend {
	var trends []trend
	for _, o := range owners {
		if _, series := o.series(); len(series) > 0 {
			t := trend{owner: o, series: series}
			t.Forecast, t.foretold = stats.NewForecast(series)
			trends = append(trends, t)
		}
	}
	return trends
}

// trendTable returns a table with a row per trend.
func (s *FragScan) trendTable(trends []trend) report.Table {
	table := report.Table{Name: "trends", Title: "what blocks keep, over time", Columns: FragTrendColumns, Aside: true, Spare: []string{"pid", "device", "first_bytes", "peak_bytes"}}
	step := float64(s.window.DurNs()) / MapMoments
	for i := range trends {
		t, o := &trends[i], trends[i].owner
		perMin := int64(0)
		if step > 0 {
			perMin = units.RoundInt(t.Slope / step * float64(time.Minute))
		}
		var next, wrong, steady, at any
		if t.foretold {
			next, wrong, steady = t.Next, units.RoundInt(t.Error()), units.RoundInt(t.SteadyError)
			at = s.window.ToNs + units.RoundInt(step*float64(t.HeldBack)) - s.t.Recording().FromNs
		}
		table.Add(report.Values{
			"direction":             t.Direction(),
			"first_bytes":           t.series[0],
			"peak_bytes":            slices.Max(t.series),
			"last_bytes":            t.series[len(t.series)-1],
			"growth_bytes_per_min":  perMin,
			"forecast_bytes":        next,
			"error_bytes":           wrong,
			"no_change_error_bytes": steady,
			"forecast_ns":           at,
			"tau":                   t.Tau,
			"device":                s.t.OrdinalLabel(o.pid, o.device),
			"pid":                   int64(o.pid),
			"owner":                 o.name(),
		})
	}
	return table
}

func (s *FragScan) momentTable(owners []*fragOwner) report.Table {
	table := report.Table{Name: "moments", Title: "moments", Columns: FragMomentColumns, Aside: true}
	for _, o := range owners {
		for i, l := range o.levels {
			table.Add(report.Values{
				"at_ns":             s.moments[i] - s.t.Recording().FromNs,
				"reserved_bytes":    l.reserved,
				"active_bytes":      l.active,
				"unused_bytes":      l.unused,
				"kept_bytes":        l.kept,
				"largest_gap_bytes": l.largest,
				"device":            s.t.OrdinalLabel(o.pid, o.device),
				"pid":               int64(o.pid),
				"owner":             o.name(),
			})
		}
	}
	processes.AddRanks(s.t, &table)
	return table
}

func (s *FragScan) facts(rows int) []report.Fact {
	result, pools := "", ""
	var lacks []report.Fact
	if rows == 0 {
		result = "nothing that can fragment is known: no caching allocator, no reserved addresses, no memory pool that the program asked about"
	}
	if s.reports {
		result = ""
		lacks = report.Facts(LacksFact, report.Values{
			"lacks": "the segments of PyTorch's allocator, and what lies unused in them, are not in this recording, which has its reports only; " + caching.RecordSegments,
		})
	}
	if s.pools {
		pools = "how much of the device a memory pool holds is known only where the program asked for its attributes"
	}
	return append(lacks, report.Facts(FragFacts, report.Values{
		"result": result,
		"pools":  pools,
		"note":   "holes between allocations of cuMemAlloc are addresses, not memory: they are in nothing here",
	})...)
}

// totals sums up the spaces, owners and trends.
func (s *FragScan) totals(spaces *report.Table, owners []*fragOwner, trends []trend) []report.Fact {
	var kept, unused, reserved, saved, fragmented, rising, failures int64
	var external, share any
	for i := range spaces.Rows {
		r := &spaces.Rows[i]
		verdict := spaces.Cell(r, "verdict")
		if verdict == verdictAddresses {
			continue
		}
		number := func(key string) int64 { n, _ := spaces.Cell(r, key).(int64); return n }
		kept += number("kept_bytes")
		unused += number("unused_bytes")
		reserved += number("reserved_bytes")
		saved += number("saved_bytes")
		if verdict == verdictFragmented {
			fragmented++
		}
		if e, ok := spaces.Cell(r, "external_ratio").(float64); ok {
			external = report.Most(external, e)
		}
	}
	for _, o := range owners {
		failures += int64(len(o.failures))
	}
	for i := range trends {
		if trends[i].isRising() {
			rising++
		}
	}
	if reserved > 0 {
		share = units.Percent(kept, reserved)
	}
	return report.Facts(FragTotals, report.Values{
		"kept_bytes":         kept,
		"unused_bytes":       unused,
		"reserved_bytes":     reserved,
		"kept_pct":           share,
		"saved_bytes":        saved,
		"fragmented":         fragmented,
		"rising":             rising,
		"external_ratio_max": external,
		"failures":           failures,
	})
}
