package blocks

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/blockreadings"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// allocatorColumns are the columns of the table of allocators.
var allocatorColumns = []report.Column{
	{
		Key:   "verdict",
		Title: "VERDICT",
		Unit:  report.UnitText,
		About: "growing: the bytes of all blocks together rise until the last reading, by the conditions of the " +
			"table sizes. Steady: they do not. Absent with fewer than 20 readings after the warm-up",
	},
	{
		Key: "readings", Title: "READINGS", Unit: report.UnitCount,
		About: "readings that equal the allocator's own statistics: number of blocks, allocated and reserved bytes. " +
			"All other columns are from them",
	},
	{
		Key: "refused", Title: "REFUSED", Unit: report.UnitCount,
		About: "readings that the recorder refused, because the allocator changed meanwhile or was not as expected. " +
			"The reasons are below the table",
	},
	{
		Key:   "unused",
		Title: "UNUSED",
		Unit:  report.UnitCount,
		About: "other readings without use. The first kind: their rows do not add up. The second: they are before " +
			"the first reading that lists all blocks, or between a wrong one and the next that does. The third: the " +
			"process ended after them, and blocks only went",
	},
	{Key: "wrong", Title: "", Unit: report.UnitCount, About: "readings of UNUSED whose rows do not add up"},
	{Key: "from_ns", Title: "FROM", Unit: report.UnitNs, About: "first reading, from the start of the recording"},
	{Key: "to_ns", Title: "TO", Unit: report.UnitNs, About: "last reading, from the start of the recording"},
	{
		Key: "first_allocated_bytes", Title: "FIRST ALLOCATED", Unit: report.UnitBytes,
		About: "bytes of the blocks that the program used at the first reading",
	},
	{Key: "allocated_bytes", Title: "LAST", Unit: report.UnitBytes, About: "the same at the last reading"},
	{Key: "least_allocated_bytes", Title: "", Unit: report.UnitBytes, About: "the same, the least at any reading"},
	{Key: "most_allocated_bytes", Title: "MOST", Unit: report.UnitBytes, About: "the same, the most at any reading"},
	{
		Key: "first_reserved_bytes", Title: "FIRST RESERVED", Unit: report.UnitBytes,
		About: "bytes of the segments that the allocator had from the driver at the first reading",
	},
	{Key: "reserved_bytes", Title: "LAST", Unit: report.UnitBytes, About: "the same at the last reading"},
	{Key: "least_reserved_bytes", Title: "", Unit: report.UnitBytes, About: "the same, the least at any reading"},
	{Key: "most_reserved_bytes", Title: "MOST", Unit: report.UnitBytes, About: "the same, the most at any reading"},
	{
		Key: "first_blocks", Title: "FIRST BLOCKS", Unit: report.UnitCount,
		About: "blocks that the program or a stream used at the first reading",
	},
	{Key: "blocks", Title: "LAST", Unit: report.UnitCount, About: "the same at the last reading"},
	{Key: "least_blocks", Title: "", Unit: report.UnitCount, About: "the same, the least at any reading"},
	{Key: "most_blocks", Title: "", Unit: report.UnitCount, About: "the same, the most at any reading"},
	{
		Key: "survivors", Title: "SURVIVORS", Unit: report.UnitCount,
		About: "blocks that were in every reading. It is an upper bound: a block that was freed and given out again " +
			"with the same address and size looks the same",
	},
	{Key: "surviving_bytes", Title: "THEIR BYTES", Unit: report.UnitBytes, About: "bytes of SURVIVORS"},
	{
		Key: "growth_bytes_per_min", Title: "GROWTH/min", Unit: report.UnitBytesRate,
		About: "Theil-Sen slope of the lowest bytes of all blocks between checkpoints, per minute. Absent without a " +
			"verdict",
	},
	{
		Key: "floor_course_bytes", Title: "OVER TIME", Unit: report.UnitSeries,
		About: "lowest bytes of all blocks between checkpoints after the warm-up, over time. Absent without a verdict",
	},
	{Key: "device", Title: "", Unit: report.UnitText, About: "CUDA device; absent if no allocator was found"},
	{Key: "pid", Title: "", Unit: report.UnitID, About: "process id"},
	{Key: "allocator", Title: "ALLOCATOR", Unit: report.UnitText, About: "process and CUDA device of the allocator"},
}

