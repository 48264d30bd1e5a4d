package copies

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/hostmem"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// factColumns are the facts of the report.
var factColumns = []report.Column{
	{
		Key:   "result",
		Title: "result",
		Unit:  report.UnitText,
		About: "sentence that is set only if the window has no copies",
	},
}

// totalColumns are the totals of the report.
var totalColumns = []report.Column{
	{Key: "copies", Title: "copies", Unit: report.UnitCount, About: "copies that began in the window"},
	{
		Key: "bytes", Title: "copied", Unit: report.UnitBytes,
		About: "bytes of copies that neither failed nor were captured",
	},
	{
		Key: "host_sum_ns", Title: "host time", Unit: report.UnitNs,
		About: "time that threads spent in timed copy calls",
	},
	{Key: "timed_copies", Title: "timed", Unit: report.UnitCount, About: "copies with a known duration of the call"},
	{
		Key: "blocking_copies", Title: "blocking", Unit: report.UnitCount,
		About: "copies by a driver function without Async in its name",
	},
	{
		Key: "unknown_memory_copies", Title: "with unknown host memory", Unit: report.UnitCount,
		About: "copies whose host memory is not in recorded pinned or managed memory: it is pageable, or pinned " +
			"without a recorded call",
	},
	{
		Key: "bursts", Title: "bursts of small copies", Unit: report.UnitCount,
		About: "bursts of at least 50 copies below 4 KiB within 10 ms by one thread",
	},
	{
		Key:   "burst_copies",
		Title: "copies in bursts",
		Unit:  report.UnitCount,
		About: "number of copies that are part of a burst",
	},
	{Key: "errors", Title: "errors", Unit: report.UnitCount, About: "copies that returned an error"},
	{Key: "open_copies", Title: "open", Unit: report.UnitCount, About: "copies without a recorded return of the call"},
}

// computeTotals returns the totals of the report.
func (sc *Scan) computeTotals() []report.Fact {
	var sum copyStats
	var blocking, unknown, bursts, inBursts int64
	for key, s := range sc.groups {
		sum.merge(s)
		if key.mode == copyModeBlocking {
			blocking += s.copies
		}
		if key.host == hostmem.HostKindUnknown {
			unknown += s.copies
		}
	}
	for _, b := range sc.Bursts {
		bursts += b.Bursts
		inBursts += b.Copies
	}
	return report.NewFacts(totalColumns, report.Values{
		"copies":                sum.copies,
		"bytes":                 sum.bytes,
		"host_sum_ns":           sum.durations.SumNs,
		"timed_copies":          sum.durations.Count,
		"blocking_copies":       blocking,
		"unknown_memory_copies": unknown,
		"bursts":                bursts,
		"burst_copies":          inBursts,
		"errors":                sum.errors,
		"open_copies":           sum.open,
	})
}

// groupColumns are the columns of Scan.groupTable.
var groupColumns = []report.Column{
	{Key: "copies", Title: "COPIES", Unit: report.UnitCount, About: "number of copies that began in the window"},
	{
		Key: "bytes", Title: "BYTES", Unit: report.UnitBytes,
		About: "bytes of copies that neither failed nor were captured",
	},
	{
		Key:   "host_sum_ns",
		Title: "HOST SUM",
		Unit:  report.UnitNs,
		About: "time that threads spent in timed copy calls; an async call only enqueues the copy",
	},
	{Key: "timed_copies", Title: "TIMED", Unit: report.UnitCount, About: "copies with a known duration of the call"},
	{Key: "host_avg_ns", Title: "HOST AVG", Unit: report.UnitNs, About: "average duration of a timed copy call"},
	{
		Key: "host_p95_ns", Title: "P95", Unit: report.UnitNs,
		About: "95th percentile of the duration of timed copy calls; the error is below 0.8%",
	},
	{
		Key: "bandwidth_bytes_per_second", Title: "BANDWIDTH", Unit: report.UnitRatio,
		About: "bytes / host time of blocking copies of at least 64 KiB between host and device. Other calls return " +
			"before the copy ends, or take longer than the copy. The host time includes waiting for earlier work, so " +
			"the link may be faster",
	},
	{
		Key: "captured", Title: "CAPTURED", Unit: report.UnitCount,
		About: "copies that stream capture added to a graph and did not run",
	},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "copies that returned an error"},
	{Key: "open_copies", Title: "OPEN", Unit: report.UnitCount, About: "copies without a recorded return of the call"},
	{
		Key: "mode", Title: "MODE", Unit: report.UnitText,
		About: "async: by a driver function with Async in its name; blocking: by another one. An async copy with " +
			"pageable memory blocks too",
	},
	{
		Key: "host_memory", Title: "HOST MEMORY", Unit: report.UnitText,
		About: "kind of host memory. Pinned: in pinned or registered memory that was live. Managed. Unknown: in no " +
			"recorded memory, so it is pageable, or was pinned before the recording. Absent for copies within devices",
	},
	{
		Key: "size", Title: "SIZE", Unit: report.UnitText,
		About: "size class of the copy in bytes, without the upper bound",
	},
	{
		Key: "direction", Title: "DIRECTION", Unit: report.UnitText,
		About: "direction of the copy. HtoD: to the device. DtoH: to the host. DtoD: within or between devices. A is " +
			"an array, U an address of unknown kind. Unknown: cuMemcpy and cuMemcpyAsync, which have no direction",
	},
}

