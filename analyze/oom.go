package analyze

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

var oomColumns = []Column{
	{"at_ns", "AT", UnitNs, "when the driver refused, or PyTorch's allocator gave up; from the recording's start"},
	{"class", "CLASS", UnitText, "capacity: not even all free memory would have been enough; fragmentation: free memory of the device and unused memory in PyTorch's segments together are enough, but no piece is; cached: whole segments of PyTorch's cache are; limit: the device had enough free, so that a limit of the allocator, a pool, a MIG slice or a cgroup said no, or the memory is the host's; other process: it is enough together with what other processes use; unknown: nobody tells what was free"},
	{"also", "ALSO", UnitText, "fragmentation: class limit, and the request would have fit into the allocator's unused memory too, had it been in one piece; else absent"},
	{"outcome", "THEN", UnitText, "what the same thread did afterwards: retried (the same request succeeded after cached memory was given back: no error reached the program), recovered (it got as much later), went on (it got less, or gave work to the GPU), nothing since, ended (and the process ended)"},
	{"requested_bytes", "REQUESTED", UnitBytes, "bytes asked for; PyTorch tells those of a request that it gives up rounded to 512"},
	{"free_bytes", "FREE", UnitBytes, "what the device had free: as PyTorch's allocator tells, else the nearest answer of cuMemGetInfo or sample of NVML, bounded by the device's memory without what calls have allocated; absent for memory of the host"},
	{"allocated_bytes", "ALLOCATED", UnitBytes, "blocks of PyTorch's allocator for this process and device that the program had then"},
	{"unused_bytes", "UNUSED", UnitBytes, "bytes in segments of that allocator that were not in blocks; see the table cached"},
	{"largest_gap_bytes", "LARGEST", UnitBytes, "the largest of these gaps"},
	{"expandable_fits", "EXPANDABLE", UnitText, "would it have fitted with expandable segments? yes: free memory and what is whole in gaps in PyTorch's steps of 20 MiB is enough; perhaps: all whole pages of 2 MiB are; absent if they are on, or PyTorch's allocator did not ask"},
	{"fragmented_bytes", "", UnitBytes, "of UNUSED, gaps between blocks that are smaller than the request"},
	{"limit_least_bytes", "", UnitBytes, "bytes that the allocator's limit allows at least: the most it had reserved; absent unless it gave up without asking the driver, and if the limit was lowered meanwhile"},
	{"limit_below_bytes", "", UnitBytes, "bytes below which that limit lies: reserved, and a segment for the request"},
	{"reserved_bytes", "", UnitBytes, "memory that allocator had of the driver"},
	{"active_bytes", "", UnitBytes, "allocated, and given back but still used by a stream"},
	{"returned_bytes", "", UnitBytes, "what that allocator gave back to the driver before it gave up, or succeeded"},
	{"driver_calls", "", UnitCount, "calls of the driver that failed for this request"},
	{"driver_bytes", "", UnitBytes, "bytes that the driver was asked for; 0: it was not asked"},
	{"free_source", "", UnitText, "where FREE is from"},
	{"free_age_ns", "", UnitNs, "how old FREE was; negative if it was asked afterwards"},
	{"allocator_free_bytes", "", UnitBytes, "free memory as PyTorch's allocator tells it with the failure"},
	{"asked_free_bytes", "", UnitBytes, "free memory by the nearest cuMemGetInfo"},
	{"asked_age_ns", "", UnitNs, "how old that was"},
	{"nvml_free_bytes", "", UnitBytes, "free memory by NVML's nearest sample"},
	{"nvml_age_ns", "", UnitNs, "how old that was"},
	{"other_processes_bytes", "", UnitBytes, "memory of other processes on the device, by NVML's nearest samples"},
	{"freed_next_second_bytes", "", UnitBytes, "bytes that the process freed on the device within a second afterwards"},
	{"recovered_after_ns", "", UnitNs, "how long it took until the thread got memory again"},
	{"confidence", "", UnitText, "high, medium or low; see confidence_reasons"},
	{"confidence_reasons", "", UnitText, "what lowers the confidence: lost calls, a model that differs from the allocator's own totals, segments from before the recording, an old sample of free memory"},
	{"asked_by", "BY", UnitText, "PyTorch, or the function of the driver"},
	{"device", "DEVICE", UnitText, "CUDA device of the process"},
	{"pid", "PID", UnitID, "process"},
	{"tid", "", UnitID, "thread"},
	{"site", "SITE", UnitText, "the frame of the program's own code that asked"},
}

