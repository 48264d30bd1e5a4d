package analyze

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// leakColumns are the columns of the table of leaks; the one that names the group
// is added by leakTable.
var leakColumns = []Column{
	{"verdict", "VERDICT", UnitText, "growing: the lowest live bytes of a process between checkpoints (20 after a warm-up of 10%) rise all along since they began to (tau >= 0.8, at least 5 rises), still in the last quarter, in the second half at no less than half the slope of the first, by at least 1 MiB and 1% of what is live, per window or per minute if the window is shorter, by more than blocks that come and go do by chance, and by twice what lost frees would explain, in the last quarter too; churn: nothing is left, or 90% was freed and the rest is young; startup: 90% of what is left is from the warm-up; exit leak: the process, or the last context it used, ended with it (blocks of PyTorch are retained then); retained: what else is live"},
	{"live_bytes", "LIVE", UnitBytes, "bytes allocated in the window that the program had not freed at its end, or when its process or the last context of that ended"},
	{"live_count", "COUNT", UnitCount, "allocations behind LIVE"},
	{"allocs", "ALLOCS", UnitCount, "allocations in the window"},
	{"freed_pct", "FREED%", UnitPercent, "share of ALLOCS that was freed"},
	{"age_median_ns", "AGE(med)", UnitNs, "median age of the live allocations at the end of the window"},
	{"growth_bytes_per_min", "GROWTH/min", UnitBytesRate, "Theil-Sen slope of the lowest live bytes between checkpoints, per minute; of what grows, since it began to"},
	{"frees", "", UnitCount, "frees of ALLOCS, those included that were not recorded but must have happened"},
	{"alloc_bytes", "", UnitBytes, "bytes of ALLOCS"},
	{"grown_bytes", "", UnitBytes, "rise of the lowest live bytes over the checkpoints, by the slope"},
	{"tau", "", UnitRatio, "Mann-Kendall tau of the lowest live bytes: 1 only rises, -1 only falls"},
	{"oom_in_ns", "OOM IN", UnitNs, "(memory of the device - memory used at NVML's last sample, or where there is none at the program's last cuMemGetInfo) / growth of the row; absent without either, for host memory and for rows that do not grow"},
	{"confidence", "", UnitText, "high, medium or low; see confidence_reasons"},
	{"confidence_reasons", "", UnitText, "what lowers the confidence: lost calls, a cut-off recording, unmatched frees, a short window"},
	{"memory_kind", "", UnitText, "kind of the memory: device, async, managed, host, torch (blocks that PyTorch's caching allocator handed out, with the bytes that were asked for) and so on; several if the row has several"},
}

// leakCourse is what the verdict is judged by, drawn.
var leakCourse = Column{"floor_course_bytes", "OVER TIME", UnitCourse, "lowest live bytes between the checkpoints after the warm-up, from 0 to the highest of them: a leak rises to the end, a cache levels off; absent where nothing stayed"}

var leakTotals = []Column{
	{"live_bytes", "live", UnitBytes, "sum of LIVE over all rows"},
	{"live_count", "blocks", UnitCount, "sum of COUNT over all rows"},
	{"allocs", "allocs", UnitCount, "sum of ALLOCS over all rows"},
	{"failed_allocs", "failed allocs", UnitCount, "allocations that returned an error"},
	{"peak_bytes", "peak", UnitBytes, "most bytes live at a time"},
	{"growing", "growing", UnitCount, "rows with verdict growing"},
	{"exit_leaks", "exit leaks", UnitCount, "rows with verdict exit leak"},
	{"retained", "retained", UnitCount, "rows with verdict retained"},
	{"startup", "startup", UnitCount, "rows with verdict startup"},
	{"churn", "churn", UnitCount, "rows with verdict churn"},
	{"growth_bytes_per_min", "growth/min", UnitBytesRate, "sum of GROWTH/min over growing rows"},
	{"suppressed_blocks", "suppressed blocks", UnitCount, "blocks that were live at the end and that --suppressions leaves out of everything else"},
	{"suppressed_bytes", "suppressed", UnitBytes, "bytes of these"},
	{"oom_in_ns", "out of memory in", UnitNs, "soonest device: (memory - memory used at NVML's last sample or the program's last cuMemGetInfo) / growth of its growing rows"},
}

