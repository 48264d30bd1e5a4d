package streams

import (
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
)

// factColumns are the facts of the report.
var factColumns = []report.Column{
	{
		Key: "result", Title: "result", Unit: report.UnitText,
		About: "reason why work may not overlap; absent if there is none",
	},
}

// computeFacts returns the meaning of the findings as one sentence.
func computeFacts(findings map[streamKey]overlapFinding) []report.Fact {
	count := make(map[overlapFinding]int)
	for _, f := range findings {
		count[f]++
	}
	result := ""
	switch {
	case count[findingLegacyDefault] > 0:
		result = "the legacy default stream and other streams have work: they wait for each other, unless the others " +
			"were created with CU_STREAM_NON_BLOCKING, as PyTorch does"
	case count[findingOnlyStream] > 0:
		result = "only one stream of a process has work, so its operations run one after the other"
	}
	return report.NewFacts(factColumns, report.Values{"result": result})
}

// totalColumns are the totals of the report.
var totalColumns = []report.Column{
	{Key: "streams", Title: "streams", Unit: report.UnitCount, About: "number of streams with calls in the window"},
	{
		Key: "operations", Title: "operations", Unit: report.UnitCount,
		About: "launches, copies and memsets of all streams",
	},
	{
		Key: "may_hold_up", Title: "may hold others up", Unit: report.UnitCount,
		About: "rows with the finding 'may hold others up'",
	},
	{Key: "only_one", Title: "only one", Unit: report.UnitCount, About: "rows with the finding 'only one'"},
}

// computeTotals returns the totals of the report.
func (sc *scan) computeTotals(findings map[streamKey]overlapFinding) []report.Fact {
	count := make(map[overlapFinding]int64)
	for _, f := range findings {
		count[f]++
	}
	var operations int64
	for _, w := range sc.streams {
		operations += w.operationCount()
	}
	return report.NewFacts(totalColumns, report.Values{
		"streams":     int64(len(sc.streams)),
		"operations":  operations,
		"may_hold_up": count[findingLegacyDefault],
		"only_one":    count[findingOnlyStream],
	})
}

// streamColumns are the columns of scan.streamTable.
var streamColumns = []report.Column{
	{
		Key: "operations", Title: "OPERATIONS", Unit: report.UnitCount,
		About: "launches, copies and memsets in the window that neither failed nor were captured",
	},
	{
		Key: "operations_pct", Title: "OF DEVICE", Unit: report.UnitPercent,
		About: "share of OPERATIONS in all operations of the process on the device",
	},
	{Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount, About: "kernel and graph launches in OPERATIONS"},
	{Key: "copies", Title: "COPIES", Unit: report.UnitCount, About: "copies in OPERATIONS"},
	{Key: "copied_bytes", Title: "COPIED", Unit: report.UnitBytes, About: "bytes of COPIES"},
	{Key: "fills", Title: "FILLS", Unit: report.UnitCount, About: "memsets in OPERATIONS"},
	{
		Key: "captured", Title: "CAPTURED", Unit: report.UnitCount,
		About: "operations that stream capture added to a graph; they run when the graph is launched",
	},
	{
		Key: "waits", Title: "WAITS", Unit: report.UnitCount,
		About: "returned cuStreamSynchronize calls for the stream",
	},
	{Key: "wait_sum_ns", Title: "WAITED", Unit: report.UnitNs, About: "total duration of WAITS"},
	{
		Key: "threads", Title: "THREADS", Unit: report.UnitCount,
		About: "number of threads that used the stream or waited for it",
	},
	{
		Key: "first_ns", Title: "", Unit: report.UnitNs,
		About: "start of the first call on the stream, from the start of the recording",
	},
	{
		Key: "last_ns", Title: "", Unit: report.UnitNs,
		About: "start of the last call on the stream, from the start of the recording",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "CUDA device of the stream"},
	{
		Key: "stream", Title: "STREAM", Unit: report.UnitText,
		About: "handle of the stream; legacy default is stream 0 of programs built without per-thread default streams",
	},
	{
		Key: "finding", Title: "FINDING", Unit: report.UnitText,
		About: "reason why work may not overlap. May hold others up: the legacy default stream and other streams " +
			"have work; they wait for each other unless created with CU_STREAM_NON_BLOCKING. Only one: no other " +
			"stream of the process has work on the device",
	},
}

// streamTable returns a table with one row per stream.
func (sc *scan) streamTable(findings map[streamKey]overlapFinding) report.Table {
	table := report.Table{
		Name:      "streams",
		Columns:   streamColumns,
		HideFirst: []string{"captured", "fills", "copied_bytes", "waits"},
		Keys:      []string{"device", "stream"},
	}
	start, ofDevice := sc.T.RecordingWindow().FromNs, sc.sumOperationsByDevice()
	for key, w := range sc.streams {
		table.Add(report.Values{
			"operations":     w.operationCount(),
			"operations_pct": units.Percent(w.operationCount(), ofDevice[key.deviceOf()]),
			"launches":       w.launches,
			"copies":         w.copies,
			"copied_bytes":   w.copiedBytes,
			"fills":          w.fills,
			"captured":       w.captured,
			"waits":          w.waits.Count,
			"wait_sum_ns":    w.waits.SumNs,
			"threads":        int64(len(w.threads)),
			"first_ns":       w.firstNs - start,
			"last_ns":        w.lastNs - start,
			"pid":            int64(key.pid),
			"device":         sc.T.DeviceLabel(key.device),
			"stream":         streamLabel(key.handle),
			"finding":        string(findings[key]),
		})
	}
	table.Sort("operations", "-pid", "device", "stream")
	processes.AddRankColumn(sc.T, &table)
	return table
}

// streamLabel returns the name of a stream as users know it.
func streamLabel(handle int64) string {
	switch handle {
	case legacyStreamHandle:
		return "legacy default"
	case perThreadStreamHandle:
		return "default of each thread"
	}
	return query.StreamName(handle)
}
