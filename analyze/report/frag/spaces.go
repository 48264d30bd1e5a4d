package frag

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// spaceColumns are the columns of Scan.spaceTable.
var spaceColumns = []report.Column{
	{
		Key: "verdict", Title: "VERDICT", Unit: report.UnitText,
		About: "verdict on the space. Fragmented: at least 20% of the reserved bytes, and at least 20 MiB, cannot " +
			"return to the driver because of live blocks. Grows: as much is unused, and the cache grows (see " +
			"cache_growth). Idle: a pool has as much unused memory. Fine: none of these. Addresses: reserved " +
			"addresses, whose holes hold no memory",
	},
	{
		Key: "reserved_bytes", Title: "RESERVED", Unit: report.UnitBytes,
		About: "bytes held from the driver; for reserved addresses their length; for pools by the program's last query",
	},
	{
		Key: "active_bytes", Title: "ACTIVE", Unit: report.UnitBytes,
		About: "bytes of blocks that the program holds or a stream uses; for reserved addresses mapped bytes; for " +
			"pools allocated bytes",
	},
	{
		Key: "unused_bytes", Title: "UNUSED", Unit: report.UnitBytes,
		About: "bytes of holes: reserved bytes that are not active",
	},
	{
		Key: "kept_bytes", Title: "KEPT", Unit: report.UnitBytes,
		About: "stranded bytes: holes that cannot return to the driver because of a live block. In segments these " +
			"are all holes of a segment with a block. In expandable segments these are holes without whole steps of " +
			"20 MiB (2 MiB in small pools)",
	},
	{
		Key: "external_ratio", Title: "EXTERNAL", Unit: report.UnitRatio,
		About: "external fragmentation index: 1 - largest hole / all holes",
	},
	{Key: "largest_gap_bytes", Title: "LARGEST", Unit: report.UnitBytes, About: "size of the largest hole"},
	{
		Key: "blowup_ratio", Title: "BLOW-UP", Unit: report.UnitRatio,
		About: "reserved / active; absent if nothing is active",
	},
	{
		Key: "unusable_pct", Title: "UNUSABLE%", Unit: report.UnitPercent,
		About: "share of UNUSED that cannot serve the request: the holes are too small, or in segments of another " +
			"size class. Holes of other streams count as usable",
	},
	{
		Key: "request_bytes", Title: "", Unit: report.UnitBytes,
		About: "size of the request for UNUSABLE%: --request, or else the program's largest request",
	},
	{
		Key: "saved_bytes", Title: "SAVED", Unit: report.UnitBytes,
		About: "part of KEPT that expandable segments could return at most: whole 2 MiB pages in holes " +
			"(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True). Absent if they are on",
	},
	{
		Key: "saved_least_bytes", Title: "", Unit: report.UnitBytes,
		About: "part of KEPT that expandable segments could return at least, with the same block addresses. These " +
			"are whole steps of 20 MiB, by which PyTorch maps and unmaps memory for blocks above 1 MiB",
	},
	{
		Key: "inactive_split_bytes", Title: "", Unit: report.UnitBytes,
		About: "holes in segments with blocks, without expandable segments; PyTorch's inactive_split_bytes",
	},
	{
		Key: "internal_bytes", Title: "", Unit: report.UnitBytes,
		About: "internal fragmentation: block sizes minus requested sizes",
	},
	{
		Key: "extents", Title: "", Unit: report.UnitCount,
		About: "number of segments, of contiguous ranges of expandable segments, or of reservations",
	},
	{Key: "blocks", Title: "", Unit: report.UnitCount, About: "number of blocks, or of mappings"},
	{Key: "gaps", Title: "", Unit: report.UnitCount, About: "number of holes in the memory space"},
	{
		Key: "unseen_bytes", Title: "", Unit: report.UnitBytes,
		About: "segments that the same allocator reserved before the recording, and that were not read when gpurec " +
			"attached; all other numbers exclude them",
	},
	{
		Key: "at_ns", Title: "AT", Unit: report.UnitNs,
		About: "time of these numbers, from the start of the recording; see --at",
	},
	{
		Key: "confidence", Title: "", Unit: report.UnitText,
		About: "confidence in the verdict: high, medium or low; see confidence_reasons",
	},
	{
		Key: "confidence_reasons", Title: "", Unit: report.UnitText,
		About: "reasons that lower the confidence: lost events, a model that differs from the allocator's " +
			"statistics, segments from before the recording",
	},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{
		Key: "space", Title: "WHERE", Unit: report.UnitText,
		About: "kind of space: segments or expandable segments of PyTorch's allocator, by pool; reserved addresses; " +
			"or a memory pool of the driver",
	},
}

