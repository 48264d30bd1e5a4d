package earlier

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
)

// FactColumns are the columns of the facts that Append adds.
var FactColumns = []report.Column{
	{
		Key:   "earlier",
		Title: "before the recording",
		Unit:  report.UnitText,
		About: "PyTorch's blocks and segments that existed when gpurec attached. They were read once from the memory " +
			"of the processes, and equal the allocator's own statistics. Otherwise the reason why they are unknown. " +
			"Absent if no process with PyTorch ran before",
	},
	{
		Key: "earlier_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes of PyTorch's blocks from before the recording; absent if any allocator could not be read",
	},
	{Key: "earlier_blocks", Title: "", Unit: report.UnitCount, About: "number of these blocks"},
	{Key: "earlier_reserved_bytes", Title: "", Unit: report.UnitBytes, About: "bytes of their segments"},
	{
		Key: "earlier_refused", Title: "", Unit: report.UnitCount,
		About: "number of allocators whose blocks from before the recording are unknown",
	},
}

// Columns are the columns of the table that Append adds.
var Columns = []report.Column{
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device"},
	{
		Key:   "owner",
		Title: "OWNER",
		Unit:  report.UnitText,
		About: "PyTorch: blocks and segments of its caching allocator, read when gpurec attached. Driver: NVML's " +
			"memory of the process then, less PyTorch's segments. It is an upper bound of other allocations from " +
			"before, because it includes the context and loaded code",
	},
	{Key: "pool", Title: "POOL", Unit: report.UnitText, About: "pool of the blocks: default, or a private one"},
	{
		Key:   "segments_of",
		Title: "SEGMENTS OF",
		Unit:  report.UnitText,
		About: "segments that hold the blocks. Small: for requests of at most 1 MiB. Large: for others. Expandable " +
			"ones grow by mapped memory",
	},
	{
		Key:   "size",
		Title: "BLOCK SIZE",
		Unit:  report.UnitText,
		About: "sizes of the blocks; free: cached memory of the segments",
	},
	{Key: "blocks", Title: "BLOCKS", Unit: report.UnitCount, About: "number of blocks; for free memory, of holes"},
	{Key: "bytes", Title: "BYTES", Unit: report.UnitBytes, About: "bytes of the blocks when gpurec attached"},
	{
		Key: "segments", Title: "SEGMENTS", Unit: report.UnitCount,
		About: "number of segments, or mapped ranges of expandable segments, with such blocks",
	},
}

// sizeClasses are the upper limits of the classes of block sizes, bytes.
var sizeClasses = [...]int64{1 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20}

// freeClass is the class of holes; it comes after those of blocks.
const freeClass = len(sizeClasses) + 1

// classOf returns the class of a block.
func classOf(b *caching.EarlierBlock) int {
	if b.State == caching.PieceHole {
		return freeClass
	}
	for i, limit := range sizeClasses {
		if b.Bytes <= limit {
			return i
		}
	}
	return len(sizeClasses)
}

// className returns the name of a class.
func className(class int) string {
	switch class {
	case freeClass:
		return "free"
	case 0:
		return "up to " + units.FormatBytes(sizeClasses[0])
	case len(sizeClasses):
		return "over " + units.FormatBytes(sizeClasses[class-1])
	}
	return units.FormatBytes(sizeClasses[class-1]) + " to " + units.FormatBytes(sizeClasses[class])
}

// Append adds facts and a table about memory from before the recording, if a process had any. The filter selects
// processes and devices; its other conditions have no effect.
func Append(r *report.Report, t *timeline.Timeline, f *query.Filter) {
	states := slices.DeleteFunc(slices.Clone(t.Facts.EarlierStates), func(s *caching.EarlierState) bool {
		return !passes(f, s)
	})
	if len(states) == 0 {
		return
	}
	r.Facts = append(r.Facts, newFacts(t, states)...)
	if table := newTable(t, states); len(table.Rows) > 0 {
		r.Tables = append(r.Tables, table)
	}
}

// passes reports whether a state passes the filter. A state without a device is about all devices.
func passes(f *query.Filter, s *caching.EarlierState) bool {
	if s.Device < 0 {
		return len(f.Pids) == 0 || slices.Contains(f.Pids, s.Pid)
	}
	return f.PassesAllocator(s.Pid, s.Device)
}

// sums are the totals of some states.
type sums struct{ blocks, bytes, segments, reserved int64 }

func sumOf(states []*caching.EarlierState) (n sums) {
	for _, s := range states {
		n.reserved += s.Reserved
		n.segments += int64(len(s.Segments))
		for i := range s.Segments {
			for k := range s.Segments[i].Blocks {
				if b := &s.Segments[i].Blocks[k]; b.State != caching.PieceHole {
					n.blocks++
					n.bytes += b.Bytes
				}
			}
		}
	}
	return n
}

