package memory

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// factColumns are the columns of Scan.computeFacts.
var factColumns = []report.Column{
	{
		Key: "at", Title: "holders at", Unit: report.UnitText,
		About: "point in time whose holders the report shows: the peak of memory on all devices together, the end " +
			"of the window, or the time of --at. The offset is from the start of the recording",
	},
	{
		Key: "at_ns", Title: "", Unit: report.UnitNs,
		About: "point in time whose holders the report shows, from the start of the recording",
	},
	{
		Key:   "async",
		Title: "async memory",
		Unit:  report.UnitText,
		About: "limitation of this report for memory of driver pools",
	},
	{
		Key: "reconcile", Title: "reconcile", Unit: report.UnitText,
		About: "reason why --reconcile has no NVML samples to compare with",
	},
}

// totalColumns are the totals of the memory report.
var totalColumns = []report.Column{
	{
		Key: "held_bytes", Title: "held", Unit: report.UnitBytes,
		About: "live memory on devices at the reported time, without host and registered memory",
	},
	{
		Key: "peak_bytes", Title: "peak", Unit: report.UnitBytes,
		About: "highest live memory on all devices together in the window",
	},
	{Key: "failed_allocs", Title: "failed allocs", Unit: report.UnitCount, About: "allocations that returned an error"},
}

// reconcileTotalColumns are the totals that Options.Reconcile adds.
var reconcileTotalColumns = []report.Column{
	{
		Key: "nvml_process_bytes", Title: "NVML", Unit: report.UnitBytes,
		About: "NVML's memory of the recorded processes, from the samples nearest to the reported time (with " +
			"--reconcile)",
	},
	{
		Key: "attributed_pct", Title: "attributed %", Unit: report.UnitPercent,
		About: "share of nvml_process_bytes that is tracked memory, context and modules, or estimated for objects " +
			"(with --reconcile)",
	},
	{
		Key: "not_attributed_bytes", Title: "not attributed", Unit: report.UnitBytes,
		About: "nvml_process_bytes without attributed memory (with --reconcile); negative if recorded allocations " +
			"exceed it",
	},
}

// computeFacts returns the facts of the report. reconciled is the reason why --reconcile has no
// data, or "".
func (s *Scan) computeFacts(reconciled string) []report.Fact {
	offset := s.atNs - s.t.RecordingWindow().FromNs
	name := map[query.ReportMoment]string{
		query.MomentPeak:      "the peak, ",
		query.MomentEnd:       "the end, ",
		query.MomentGivenTime: "",
	}
	at := name[s.opt.At] + units.FormatDuration(offset)
	pools := ""
	for place := range s.levelScan.kinds {
		if place.Memory == format.MemoryAsync {
			pools = "memory of pools: a pool keeps freed memory, and its size is known only if the program queries " +
				"the pool's attributes; see memory pools"
		}
	}
	return report.NewFacts(factColumns, report.Values{
		"at":        at,
		"at_ns":     offset,
		"async":     pools,
		"reconcile": reconciled,
	})
}

// levelSectionColumns are the columns of the tables of levels and libraries, for --explain.
var levelSectionColumns = slices.Concat(LevelColumns, []report.Column{levelSeriesColumn}, libraryColumns)

// levelSeriesColumn draws live memory over time.
var levelSeriesColumn = report.Column{
	Key:   "live_course_bytes",
	Title: "OVER TIME",
	Unit:  report.UnitSeries,
	About: "highest live bytes in each twentieth of the window, drawn from 0 to the maximum",
}

// levelTable returns a table with one row per device and kind.
func (s *Scan) levelTable() report.Table {
	table := report.Table{
		Name:      "levels",
		Title:     "memory by device and kind",
		Columns:   slices.Concat(LevelColumns, []report.Column{levelSeriesColumn}),
		Secondary: true,
		HideFirst: []string{"peak_at_ns", levelSeriesColumn.Key},
	}
	for _, p := range s.levelScan.deviceKinds() {
		values := s.levelScan.levelValues(p)
		values[levelSeriesColumn.Key] = nil
		if c := s.series[s.levelScan.levelOf(p)]; c != nil {
			values[levelSeriesColumn.Key] = c.StepMaxima()
		}
		table.Add(values)
	}
	return table
}

// libraryColumns are the additional columns of Scan.libraryTable.
var libraryColumns = []report.Column{
	{
		Key: "library", Title: "LIBRARY", Unit: report.UnitText,
		About: "library that called the driver: the library or program of the innermost frame outside of libcuda " +
			"and the CUDA runtime",
	},
	{
		Key: "held_bytes", Title: "HELD", Unit: report.UnitBytes,
		About: "live bytes at the reported time",
	},
}

