package earlier

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
)

// FactColumns are the columns of Scan.Facts.
var FactColumns = slices.Concat(refusedColumns, liveColumns)

// liveColumns are the columns of facts that are absent if no state was read.
var liveColumns = []report.Column{
	{
		Key: "earlier_live", Title: "of these live at end", Unit: report.UnitText,
		About: "number and bytes of these blocks that the program has not freed at the end of the window",
	},
	{
		Key: "earlier_limit", Title: "memory limit", Unit: report.UnitText,
		About: "limit of reserved bytes that the program had set when gpurec attached, as with " +
			"torch.cuda.set_per_process_memory_fraction; absent if none was set, or if it is unknown",
	},
	{
		Key: "earlier_live_bytes", Title: "", Unit: report.UnitBytes,
		About: "bytes of these blocks that the program has not freed at the end of the window",
	},
	{Key: "earlier_live_blocks", Title: "", Unit: report.UnitCount, About: "number of these unfreed blocks"},
}

var refusedColumns = []report.Column{
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
		Key: "stream", Title: "STREAM", Unit: report.UnitText,
		About: "CUDA stream of the blocks; its column is hidden if it is the default stream for all",
	},
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
		Key: "live_bytes", Title: "LIVE AT END", Unit: report.UnitBytes,
		About: "bytes of those of the blocks that the program has not freed at the end of the window",
	},
	{Key: "live_blocks", Title: "", Unit: report.UnitCount, About: "number of these unfreed blocks"},
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
	return sizeClassOf(b.Bytes)
}

func sizeClassOf(bytes int64) int {
	for i, limit := range sizeClasses {
		if bytes <= limit {
			return i
		}
	}
	return len(sizeClasses)
}

// SizeClass returns the name of the class of a block's size.
func SizeClass(bytes int64) string { return className(sizeClassOf(bytes)) }

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

// Append adds facts and a table about memory from before the recording, if a process had any.
func (s *Scan) Append(r *report.Report) {
	r.Facts = append(r.Facts, s.Facts()...)
	if len(s.states) == 0 {
		return
	}
	if table := s.newTable(); len(table.Rows) > 0 {
		r.Tables = append(r.Tables, table)
	}
}

// Facts returns the facts about memory from before the recording; none if no process had any.
func (s *Scan) Facts() []report.Fact {
	if len(s.states) == 0 {
		return nil
	}
	n := sumOf(s.states)
	var refused []string
	for _, l := range s.states {
		if l.Refused != "" {
			refused = append(refused, fmt.Sprintf("unknown for process %d: %s", l.Pid, l.Refused))
		}
	}
	var parts []string
	if len(refused) < len(s.states) {
		at := units.FormatDuration(max(0, s.states[0].readNs-s.t.RecordingWindow().FromNs))
		parts = append(parts, fmt.Sprintf("%s, %s, in %s of %s (PyTorch, read at +%s)",
			units.CountWithNoun(n.blocks, "block"), units.FormatBytes(n.bytes),
			units.CountWithNoun(n.segments, "segment"), units.FormatBytes(n.reserved), at))
	}
	values := report.Values{
		"earlier": strings.Join(append(parts, refused...), "; "), "earlier_bytes": n.bytes, "earlier_blocks": n.blocks,
		"earlier_reserved_bytes": n.reserved, "earlier_refused": int64(len(refused)),
	}
	if len(refused) > 0 {
		for _, key := range []string{"earlier_bytes", "earlier_blocks", "earlier_reserved_bytes"} {
			values[key] = nil
		}
	}
	if len(refused) == len(s.states) {
		return report.NewFacts(refusedColumns, values)
	}
	values["earlier_live"] = fmt.Sprintf("%s, %s", units.CountWithNoun(n.liveBlocks, "block"),
		units.FormatBytes(n.liveBytes))
	values["earlier_live_bytes"], values["earlier_live_blocks"] = n.liveBytes, n.liveBlocks
	values["earlier_limit"] = units.TextOrNil(s.limits())
	return report.NewFacts(FactColumns, values)
}

