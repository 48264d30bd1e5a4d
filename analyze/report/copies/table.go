package copies

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/hostmem"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

var factColumns = []report.Column{{Key: "result", Title: "result", Unit: report.UnitText, About: "set if there is " +
	"nothing to tell"}}

var totalColumns = []report.Column{
	{Key: "copies", Title: "copies", Unit: report.UnitCount, About: "copies that began in the window"},
	{
		Key: "bytes", Title: "copied", Unit: report.UnitBytes,
		About: "bytes of those that were made: neither failed nor captured",
	},
	{
		Key: "host_sum_ns", Title: "host time", Unit: report.UnitNs,
		About: "time that threads spent in copies whose duration is known",
	},
	{Key: "timed_copies", Title: "timed", Unit: report.UnitCount, About: "copies whose duration is known"},
	{Key: "blocking_copies", Title: "blocking", Unit: report.UnitCount, About: "copies that are called without Async"},
	{
		Key: "unknown_memory_copies", Title: "with unknown host memory", Unit: report.UnitCount,
		About: "copies with a host side that is in no pinned or managed memory of the recording: pageable, or " +
			"pinned out of its sight",
	},
	{
		Key: "bursts", Title: "bursts of small copies", Unit: report.UnitCount,
		About: "bursts of at least 50 copies below 4 KiB within 10 ms by one thread",
	},
	{Key: "burst_copies", Title: "copies in bursts", Unit: report.UnitCount, About: "copies in these"},
	{Key: "errors", Title: "errors", Unit: report.UnitCount, About: "copies that returned an error"},
	{Key: "open_copies", Title: "open", Unit: report.UnitCount, About: "copies that were not seen to return"},
}

func (sc *Scan) totals() []report.Fact {
	var sum copyStats
	var blocking, unknown, bursts, inBursts int64
	for key, s := range sc.groups {
		sum.merge(s)
		if key.mode == modeBlocking {
			blocking += s.copies
		}
		if key.host == hostmem.HostUnknown {
			unknown += s.copies
		}
	}
	for _, b := range sc.Bursts {
		bursts += b.Bursts
		inBursts += b.Copies
	}
	return report.Facts(totalColumns, report.Values{
		"copies":                sum.copies,
		"bytes":                 sum.bytes,
		"host_sum_ns":           sum.took.SumNs,
		"timed_copies":          sum.took.Count,
		"blocking_copies":       blocking,
		"unknown_memory_copies": unknown,
		"bursts":                bursts,
		"burst_copies":          inBursts,
		"errors":                sum.errors,
		"open_copies":           sum.open,
	})
}

var groupColumns = []report.Column{
	{Key: "copies", Title: "COPIES", Unit: report.UnitCount, About: "copies that began in the window"},
	{
		Key: "bytes", Title: "BYTES", Unit: report.UnitBytes,
		About: "bytes of those that were made: neither failed nor captured",
	},
	{
		Key:   "host_sum_ns",
		Title: "HOST SUM",
		Unit:  report.UnitNs,
		About: "time that threads spent in these calls, of TIMED ones; " +
			"of async copies it is the time to hand them over",
	},
	{Key: "timed_copies", Title: "TIMED", Unit: report.UnitCount, About: "copies whose duration is known"},
	{Key: "host_avg_ns", Title: "HOST AVG", Unit: report.UnitNs, About: "average of that"},
	{Key: "host_p95_ns", Title: "P95", Unit: report.UnitNs, About: "95% took no longer; off by less than 0.8%"},
	{
		Key: "bandwidth_bytes_per_second", Title: "BANDWIDTH", Unit: report.UnitRatio,
		About: "bytes by host time, of blocking copies between host and device of 64 KiB and more only: others " +
			"return before the copy is done, or their time is that of the call. Waiting for earlier work is in it: " +
			"the link may be faster",
	},
	{Key: "captured", Title: "CAPTURED", Unit: report.UnitCount, About: "copies that were put into a graph, not made"},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "copies that returned an error"},
	{Key: "open_copies", Title: "OPEN", Unit: report.UnitCount, About: "copies that were not seen to return"},
	{
		Key: "mode", Title: "MODE", Unit: report.UnitText,
		About: "async: a function with Async in its name; blocking: one without. From pageable memory an async copy " +
			"blocks too",
	},
	{
		Key: "host_memory", Title: "HOST MEMORY", Unit: report.UnitText,
		About: "pinned: inside of pinned or registered memory that was live then; managed; unknown: in none that " +
			"the recording knows, so pageable, or pinned before it began; absent for copies on devices",
	},
	{Key: "size", Title: "SIZE", Unit: report.UnitText, About: "bytes of the copy, upper bound not included"},
	{
		Key: "direction", Title: "DIRECTION", Unit: report.UnitText,
		About: "HtoD to the device, DtoH to the host, DtoD, with A for arrays, U where only the driver knows; " +
			"unknown for cuMemcpy and cuMemcpyAsync, which do not say",
	},
}