// spaceTable returns a table with one row per space and memory pool, most stranded bytes first.
func (s *Scan) spaceTable(findings []spaceFinding, level string, reasons []string) report.Table {
	table := report.Table{
		Name:    "spaces",
		Title:   "memory that can be fragmented",
		Columns: spaceColumns,
		HideFirst: []string{
			"at_ns", "pid", "device", "largest_gap_bytes", "unused_bytes", "saved_bytes", "blowup_ratio",
		},
	}
	for i := range findings {
		s.addSpaceRow(&table, &findings[i])
	}
	s.addPoolRows(&table, level, reasons)
	table.Sort("kept_bytes", "reserved_bytes")
	return table
}

// addSpaceRow adds the row of a space.
func (s *Scan) addSpaceRow(table *report.Table, f *spaceFinding) {
	sp, o := f.MemorySpace, f.owner
	row := table.Add(report.Values{
		"verdict":              f.verdict,
		"reserved_bytes":       sp.Reserved,
		"active_bytes":         sp.Active,
		"unused_bytes":         sp.Unused,
		"kept_bytes":           sp.Stranded,
		"external_ratio":       sp.ExternalFragmentation(),
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
		"gaps":                 int64(len(sp.Holes)),
		"unseen_bytes":         o.snapshot.unseen,
		"at_ns":                o.snapshot.atNs - s.t.RecordingWindow().FromNs,
		"confidence":           f.level,
		"confidence_reasons":   f.reasons,
		"device":               s.t.OrdinalDeviceLabel(o.pid, o.device),
		"pid":                  int64(o.pid),
		"space":                f.label,
	})
	row.Evidence, row.Brief = f.evidenceText(), f.verdict == verdictFine && len(s.owners) > 1
}

// addPoolRows adds one row per driver memory pool whose size the program queried.
func (s *Scan) addPoolRows(table *report.Table, level string, reasons []string) {
	pools := s.t.MemoryPools(s.window, &s.opt.Filter)
	for _, key := range slices.SortedFunc(maps.Keys(pools), func(a, b timeline.MemoryPoolKey) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Pool, b.Pool))
	}) {
		p := pools[key]
		s.callers.AddCaller(key.Pid, key.Pid, p.Device, 0)
		if p.ReservedBytes < 0 || p.UsedBytes < 0 || p.ReservedBytes < s.opt.MinBytes {
			continue
		}
		unused := max(0, p.ReservedBytes-p.UsedBytes)
		var blowUp any
		if p.UsedBytes > 0 {
			blowUp = float64(p.ReservedBytes) / float64(p.UsedBytes)
		}
		row := table.Add(report.Values{
			"verdict":              classifyPool(unused, p.ReservedBytes),
			"reserved_bytes":       p.ReservedBytes,
			"active_bytes":         p.UsedBytes,
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
			"at_ns":                max(0, p.AtNs-s.t.RecordingWindow().FromNs),
			"confidence":           level,
			"confidence_reasons":   reasons,
			"device":               s.t.OrdinalDeviceLabel(key.Pid, p.Device),
			"pid":                  int64(key.Pid),
			"space":                fmt.Sprintf("%s 0x%x", spaceKindPool, uint64(key.Pool)),
		})
		row.Evidence = fmt.Sprintf("the pool had %s unused at the program's last query; the driver does not report "+
			"how it is divided; confidence %s", units.FormatBytes(unused), level)
	}
}