// limits returns the limits of reserved bytes that programs had set, as text; "" if none is known.
func (s *Scan) limits() string {
	var list []string
	for _, l := range s.states {
		if text := units.FormatBytes(l.limit); l.limit > 0 && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return strings.Join(list, ", ")
}

// group is a row of the table.
type group struct {
	pid, device  int32
	pool, stream int64
	isSmall      bool
	isExpandable bool
	class        int
}

// newTable returns the table of states, in order of process, device, pool, stream and size.
func (s *Scan) newTable() report.Table {
	table := report.Table{
		Name: "earlier", Title: "memory from before the recording", Columns: slices.Clone(Columns), Secondary: true,
		HideFirst: []string{"segments", "segments_of", "stream"},
	}
	hasStreams := false
	for _, l := range s.states {
		if l.Refused != "" {
			continue
		}
		groups := make(map[group]*sums)
		for i := range l.Segments {
			addSegment(groups, l, &l.Segments[i])
		}
		for _, g := range slices.SortedFunc(maps.Keys(groups), compareGroups) {
			n := groups[g]
			values := report.Values{
				"pid":    int64(g.pid),
				"device": s.t.OrdinalDeviceLabel(g.pid, g.device),
				"owner":  "PyTorch",
				"pool": caching.FormatPool(
					g.pool,
				),
				"stream":      query.StreamName(g.stream),
				"segments_of": segmentsName(g),
				"size":        className(g.class),
				"blocks":      n.blocks,
				"bytes":       n.bytes,
				"segments":    n.segments,
				"live_blocks": n.liveBlocks,
				"live_bytes":  n.liveBytes,
			}
			if g.class == freeClass {
				values["live_blocks"], values["live_bytes"] = nil, nil
			}
			table.Add(values)
			hasStreams = hasStreams || g.stream != 0
		}
		s.addDriverRow(&table, l)
	}
	if !hasStreams {
		report.HideTitle(table.Columns, "stream")
	}
	processes.AddRankColumn(s.t, &table)
	return table
}

// addSegment adds the blocks of a segment to their groups.
func addSegment(groups map[group]*sums, l *state, segment *caching.EarlierSegment) {
	seen := make(map[int]bool)
	for k := range segment.Blocks {
		b := &segment.Blocks[k]
		if !l.isOld(b) {
			continue
		}
		g := group{
			l.Pid, l.Device, segment.Pool, segment.Stream, segment.IsSmall, segment.IsExpandable, classOf(b),
		}
		if groups[g] == nil {
			groups[g] = new(sums)
		}
		groups[g].add(l, b)
		if !seen[g.class] {
			seen[g.class] = true
			groups[g].segments++
		}
	}
}

func compareGroups(a, b group) int {
	return cmp.Or(
		cmp.Compare(a.pool, b.pool),
		cmp.Compare(a.stream, b.stream),
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
func (s *Scan) addDriverRow(table *report.Table, l *state) {
	t, f := s.t, &s.t.Facts
	metric, ok := f.Metrics.Ids[catalog.MetricProcessMemory]
	if !ok {
		return
	}
	for i := range f.ProcessSamples {
		sample := &f.ProcessSamples[i]
		if sample.Metric != metric || sample.Pid != l.Pid {
			continue
		}
		if ordinal, paired := f.OrdinalOf(sample.Pid, sample.Device); !paired || ordinal != l.Device {
			continue
		}
		table.Add(report.Values{
			"pid": int64(l.Pid), "device": t.OrdinalDeviceLabel(l.Pid, l.Device), "owner": "driver", "pool": nil,
			"stream": nil, "segments_of": nil, "size": nil, "blocks": nil, "segments": nil,
			"live_blocks": nil, "live_bytes": nil,
			"bytes": max(0, units.RoundInt(sample.Value)-l.Reserved),
		}).Evidence = fmt.Sprintf("at most: NVML's %s at +%s, less PyTorch's %s; includes the context and loaded code",
			units.FormatBytes(units.RoundInt(sample.Value)),
			units.FormatDuration(max(0, sample.AtNs-t.RecordingWindow().FromNs)), units.FormatBytes(l.Reserved))
		return
	}
}
