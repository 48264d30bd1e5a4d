package memory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
)

// PoolColumns are the columns of PoolTable.
var PoolColumns = []report.Column{
	{
		Key: "device", Title: "DEVICE", Unit: report.UnitText,
		About: "GPU of the pool, or of the context whose call queried the pool",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitText, About: "process id"},
	{Key: "pool", Title: "POOL", Unit: report.UnitText, About: "handle of the memory pool"},
	{
		Key: "reserved_bytes", Title: "RESERVED", Unit: report.UnitBytes,
		About: "device memory that the pool holds, from the program's last cuMemPoolGetAttribute",
	},
	{
		Key: "used_bytes", Title: "USED", Unit: report.UnitBytes,
		About: "allocated bytes of the pool, from the program's last cuMemPoolGetAttribute; freed memory stays in " +
			"the pool until it is trimmed",
	},
	{
		Key: "at_ns", Title: "AT", Unit: report.UnitNs,
		About: "time of the program's last cuMemPoolGetAttribute, from the start of the recording",
	},
}

// PoolTable returns a table with one row per driver memory pool whose attributes the program
// queried in the window.
func PoolTable(t *timeline.Timeline, w query.Window, f *query.Filter) report.Table {
	table := report.Table{
		Name:      "pools",
		Title:     "memory pools, as the program last queried them",
		Columns:   PoolColumns,
		HideFirst: []string{"at_ns"},
	}
	pools := t.MemoryPools(w, f)
	keys := slices.SortedFunc(maps.Keys(pools), func(a, b timeline.MemoryPoolKey) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Pool, b.Pool))
	})
	for _, key := range keys {
		p := pools[key]
		table.Add(report.Values{
			"device":         t.OrdinalDeviceLabel(key.Pid, p.Device),
			"pid":            fmt.Sprint(key.Pid),
			"pool":           fmt.Sprintf("0x%x", uint64(key.Pool)),
			"reserved_bytes": queriedBytes(p.ReservedBytes),
			"used_bytes":     queriedBytes(p.UsedBytes),
			"at_ns":          max(0, p.AtNs-t.RecordingWindow().FromNs),
		})
	}
	processes.AddRankColumn(t, &table)
	return table
}

// queriedBytes returns a number of bytes, or nil if it is negative: the program did not query it.
func queriedBytes(bytes int64) any {
	if bytes < 0 {
		return nil
	}
	return bytes
}