var cachedColumns = []Column{
	{"failure_ns", "AT", UnitNs, "failure that this belongs to, as in failures"},
	{"bytes", "BYTES", UnitBytes, "bytes of PyTorch's segments that no block has"},
	{"pieces", "PIECES", UnitCount, "in how many pieces"},
	{"largest_bytes", "LARGEST", UnitBytes, "the largest of them"},
	{"segments", "SEGMENTS", UnitCount, "in how many segments, or stretches of expandable ones"},
	{"reason", "WHY OF NO USE", UnitText, "too small pieces; for blocks of another size (segments for blocks up to 1 MiB, or for others); of another stream; in another pool; still used by a stream; whole segments (the driver gets them when the allocator asks again)"},
	{"held_by", "HELD BY", UnitText, "the place whose blocks lie in the segments with most of it"},
}

var oomHolderColumns = []Column{
	{"failure_ns", "AT", UnitNs, "failure that this belongs to, as in failures"},
	{"bytes", "HELD", UnitBytes, "bytes that the place held; of PyTorch's blocks as asked for"},
	{"share_pct", "SHARE%", UnitPercent, "share in all that the process held there"},
	{"blocks", "COUNT", UnitCount, "allocations behind HELD"},
	{"memory_kind", "KIND", UnitText, "kind of memory; torch: blocks of PyTorch's allocator"},
	{"site", "SITE", UnitText, "the frame of the program's own code that made the allocations"},
}

var oomFacts = []Column{
	{"result", "result", UnitText, "set if there is nothing to tell, or not all"},
}

var oomTotals = []Column{
	{"failures", "failures", UnitCount, "allocations that failed, those included that succeeded when tried again"},
	{"fatal", "without recovery", UnitCount, "failures after which the thread did nothing more"},
	{"retried", "retried", UnitCount, "failures of which the program saw nothing but lost time"},
	{"capacity", "capacity", UnitCount, "failures of that class"},
	{"fragmentation", "fragmentation", UnitCount, "failures of that class"},
	{"cached", "cached", UnitCount, "failures of that class"},
	{"limit", "limit", UnitCount, "failures of that class"},
	{"other_process", "other process", UnitCount, "failures of that class"},
	{"unknown", "unknown", UnitCount, "failures of that class"},
	{"fragmentation_under_limit", "fragmentation under a limit", UnitCount, "of class limit, failures that are fragmentation too: see also"},
}

// oomHolders is how many holders are told of one failure.
const oomHolders = 5

// OOM reports which allocations failed, why, and what became of the program. It returns
// a *SortError for a column that there is not.
func OOM(t *timeline.Timeline, opt query.Options) (*Report, error) {
	if err := needClasses(t, "oom"); err != nil {
		return nil, err
	}
	all, p, err := readFailures(t)
	if err != nil {
		return nil, err
	}
	return oomReport(t, all, p, &opt)
}

// oomReport is the report of failures that a replay has found.
func oomReport(t *timeline.Timeline, all []failure, p *timeline.Program, opt *query.Options) (*Report, error) {
	r := &Report{Command: "oom", Window: opt.Window(t.Recording()), Quality: programQuality(t, p), Notes: t.Facts.Notes}
	chosen, rest, none := chooseFailures(t, all, &opt.Filter)
	r.NoMatch = none
	r.Facts = fill(oomFacts, "")
	if len(all) == 0 {
		r.Facts[0].Value = "no allocation failed"
	} else if rest > 0 {
		r.Facts[0].Value = fmt.Sprintf("%s more are only counted", units.Plural(int64(rest), "failure"))
	}
	var scenes []*scene
	if len(chosen) > 0 {
		var err error
		if scenes, err = readScenes(t, chosen); err != nil {
			return nil, err
		}
	}
	verdicts := judgeScenes(scenes, p, &r.Quality)
	r.Totals = oomTotal(scenes, verdicts, rest)
	table := failureTable(t, scenes, verdicts)
	if err := table.arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	addStacks(t, &table, opt)
	r.Tables = []Table{table, cachedTable(t, scenes, opt.Top), oomHolderTable(t, scenes, opt.Top)}
	return r, nil
}