// Leaks reports which places allocated memory that was not freed, and what that is:
// see verdict. It returns a *GroupError or *SortError for options it cannot follow.
func Leaks(t *timeline.Timeline, opt query.Options) (*Report, error) {
	if err := needClasses(t, "leaks"); err != nil {
		return nil, err
	}
	s, err := newLeakScan(t, &opt)
	if err != nil {
		return nil, err
	}
	use := newAllocatorUse(t, &opt.Filter, s.window)
	p, err := t.ReplayProgram(s.consume, nil, use.watch)
	if err != nil {
		return nil, err
	}
	return leaksReport(t, s, use, p, &opt)
}

// leaksReport is the report of a scan that has seen a replay.
func leaksReport(t *timeline.Timeline, s *leakScan, use *allocatorUse, p *timeline.Program, opt *query.Options) (*Report, error) {
	s.finish(p)
	r := &Report{Command: "leaks", Window: s.window, Quality: programQuality(t, p)}
	r.Facts, r.Notes = use.facts(p.Allocators), r.Quality.notes()
	if !s.matched && t.HasMemory() {
		r.NoMatch = s.grouping.seen.Explain(&opt.Filter)
	}
	rows := s.verdicts(&r.Quality)
	r.Totals = s.totals(rows)
	table := newLeakTable(t, s, rows, &r.Quality, opt.AllStacks || opt.AllFrames)
	label := len(table.Columns) - 1
	table.Columns = slices.Insert(table.Columns, label, leakCourse)
	for i := range table.Rows {
		table.Rows[i].Cells = slices.Insert(table.Rows[i].Cells, label, s.floorCourse(rows[i].leakGroup))
	}
	table.Spare = slices.Insert(table.Spare, 2, leakCourse.Key)
	if err := table.arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	r.Tables = []Table{table}
	addStacks(t, &r.Tables[0], opt)
	if used := s.grouping.suppress.table(); len(used.Rows) > 0 {
		r.Tables = append(r.Tables, used)
	}
	return r, nil
}

// verdicts judges all groups, the worst first.
func (s *leakScan) verdicts(q *Quality) []judged {
	var rows []judged
	for i := range s.groups {
		if s.groups[i].allocs > 0 {
			rows = append(rows, s.judge(i, q.lostFor(kindLabel(s.t, s.groups[i].memory))))
		}
	}
	slices.SortFunc(rows, func(a, b judged) int {
		return cmp.Or(cmp.Compare(a.verdict, b.verdict), cmp.Compare(b.liveBytes, a.liveBytes),
			cmp.Compare(b.allocBytes, a.allocBytes), strings.Compare(a.label, b.label))
	})
	return rows
}

func newLeakTable(t *timeline.Timeline, s *leakScan, rows []judged, q *Quality, allStacks bool) Table {
	label := Column{s.grouping.by, groupTitle(s.grouping.by), UnitText, "where the memory was allocated, or what --group-by asks for"}
	columns := append(slices.Clone(leakColumns), label)
	table := Table{Name: "leaks", Title: "leaks", Columns: columns, Spare: []string{"oom_in_ns", "age_median_ns", "freed_pct", "memory_kind"},
		Keys: []string{s.grouping.by}, Verdicts: verdictNames()}
	level, reasons := q.confidence(s.frees)
	known := false
	for i := range rows {
		j := &rows[i]
		oom := oomIn(t, j.device, j.growthOnDevice(), s.window.ToNs)
		known = known || oom != nil
		rowLevel, rowReasons := j.confidence(level, reasons, s.window)
		evidence := j.evidence() + "; confidence " + rowLevel
		if len(rowReasons) > 0 {
			evidence += ": " + strings.Join(rowReasons, ", ")
		}
		table.Rows = append(table.Rows, Row{
			Cells: []any{j.verdict.String(), j.liveBytes, j.liveCount, j.allocs, units.Percent(j.frees, j.allocs), age(j),
				units.RoundInt(j.perMin), j.frees, j.allocBytes, j.grown, j.trend.Tau, oom, rowLevel, rowReasons, kindLabel(t, j.memory), j.label},
			Evidence: evidence,
			Brief:    !allStacks && !j.verdict.isSuspect(),
			stack:    j.stack(),
		})
	}
	if !known {
		hide(table.Columns, "oom_in_ns")
	}
	if len(t.Allocations) > 0 {
		title(table.Columns, "memory_kind", "KIND")
	}
	return table
}