// groupTable returns a table with one row per direction, size class, host memory and mode.
func (sc *Scan) groupTable() report.Table {
	table := report.Table{
		Name: "copies", Title: "copies by time spent in them on the CPU", Columns: slices.Clone(groupColumns),
		HideFirst: []string{"host_p95_ns", "timed_copies", "host_avg_ns", "open_copies", "bandwidth_bytes_per_second"},
	}
	var captured, errors, open int64
	gpuNs := addGPUColumns(sc, &table, sc.groups)
	for key, s := range sc.groups {
		captured, errors, open = captured+s.captured, errors+s.errors, open+s.open
		table.Add(report.JoinValues(sc.gpuValues(s, gpuNs), report.Values{
			"copies":                     s.copies,
			"bytes":                      s.bytes,
			"host_sum_ns":                s.durations.Total(),
			"timed_copies":               s.durations.Count,
			"host_avg_ns":                s.durations.Average(),
			"host_p95_ns":                s.durations.Quantile(0.95),
			"bandwidth_bytes_per_second": s.bandwidth(),
			"captured":                   s.captured,
			"errors":                     s.errors,
			"open_copies":                s.open,
			"mode":                       key.mode,
			"host_memory":                units.TextOrNil(key.host),
			"size":                       copySizeClasses[key.size].name,
			"direction":                  key.direction,
		}))
	}
	for name, n := range map[string]int64{"captured": captured, "errors": errors, "open_copies": open} {
		if n == 0 {
			report.HideTitle(table.Columns, name)
		}
	}
	sortRows(&table, gpuNs, "host_sum_ns", "bytes", "copies", "direction", "size", "host_memory", "mode")
	return table
}

// burstColumns are the columns of Scan.burstTable.
var burstColumns = []report.Column{
	{
		Key: "bursts", Title: "BURSTS", Unit: report.UnitCount,
		About: "number of bursts: at least 50 copies below 4 KiB within 10 ms by one thread. A burst continues while " +
			"this rate holds",
	},
	{Key: "copies", Title: "COPIES", Unit: report.UnitCount, About: "number of copies in all bursts"},
	{Key: "copies_max", Title: "LARGEST", Unit: report.UnitCount, About: "number of copies in the largest burst"},
	{
		Key: "first_ns", Title: "FIRST", Unit: report.UnitNs,
		About: "time of the 50th copy of the first burst, from the start of the recording",
	},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "thread that made the copies"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site of the 50th copy; other call sites may take part in the burst",
	},
}

// burstTable returns a table with one row per thread and call site with bursts.
func (sc *Scan) burstTable() report.Table {
	table := report.Table{Name: "bursts", Title: "bursts of small copies", Columns: burstColumns, Secondary: true}
	start := sc.T.RecordingWindow().FromNs
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

// siteColumns are the columns of Scan.siteTable.
var siteColumns = []report.Column{
	{
		Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs,
		About: "time that threads spent in timed copy calls",
	},
	{Key: "copies", Title: "COPIES", Unit: report.UnitCount, About: "number of copies that began in the window"},
	{Key: "timed_copies", Title: "TIMED", Unit: report.UnitCount, About: "copies with a known duration of the call"},
	{
		Key: "bytes", Title: "BYTES", Unit: report.UnitBytes,
		About: "bytes of copies that neither failed nor were captured",
	},
	{
		Key: "bandwidth_bytes_per_second", Title: "BANDWIDTH", Unit: report.UnitRatio,
		About: "bytes / host time of blocking copies of at least 64 KiB between host and device",
	},
	{
		Key: "direction", Title: "DIRECTION", Unit: report.UnitText,
		About: "direction of the copies, as in the table copies",
	},
	{
		Key: "mode", Title: "MODE", Unit: report.UnitText,
		About: "mode of the copies: async or blocking, as in the table copies",
	},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the frame of the program's own code that made the call",
	},
}

// siteTable returns a table with one row per call site, direction and mode.
func (sc *Scan) siteTable() report.Table {
	table := report.Table{
		Name: "sites", Title: "copies by call site", Columns: siteColumns, Secondary: true,
		HideFirst: []string{"timed_copies"},
	}
	gpuNs := addGPUColumns(sc, &table, sc.Sites)
	for key, s := range sc.Sites {
		table.Add(report.JoinValues(sc.gpuValues(s, gpuNs), report.Values{
			"host_sum_ns":                s.durations.Total(),
			"copies":                     s.copies,
			"timed_copies":               s.durations.Count,
			"bytes":                      s.bytes,
			"bandwidth_bytes_per_second": s.bandwidth(),
			"direction":                  key.Direction,
			"mode":                       key.mode,
			"site":                       sc.Names.List[key.Site],
		}))
	}
	sortRows(&table, gpuNs, "host_sum_ns", "bytes", "copies", "site", "direction", "mode")
	return table
}