// libraryTable returns a table with one row per device, kind and library.
func (s *Scan) libraryTable() report.Table {
	columns := report.PickColumns(
		slices.Concat(LevelColumns, libraryColumns),
		"device",
		"memory_kind",
		"library",
		"peak_bytes",
		"peak_at_ns",
		"held_bytes",
		"live_bytes",
		"allocs",
	)
	table := report.Table{
		Name:      "libraries",
		Title:     "memory by the library that allocated it",
		Columns:   columns,
		Secondary: true,
		HideFirst: []string{"peak_at_ns"},
	}
	byLibrary := make(map[libraryMemoryKind]int64)
	for id := range s.holdings {
		place := libraryMemoryKind{
			s.t.Origins.List[id].Device,
			s.t.Origins.MemoryKindOf(int32(id)),
			s.libraryOfOrigin(int32(id)),
		}
		byLibrary[place] += s.holdings[id].Bytes
	}
	start := s.t.RecordingWindow().FromNs
	for place, l := range s.levels {
		table.Add(report.Values{
			"device":      s.t.SharedDeviceLabel(place.device),
			"memory_kind": place.memory,
			"library":     place.library,
			"peak_bytes":  l.Peak,
			"peak_at_ns":  max(0, l.peakNs-start),
			"held_bytes":  byLibrary[place],
			"live_bytes":  l.Live,
			"allocs":      l.allocs,
		})
	}
	table.Sort("peak_bytes", "device", "memory_kind", "library")
	return table
}

// holderColumns are the columns of Scan.holderTable.
var holderColumns = []report.Column{
	{Key: "bytes", Title: "HELD", Unit: report.UnitBytes, About: "live bytes at the reported time"},
	{
		Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent,
		About: "share of HELD in the live memory of all devices at the reported time; absent for host memory",
	},
	{Key: "blocks", Title: "COUNT", Unit: report.UnitCount, About: "number of live allocations, whose bytes are HELD"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "memory_kind", Title: "KIND", Unit: report.UnitText, About: "kind of memory, see levels"},
	{
		Key: "library", Title: "LIBRARY", Unit: report.UnitText,
		About: "library that called the driver: the library or program of the innermost frame outside of libcuda " +
			"and the CUDA runtime",
	},
	group.ViaColumn,
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the frame of the program's own code that allocated the memory",
	},
}

// holderKey identifies a row of the table of holders.
type holderKey struct {
	pid, device           int32
	memory, library, site string
	via                   string
}

// memoryHolder is the memory of one row. origin is the origin with the most bytes of it, biggest.
type memoryHolder struct {
	HeldMemory
	origin  int32
	biggest int64
}

// holderTable returns a table with one row per process, device, kind, library and call site that
// holds memory.
func (s *Scan) holderTable() report.Table {
	table := report.Table{
		Name:      "holders",
		Title:     "who held memory",
		Columns:   holderColumns,
		HideFirst: []string{"blocks", "device", "pid"},
	}
	found := make(map[holderKey]*memoryHolder)
	for id := range s.holdings {
		h := s.holdings[id]
		if h.Blocks == 0 && h.Bytes == 0 {
			continue
		}
		o := &s.t.Origins.List[id]
		key := holderKey{
			o.Pid,
			o.Device,
			s.t.Origins.MemoryKindOf(int32(id)),
			s.libraryOfOrigin(int32(id)),
			s.t.SiteOfOrigin(int32(id)),
			s.t.ViaOfOrigin(int32(id)),
		}
		if found[key] == nil {
			found[key] = new(memoryHolder)
		}
		rowHolder := found[key]
		rowHolder.Bytes += h.Bytes
		rowHolder.Blocks += h.Blocks
		if h.Bytes > rowHolder.biggest {
			rowHolder.origin, rowHolder.biggest = int32(id), h.Bytes
		}
	}
	all := s.heldBytes()
	for key, h := range found {
		var share any
		if !livemem.IsHostKind(key.memory) {
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
			"via":         units.TextOrNil(key.via),
		})
		o := &s.t.Origins.List[h.origin]
		row.StackID, row.ViaStackID = o.Stack, o.Via
		row.Evidence = fmt.Sprintf("%s of kind %s, allocated by %s", units.CountWithNoun(h.Blocks, "allocation"),
			key.memory, key.library)
		if s.t.Origins.IsEarlier(h.origin) {
			row.Evidence = "segments of PyTorch's allocator from before the recording, read when gpurec attached"
		}
		if key.via != "" {
			row.Evidence = "via " + key.via + "; " + row.Evidence
		}
	}
	table.Sort("bytes", "site", "library", "memory_kind", "device", "-pid", "via")
	table.DropEmptyColumn(group.ViaColumn.Key)
	for i := range table.Rows {
		table.Rows[i].Brief = i >= report.HolderRowsWithStack && !s.opt.AllStacks && !s.opt.AllFrames
	}
	processes.AddRankColumn(s.t, &table)
	return table
}