// addStacks fills in the stacks of the rows that are left after --top.
func addStacks(t *timeline.Timeline, table *Table, opt *query.Options) {
	limit := opt.MaxFrames
	if opt.AllFrames {
		limit = 0
	}
	for i := range table.Rows {
		r := &table.Rows[i]
		r.Stack = framesShown(&t.Stacks, r.stack, limit, opt.FrameRules())
		r.StackFrames = len(t.Stacks.Stacks[r.stack])
	}
}

// age is the median age, or nothing where nothing is live.
func age(j *judged) any {
	if j.liveCount == 0 {
		return nil
	}
	return j.medianAge
}

// hide keeps a column out of tables.
func hide(columns []Column, key string) { title(columns, key, "") }

// title gives a column a heading.
func title(columns []Column, key, text string) {
	for i := range columns {
		if columns[i].Key == key {
			columns[i].Title = text
		}
	}
}

// kindLabel names the kind of a group's memory.
func kindLabel(t *timeline.Timeline, memory int32) string {
	if memory == mixedKinds {
		return "several"
	}
	return t.Origins.Strings.List[memory]
}

// growthOnDevice is the growth that eats up a device's memory, bytes per minute.
func (j *judged) growthOnDevice() float64 {
	if j.verdict != growing || j.hostBytes > 0 {
		return 0
	}
	return j.perMin
}

// oomIn returns in how many ns a device is full at a growth in bytes per minute, or
// nil when that is not known.
func oomIn(t *timeline.Timeline, device int32, perMin float64, atNs int64) any {
	if perMin <= 0 {
		return nil
	}
	total, used, ok := t.DeviceUse(device, atNs)
	if !ok {
		return nil
	}
	return units.RoundInt(max(0, total-used) / perMin * float64(time.Minute))
}

func (s *leakScan) totals(rows []judged) []Fact {
	var live, count, allocs int64
	var perMin float64
	var verdicts [numVerdicts]int64
	onDevice := make(map[int32]float64)
	for i := range rows {
		j := &rows[i]
		live += j.liveBytes
		count += j.liveCount
		allocs += j.allocs
		verdicts[j.verdict]++
		if j.verdict == growing {
			perMin += j.perMin
			onDevice[j.device] += j.growthOnDevice()
		}
	}
	var oom any
	for device, growth := range onDevice {
		if in := oomIn(s.t, device, growth, s.window.ToNs); in != nil && (oom == nil || in.(int64) < oom.(int64)) {
			oom = in
		}
	}
	hidden := s.grouping.suppress.total()
	return fill(leakTotals, live, count, allocs, s.failed, s.peak, verdicts[growing], verdicts[exitLeak], verdicts[retained],
		verdicts[startup], verdicts[churn], units.RoundInt(perMin), hidden.count, hidden.bytes, oom)
}

// lostFor is how many lost calls may have been frees of memory of a kind. Nobody knows how
// many there were in segments that are damaged.
func (q *Quality) lostFor(kind string) int64 {
	if q.DamagedSegments > 0 {
		return math.MaxInt64
	}
	switch kind {
	case format.MemoryTorch:
		return q.LostAllocatorEvents
	case "several":
		return q.LostMemoryEvents + q.LostAllocatorEvents
	}
	return q.LostMemoryEvents
}
