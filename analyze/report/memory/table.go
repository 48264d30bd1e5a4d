package memory

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

var factColumns = []report.Column{
	{
		Key: "at", Title: "holders at", Unit: report.UnitText,
		About: "the moment of which holders are told: the peak of memory on all devices together, the end of the " +
			"window or a time; offset from the recording's start",
	},
	{Key: "at_ns", Title: "", Unit: report.UnitNs, About: "the same, from the recording's start"},
	{Key: "async", Title: "async memory", Unit: report.UnitText, About: "what is known of memory pools"},
	{
		Key: "reconcile", Title: "reconcile", Unit: report.UnitText,
		About: "why there is nothing to compare with (with --reconcile)",
	},
}

var totalColumns = []report.Column{
	{
		Key: "held_bytes", Title: "held", Unit: report.UnitBytes,
		About: "memory on devices that is live at that moment: neither host nor registered",
	},
	{
		Key: "peak_bytes", Title: "peak", Unit: report.UnitBytes,
		About: "most memory live on all devices together in the window",
	},
	{Key: "failed_allocs", Title: "failed allocs", Unit: report.UnitCount, About: "allocations that returned an error"},
}

// reconcileTotalColumns are the totals that Options.Reconcile adds.
var reconcileTotalColumns = []report.Column{
	{
		Key: "nvml_process_bytes", Title: "NVML", Unit: report.UnitBytes,
		About: "memory that the driver counts for the recorded processes, nearest samples to the moment (with " +
			"--reconcile)",
	},
	{
		Key: "attributed_pct", Title: "attributed %", Unit: report.UnitPercent,
		About: "share of nvml_process_bytes that is tracked memory, or context and modules (with --reconcile)",
	},
	{
		Key: "not_attributed_bytes", Title: "not attributed", Unit: report.UnitBytes,
		About: "the rest (with --reconcile); negative if more was allocated than the driver counts",
	},
}

// facts returns the facts of the report; reconciled says why there is nothing to reconcile with.
func (s *Scan) facts(reconciled string) []report.Fact {
	offset := s.atNs - s.t.Recording().FromNs
	name := map[query.Moment]string{query.AtPeak: "the peak, ", query.AtEnd: "the end, ", query.AtTime: ""}
	at := name[s.opt.At] + units.Duration(offset)
	pools := ""
	for place := range s.use.kinds {
		if place.Memory == format.MemoryAsync {
			pools = "lies in pools that keep what is freed; how much they hold of the device only a program that " +
				"asks for pool attributes lets know: see memory pools"
		}
	}
	return report.Facts(factColumns, report.Values{
		"at":        at,
		"at_ns":     offset,
		"async":     pools,
		"reconcile": reconciled,
	})
}

// levelSectionColumns explain the tables of levels and libraries.
var levelSectionColumns = slices.Concat(LevelColumns, []report.Column{levelCourse}, libraryColumns)

// levelCourse draws live memory over time.
var levelCourse = report.Column{
	Key:   "live_course_bytes",
	Title: "OVER TIME",
	Unit:  report.UnitCourse,
	About: "most live bytes in each twentieth of the window, from 0 to the highest of them",
}

// levelTable returns a table with a row per device and kind.
func (s *Scan) levelTable() report.Table {
	table := report.Table{
		Name:    "levels",
		Title:   "memory by device and kind",
		Columns: slices.Concat(LevelColumns, []report.Column{levelCourse}),
		Aside:   true,
		Spare:   []string{"peak_at_ns", levelCourse.Key},
	}
	for _, p := range s.use.places() {
		values := s.use.values(p)
		values[levelCourse.Key] = nil
		if c := s.courses[s.use.at(p)]; c != nil {
			values[levelCourse.Key] = c.Values()
		}
		table.Add(values)
	}
	return table
}