// table has a row per direction, size, memory and mode.
func (sc *Scan) table() report.Table {
	table := report.Table{
		Name: "copies", Title: "copies by time spent in them on the CPU", Columns: slices.Clone(groupColumns),
		HideFirst: []string{"host_p95_ns", "timed_copies", "host_avg_ns", "open_copies", "bandwidth_bytes_per_second"},
	}
	var captured, errors, open int64
	for key, s := range sc.groups {
		captured, errors, open = captured+s.captured, errors+s.errors, open+s.open
		table.Add(report.Values{
			"copies":                     s.copies,
			"bytes":                      s.bytes,
			"host_sum_ns":                s.took.Total(),
			"timed_copies":               s.took.Count,
			"host_avg_ns":                s.took.Avg(),
			"host_p95_ns":                s.took.At(0.95),
			"bandwidth_bytes_per_second": s.rate(),
			"captured":                   s.captured,
			"errors":                     s.errors,
			"open_copies":                s.open,
			"mode":                       key.mode,
			"host_memory":                units.Known(key.host),
			"size":                       copySizes[key.size].name,
			"direction":                  key.direction,
		})
	}
	for name, n := range map[string]int64{"captured": captured, "errors": errors, "open_copies": open} {
		if n == 0 {
			report.HideTitle(table.Columns, name)
		}
	}
	table.Sort("host_sum_ns", "bytes", "copies", "direction", "size", "host_memory", "mode")
	return table
}

var burstColumns = []report.Column{
	{
		Key: "bursts", Title: "BURSTS", Unit: report.UnitCount,
		About: "bursts: at least 50 copies below 4 KiB within 10 ms by one thread; a burst goes on while that holds",
	},
	{Key: "copies", Title: "COPIES", Unit: report.UnitCount, About: "copies in them"},
	{Key: "copies_max", Title: "LARGEST", Unit: report.UnitCount, About: "copies of the largest one"},
	{
		Key: "first_ns", Title: "FIRST", Unit: report.UnitNs,
		About: "when the first one was noticed, at its 50th copy, from the recording's start",
	},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "thread that copied"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "the place in the program of that copy; others may take part in a burst",
	},
}

// burstTable has a row per thread and call site with bursts.
func (sc *Scan) burstTable() report.Table {
	table := report.Table{Name: "bursts", Title: "bursts of small copies", Columns: burstColumns, Secondary: true}
	start := sc.T.Recording().FromNs
	for key, b := range sc.Bursts {
		row := table.Add(report.Values{
			"bursts":     b.Bursts,
			"copies":     b.Copies,
			"copies_max": b.Most,
			"first_ns":   b.FirstNs - start,
			"thread":     sc.T.ThreadLabel(key.Thread),
			"site":       sc.Names.List[key.Site],
		})
		row.StackID = b.Stack
	}
	table.Sort("copies", "thread", "site")
	return table
}

var siteColumns = []report.Column{
	{
		Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs,
		About: "time that threads spent in these calls, of timed ones",
	},
	{Key: "copies", Title: "COPIES", Unit: report.UnitCount, About: "copies that began in the window"},
	{Key: "timed_copies", Title: "TIMED", Unit: report.UnitCount, About: "copies whose duration is known"},
	{Key: "bytes", Title: "BYTES", Unit: report.UnitBytes, About: "bytes of those that were made"},
	{Key: "bandwidth_bytes_per_second", Title: "BANDWIDTH", Unit: report.UnitRatio, About: "as above"},
	{Key: "direction", Title: "DIRECTION", Unit: report.UnitText, About: "as above"},
	{Key: "mode", Title: "MODE", Unit: report.UnitText, About: "as above"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "the frame of the program's own code that made the call",
	},
}

// siteTable has a row per call site, direction and mode.
func (sc *Scan) siteTable() report.Table {
	table := report.Table{
		Name: "sites", Title: "copies by place in the program", Columns: siteColumns, Secondary: true,
		HideFirst: []string{"timed_copies"},
	}
	for key, s := range sc.Sites {
		table.Add(report.Values{
			"host_sum_ns":                s.took.Total(),
			"copies":                     s.copies,
			"timed_copies":               s.took.Count,
			"bytes":                      s.bytes,
			"bandwidth_bytes_per_second": s.rate(),
			"direction":                  key.Direction,
			"mode":                       key.mode,
			"site":                       sc.Names.List[key.Site],
		})
	}
	table.Sort("host_sum_ns", "bytes", "copies", "site", "direction", "mode")
	return table
}
