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
	{Key: "device", Title: "DEVICE", Unit: report.UnitText, About: "GPU of the pool, or of the context that asked"},
	{Key: "pid", Title: "PID", Unit: report.UnitText, About: "process"},
	{Key: "pool", Title: "POOL", Unit: report.UnitText, About: "handle of the memory pool"},
	{
		Key: "reserved_bytes", Title: "RESERVED", Unit: report.UnitBytes,
		About: "memory the pool holds of the device, when the program last asked (cuMemPoolGetAttribute)",
	},
	{
		Key: "used_bytes", Title: "USED", Unit: report.UnitBytes,
		About: "of that what is allocated, when the program last asked; what is freed stays in the pool until it is " +
			"trimmed",
	},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "when it last asked, from the recording's start"},
}

// PoolTable returns a table with a row per memory pool of the driver whose attributes the program
// asked for in the window.
func PoolTable(t *timeline.Timeline, w query.Window, f *query.Filter) report.Table {
	table := report.Table{
		Name:      "pools",
		Title:     "memory pools, as the program last asked",
		Columns:   PoolColumns,
		HideFirst: []string{"at_ns"},
	}
	pools := t.Pools(w, f)
	keys := slices.SortedFunc(maps.Keys(pools), func(a, b timeline.PoolKey) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Pool, b.Pool))
	})
	for _, key := range keys {
		p := pools[key]
		table.Add(report.Values{
			"device":         t.OrdinalLabel(key.Pid, p.Device),
			"pid":            fmt.Sprint(key.Pid),
			"pool":           fmt.Sprintf("0x%x", uint64(key.Pool)),
			"reserved_bytes": asked(p.Reserved),
			"used_bytes":     asked(p.Used),
			"at_ns":          max(0, p.AtNs-t.Recording().FromNs),
		})
	}
	processes.AddRanks(t, &table)
	return table
}

// asked returns a number of bytes, nil if it is negative: the program did not ask for it.
func asked(bytes int64) any {
	if bytes < 0 {
		return nil
	}
	return bytes
}