// allocatorTable returns a table with one row per allocator.
func (s *scan) allocatorTable() report.Table {
	table := report.Table{
		Name:    "allocators",
		Title:   "readings of PyTorch's blocks",
		Columns: slices.Clone(allocatorColumns),
		HideFirst: []string{
			"floor_course_bytes", "from_ns", "most_reserved_bytes", "first_reserved_bytes", "unused", "surviving_bytes",
			"most_allocated_bytes", "survivors", "to_ns", "reserved_bytes",
		},
		Keys:      []string{"device"},
		Secondary: true,
		Verdicts:  []string{verdictGrowing.String(), verdictSteady.String()},
	}
	for _, a := range s.allocators {
		values := report.Values{
			"readings": a.Used, "refused": a.Refused, "unused": a.unused(), "wrong": a.Wrong, "pid": int64(a.Pid),
			"device": nil, "allocator": a.name(),
		}
		if a.Device >= 0 {
			values["device"] = s.t.OrdinalDeviceLabel(a.Pid, a.Device)
		}
		row := table.Add(report.JoinValues(values, s.readingValues(a), a.growthValues()))
		row.Evidence = describeRefusals(a.Refusals)
	}
	for _, key := range []string{"refused", "unused"} {
		if !slices.ContainsFunc(table.Rows, func(r report.Row) bool { return table.Cell(&r, key) != int64(0) }) {
			report.HideTitle(table.Columns, key)
		}
	}
	return table
}

// readingValues returns the cells about the first and the last reading. They are nil without readings.
func (s *scan) readingValues(a *allocatorStats) report.Values {
	last, start := &a.Totals, s.t.RecordingWindow().FromNs
	v := report.Values{
		"from_ns": a.first.AtNs - start, "to_ns": last.AtNs - start,
		"first_allocated_bytes": a.first.Allocated, "allocated_bytes": last.Allocated,
		"least_allocated_bytes": a.least.Allocated, "most_allocated_bytes": a.most.Allocated,
		"first_reserved_bytes": a.first.Reserved, "reserved_bytes": last.Reserved,
		"least_reserved_bytes": a.least.Reserved, "most_reserved_bytes": a.most.Reserved,
		"first_blocks": a.first.Blocks, "blocks": last.Blocks,
		"least_blocks": a.least.Blocks, "most_blocks": a.most.Blocks,
		"survivors": a.survivors.Blocks, "surviving_bytes": a.survivors.Bytes,
	}
	if a.Used == 0 {
		for key := range v {
			v[key] = nil
		}
	}
	return v
}

// growthValues returns the cells about the growth of all blocks. They are nil without a verdict.
func (s *allocatorStats) growthValues() report.Values {
	if !s.hasVerdicts() {
		return report.Values{"verdict": nil, "growth_bytes_per_min": nil, "floor_course_bytes": nil}
	}
	v := verdictSteady
	if s.isGrowing() {
		v = verdictGrowing
	}
	return report.Values{
		"verdict": v.String(), "growth_bytes_per_min": units.RoundInt(s.growth.perMin),
		"floor_course_bytes": s.all.Floors,
	}
}

// describeRefusals returns the reasons of refused readings, the most frequent first, or "" if there is none.
func describeRefusals(refusals map[string]int64) string {
	reasons := slices.SortedFunc(maps.Keys(refusals), func(a, b string) int {
		return cmp.Or(cmp.Compare(refusals[b], refusals[a]), strings.Compare(a, b))
	})
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%s refused: %s", units.CountWithNoun(refusals[reason], "reading"), reason)
	}
	return strings.Join(reasons, "; ")
}

// momentColumns are the columns of the table of moments.
var momentColumns = []report.Column{
	{Key: "at_ns", Title: "", Unit: report.UnitNs, About: "time of a reading, from the start of the recording"},
	{
		Key: "allocated_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes of the blocks that the program used. The table has all readings of an allocator, or the last " +
			"ones of 200 equal parts",
	},
	{Key: "reserved_bytes", Title: "", Unit: report.UnitBytes, About: "bytes of the segments"},
	{Key: "blocks", Title: "", Unit: report.UnitCount, About: "blocks that the program or a stream used"},
	{Key: "device", Title: "", Unit: report.UnitText, About: "CUDA device"},
	{Key: "pid", Title: "", Unit: report.UnitID, About: "process id"},
}

// momentTable returns a table with memory over time.
func (s *scan) momentTable() report.Table {
	table := report.Table{
		Name:      "moments",
		Title:     "memory over time",
		Columns:   slices.Clone(momentColumns),
		Secondary: true,
		Keys:      []string{},
	}
	start := s.t.RecordingWindow().FromNs
	for _, a := range s.allocators {
		device := s.t.OrdinalDeviceLabel(a.Pid, a.Device)
		for _, m := range a.moments {
			table.Add(momentValues(&m, start, device, a.Pid))
		}
	}
	return table
}

func momentValues(m *blockreadings.Totals, startNs int64, device string, pid int32) report.Values {
	return report.Values{
		"at_ns": m.AtNs - startNs, "allocated_bytes": m.Allocated, "reserved_bytes": m.Reserved, "blocks": m.Blocks,
		"device": device, "pid": int64(pid),
	}
}