// judgeScenes says why each failure was one.
func judgeScenes(scenes []*scene, p *timeline.Program, q *Quality) []oomVerdict {
	frees := p.Counts().Frees
	p.Allocators.All(func(a *caching.Allocator) { frees += a.Counts.Frees })
	level, reasons := q.confidence(frees)
	verdicts := make([]oomVerdict, len(scenes))
	for i, sc := range scenes {
		verdicts[i] = sc.judge()
		verdicts[i].trust(sc, level, reasons)
	}
	return verdicts
}

// chooseFailures returns what the filter lets through, in order of time, and how many
// are left out because there are too many: those that did no harm first.
func chooseFailures(t *timeline.Timeline, all []failure, filter *query.Filter) (chosen []*failure, rest int, none *query.NoMatch) {
	seen, window := query.NewCallers(), filter.Window(t.Recording())
	for i := range all {
		f := &all[i]
		o := &t.Origins.List[f.origin]
		seen.Add(o.Pid, o.Tid, o.Device, o.Stream)
		if f.atNs >= window.FromNs && f.atNs <= window.ToNs && f.requested >= filter.MinBytes && filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) {
			chosen = append(chosen, f)
		}
	}
	if len(chosen) == 0 && len(all) > 0 {
		none = seen.Explain(filter)
	}
	if rest = len(chosen) - maxScenes; rest > 0 {
		slices.SortStableFunc(chosen, func(a, b *failure) int { return cmp.Compare(a.outcome, b.outcome) })
		chosen = chosen[:maxScenes]
		slices.SortStableFunc(chosen, func(a, b *failure) int { return cmp.Compare(a.number, b.number) })
	}
	return chosen, max(0, rest), none
}

func oomTotal(scenes []*scene, verdicts []oomVerdict, rest int) []Fact {
	var classes [numOOMClasses]int64
	var fatal, again, also int64
	for i, sc := range scenes {
		classes[verdicts[i].class]++
		if verdicts[i].also {
			also++
		}
		switch {
		case sc.outcome <= nothingSince:
			fatal++
		case sc.outcome == retried:
			again++
		}
	}
	return fill(oomTotals, int64(len(scenes)+rest), fatal, again, classes[oomCapacity], classes[oomFragmentation], classes[oomCached],
		classes[oomLimit], classes[oomOtherProcess], classes[oomUnknown], also)
}

func failureTable(t *timeline.Timeline, scenes []*scene, verdicts []oomVerdict) Table {
	table := Table{Name: "failures", Title: "failed allocations", Columns: slices.Clone(oomColumns),
		Spare: []string{"pid", "device", "expandable_fits", "asked_by", "largest_gap_bytes", "allocated_bytes"}}
	anyAllocator, anyAlso := false, false
	for i, sc := range scenes {
		anyAllocator, anyAlso = anyAllocator || sc.hasAllocator, anyAlso || verdicts[i].also
		table.Rows = append(table.Rows, failureRow(t, sc, &verdicts[i]))
	}
	if !anyAlso {
		hide(table.Columns, "also")
	}
	if !anyAllocator {
		for _, key := range []string{"allocated_bytes", "unused_bytes", "largest_gap_bytes", "expandable_fits"} {
			hide(table.Columns, key)
		}
	}
	addRanks(t, &table)
	return table
}