// newFacts returns the facts of states.
func newFacts(t *timeline.Timeline, states []*caching.EarlierState) []report.Fact {
	n := sumOf(states)
	var refused []string
	for _, s := range states {
		if s.Refused != "" {
			refused = append(refused, fmt.Sprintf("unknown for process %d: %s", s.Pid, s.Refused))
		}
	}
	var parts []string
	if len(refused) < len(states) {
		at := units.FormatDuration(max(0, states[0].AtNs-t.RecordingWindow().FromNs))
		parts = append(
			parts,
			fmt.Sprintf(
				"%s, %s, in %s of %s (PyTorch, read at +%s)",
				units.CountWithNoun(n.blocks, "block"),
				units.FormatBytes(
					n.bytes,
				),
				units.CountWithNoun(n.segments, "segment"),
				units.FormatBytes(n.reserved),
				at,
			),
		)
	}
	parts = append(parts, refused...)
	values := report.Values{
		"earlier": strings.Join(parts, "; "), "earlier_bytes": n.bytes, "earlier_blocks": n.blocks,
		"earlier_reserved_bytes": n.reserved, "earlier_refused": int64(len(refused)),
	}
	if len(refused) > 0 {
		for _, key := range []string{"earlier_bytes", "earlier_blocks", "earlier_reserved_bytes"} {
			values[key] = nil
		}
	}
	return report.NewFacts(FactColumns, values)
}

// group is a row of the table.
type group struct {
	pid, device  int32
	pool         int64
	isSmall      bool
	isExpandable bool
	class        int
}

// newTable returns the table of states, in order of process, device, pool and size.
func newTable(t *timeline.Timeline, states []*caching.EarlierState) report.Table {
	table := report.Table{
		Name: "earlier", Title: "memory from before the recording", Columns: slices.Clone(Columns), Secondary: true,
		HideFirst: []string{"segments", "segments_of"},
	}
	for _, s := range states {
		if s.Refused != "" {
			continue
		}
		groups := make(map[group]*sums)
		for i := range s.Segments {
			addSegment(groups, s, &s.Segments[i])
		}
		for _, g := range slices.SortedFunc(maps.Keys(groups), compareGroups) {
			n := groups[g]
			table.Add(report.Values{
				"pid": int64(g.pid), "device": t.OrdinalDeviceLabel(g.pid, g.device), "owner": "PyTorch",
				"pool": caching.FormatPool(g.pool), "segments_of": segmentsName(g), "size": className(g.class),
				"blocks": n.blocks, "bytes": n.bytes, "segments": n.segments,
			})
		}
		addDriverRow(&table, t, s)
	}
	processes.AddRankColumn(t, &table)
	return table
}

// addSegment adds the blocks of a segment to their groups.
func addSegment(groups map[group]*sums, s *caching.EarlierState, segment *caching.EarlierSegment) {
	seen := make(map[int]bool)
	for k := range segment.Blocks {
		b := &segment.Blocks[k]
		g := group{s.Pid, s.Device, segment.Pool, segment.IsSmall, segment.IsExpandable, classOf(b)}
		if groups[g] == nil {
			groups[g] = new(sums)
		}
		n := groups[g]
		n.blocks++
		n.bytes += b.Bytes
		if !seen[g.class] {
			seen[g.class] = true
			n.segments++
		}
	}
}

func compareGroups(a, b group) int {
	return cmp.Or(
		cmp.Compare(a.pool, b.pool),
		cmp.Compare(segmentsName(b), segmentsName(a)),
		cmp.Compare(a.class, b.class),
	)
}

// segmentsName returns the kind of a group's segments.
func segmentsName(g group) string {
	name := "large"
	if g.isSmall {
		name = "small"
	}
	if g.isExpandable {
		name += ", expandable"
	}
	return name
}

// addDriverRow adds the bound of the driver's other memory: NVML's first sample of the process, less PyTorch's segments.
func addDriverRow(table *report.Table, t *timeline.Timeline, s *caching.EarlierState) {
	f := &t.Facts
	metric, ok := f.Metrics.Ids[catalog.MetricProcessMemory]
	if !ok {
		return
	}
	for i := range f.ProcessSamples {
		sample := &f.ProcessSamples[i]
		if sample.Metric != metric || sample.Pid != s.Pid {
			continue
		}
		if ordinal, paired := f.OrdinalOf(sample.Pid, sample.Device); !paired || ordinal != s.Device {
			continue
		}
		table.Add(report.Values{
			"pid": int64(s.Pid), "device": t.OrdinalDeviceLabel(s.Pid, s.Device), "owner": "driver", "pool": nil,
			"segments_of": nil, "size": nil, "blocks": nil, "segments": nil,
			"bytes": max(0, units.RoundInt(sample.Value)-s.Reserved),
		}).Evidence = fmt.Sprintf("at most: NVML's %s at +%s, less PyTorch's %s; includes the context and loaded code",
			units.FormatBytes(units.RoundInt(sample.Value)),
			units.FormatDuration(max(0, sample.AtNs-t.RecordingWindow().FromNs)), units.FormatBytes(s.Reserved))
		return
	}
}