var libraryColumns = []report.Column{
	{
		Key: "library", Title: "LIBRARY", Unit: report.UnitText,
		About: "who asked the driver: the library or program of the innermost frame outside of libcuda and the CUDA " +
			"runtime",
	},
	{
		Key: "held_bytes", Title: "HELD", Unit: report.UnitBytes,
		About: "bytes live at the moment that holders are told of",
	},
}

// libraryTable returns a table with a row per device, kind and library.
func (s *Scan) libraryTable() report.Table {
	columns := report.Pick(
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
		Name:    "libraries",
		Title:   "memory by the library that asked for it",
		Columns: columns,
		Aside:   true,
		Spare:   []string{"peak_at_ns"},
	}
	held := make(map[libraryPlace]int64)
	for id := range s.held {
		place := libraryPlace{s.t.Origins.List[id].Device, s.t.Origins.Memory(int32(id)), s.library(int32(id))}
		held[place] += s.held[id].Bytes
	}
	start := s.t.Recording().FromNs
	for place, l := range s.levels {
		table.Add(report.Values{
			"device":      s.t.SharedLabel(place.device),
			"memory_kind": place.memory,
			"library":     place.library,
			"peak_bytes":  l.Peak,
			"peak_at_ns":  max(0, l.peakNs-start),
			"held_bytes":  held[place],
			"live_bytes":  l.Live,
			"allocs":      l.allocs,
		})
	}
	table.Sort("peak_bytes", "device", "memory_kind", "library")
	return table
}

var holderColumns = []report.Column{
	{Key: "bytes", Title: "HELD", Unit: report.UnitBytes, About: "bytes live at the moment"},
	{
		Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent,
		About: "share of HELD in all memory on devices that was live then; absent for memory of the host",
	},
	{Key: "blocks", Title: "COUNT", Unit: report.UnitCount, About: "allocations behind HELD"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the process"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "memory_kind", Title: "KIND", Unit: report.UnitText, About: "kind of memory, see levels"},
	{
		Key: "library", Title: "LIBRARY", Unit: report.UnitText,
		About: "who asked the driver: the library or program of the innermost frame outside of libcuda and the CUDA " +
			"runtime",
	},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "the frame of the program's own code that made the allocation",
	},
}

// holderKey identifies a row of the table of holders.
type holderKey struct {
	pid, device           int32
	memory, library, site string
}

// holder is the memory of a row; origin is the one with most of it, biggest bytes.
type holder struct {
	Holding
	origin  int32
	biggest int64
}

// holderTable returns a table with a row per process, device, kind, library and call site that
// holds memory.
func (s *Scan) holderTable() report.Table {
	table := report.Table{
		Name:    "holders",
		Title:   "who held memory",
		Columns: holderColumns,
		Spare:   []string{"blocks", "device", "pid"},
	}
	found := make(map[holderKey]*holder)
	for id := range s.held {
		h := s.held[id]
		if h.Blocks == 0 && h.Bytes == 0 {
			continue
		}
		o := &s.t.Origins.List[id]
		key := holderKey{o.Pid, o.Device, s.t.Origins.Memory(int32(id)), s.library(int32(id)), s.t.SiteLabel(int32(id))}
		if found[key] == nil {
			found[key] = new(holder)
		}
		one := found[key]
		one.Bytes += h.Bytes
		one.Blocks += h.Blocks
		if h.Bytes > one.biggest {
			one.origin, one.biggest = int32(id), h.Bytes
		}
	}
	all := s.heldBytes()
	for key, h := range found {
		var share any
		if !livemem.IsHost(key.memory) {
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
		})
		row.StackID, row.Evidence = s.t.Origins.List[h.origin].Stack, fmt.Sprintf(
			"%s of kind %s, asked for by %s",
			units.Plural(h.Blocks, "allocation"),
			key.memory,
			key.library,
		)
	}
	table.Sort("bytes", "site", "library", "memory_kind", "device", "-pid")
	for i := range table.Rows {
		table.Rows[i].Brief = i >= report.HolderRowsWithStack && !s.opt.AllStacks && !s.opt.AllFrames
	}
	processes.AddRanks(s.t, &table)
	return table
}