func failureRow(t *timeline.Timeline, sc *scene, v *oomVerdict) Row {
	var allocated, unused, largest, fragmented, reserved, active, told, free, freeAge, after, also, limitLeast, limitBelow any
	if v.also {
		also = oomFragmentation.String()
	}
	if sc.limitBelow > 0 && v.class == oomLimit {
		limitBelow = sc.limitBelow
		if sc.limitLeast > 0 {
			limitLeast = sc.limitLeast
		}
	}
	if sc.hasAllocator {
		fragmented = sc.fragmented
		u, l := sc.unused()
		allocated, unused, largest, reserved, active = sc.totals.Allocated, u, l, sc.totals.Reserved, sc.totals.Active
	}
	if sc.deviceFree >= 0 {
		told = sc.deviceFree
	}
	if sc.free.source != "" && sc.onDevice() {
		free, freeAge = sc.free.bytes, sc.free.ageNs
	}
	if sc.outcomeNs > 0 {
		after = sc.outcomeNs - sc.atNs
	}
	return Row{
		Evidence: sc.evidence(v),
		stack:    t.Origins.List[sc.origin].Stack,
		Cells: []any{sc.atNs - t.Recording().FromNs, v.class.String(), also, sc.outcome.String(), sc.requested, free, allocated, unused, largest, v.fits,
			fragmented, limitLeast, limitBelow, reserved, active, sc.returned, sc.calls, sc.asked, sc.free.source, freeAge, told, sc.free.asked, sc.free.askedAgeNs, sc.free.nvml, sc.free.nvmlAgeNs,
			sc.free.others, sc.freedNext, after, v.confidence, v.reasons, askedBy(t, sc), t.DeviceLabel(sc.device), int64(sc.pid), int64(sc.tid), t.SiteLabel(sc.origin)},
	}
}

// askedBy names who was asked for memory: a framework's allocator, or the driver.
func askedBy(t *timeline.Timeline, sc *scene) string {
	if sc.byAllocator {
		return "PyTorch"
	}
	return t.Origins.Name(sc.origin)
}

// evidence says in words what the verdict rests on.
func (sc *scene) evidence(v *oomVerdict) string {
	parts := []string{fmt.Sprintf("asked for %s; %s", units.Bytes(sc.requested), v.because)}
	if sc.byAllocator && sc.calls > 0 {
		parts = append(parts, fmt.Sprintf("the driver refused %s, %s were given back in between", units.Plural(sc.calls, "time"), units.Bytes(sc.returned)))
	}
	if len(sc.holders) > 0 {
		h := sc.holders[0]
		parts = append(parts, fmt.Sprintf("%s held most, %s in %s", h.site, units.Bytes(h.bytes), units.Plural(h.blocks, "block")))
	}
	switch sc.outcome {
	case retried:
		parts = append(parts, fmt.Sprintf("it succeeded %s later", units.Duration(sc.outcomeNs-sc.firstNs)))
	case recovered:
		parts = append(parts, fmt.Sprintf("the thread got as much %s later", units.Duration(sc.outcomeNs-sc.atNs)))
	}
	if sc.freedNext > 0 {
		parts = append(parts, fmt.Sprintf("%s were freed within the next second", units.Bytes(sc.freedNext)))
	}
	text := strings.Join(parts, "; ") + "; confidence " + v.confidence
	if len(v.reasons) > 0 {
		text += ": " + strings.Join(v.reasons, ", ")
	}
	return text
}

func cachedTable(t *timeline.Timeline, scenes []*scene, top int) Table {
	table := Table{Name: "cached", Title: "unused memory of PyTorch's allocator at the failures", Columns: cachedColumns, Aside: true, Spare: []string{"segments"}}
	for _, sc := range scenes {
		for i := range sc.cached {
			c := &sc.cached[i]
			var by any
			if c.heldBy != "" {
				by = c.heldBy
			}
			table.Rows = append(table.Rows, Row{Cells: []any{sc.atNs - t.Recording().FromNs, c.bytes, c.pieces, c.largest, c.segments, c.reason.String(), by}})
		}
	}
	_ = table.arrange("", top) // no column is asked for
	return table
}

func oomHolderTable(t *timeline.Timeline, scenes []*scene, top int) Table {
	table := Table{Name: "holders", Title: "who held memory at the failures", Columns: oomHolderColumns, Aside: true, Spare: []string{"share_pct", "memory_kind"}}
	for _, sc := range scenes {
		for _, h := range sc.holders[:min(oomHolders, len(sc.holders))] {
			table.Rows = append(table.Rows, Row{Cells: []any{sc.atNs - t.Recording().FromNs, h.bytes, units.Percent(h.bytes, sc.ownBytes), h.blocks, h.memory, h.site}})
		}
	}
	_ = table.arrange("", top)
	return table
}
