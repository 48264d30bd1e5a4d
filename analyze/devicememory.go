package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

var poolColumns = []Column{
	{"device", "DEVICE", UnitText, "GPU of the pool, or of the context that asked"},
	{"pid", "PID", UnitText, "process"},
	{"pool", "POOL", UnitText, "handle of the memory pool"},
	{"reserved_bytes", "RESERVED", UnitBytes, "memory the pool holds of the device, when the program last asked (cuMemPoolGetAttribute)"},
	{"used_bytes", "USED", UnitBytes, "of that what is allocated, when the program last asked; what is freed stays in the pool until it is trimmed"},
	{"at_ns", "AT", UnitNs, "when it last asked, from the recording's start"},
}

func poolTable(t *timeline.Timeline, w query.Window, f *query.Filter) Table {
	table := Table{Name: "pools", Title: "memory pools, as the program last asked", Columns: poolColumns, Spare: []string{"at_ns"}}
	pools := t.Pools(w, f)
	keys := slices.SortedFunc(maps.Keys(pools), func(a, b timeline.PoolKey) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Pool, b.Pool))
	})
	for _, key := range keys {
		p := pools[key]
		table.Rows = append(table.Rows, Row{Cells: []any{t.OrdinalLabel(key.Pid, p.Device), fmt.Sprint(key.Pid), fmt.Sprintf("0x%x", uint64(key.Pool)),
			asked(p.Reserved), asked(p.Used), max(0, p.AtNs-t.Recording().FromNs)}})
	}
	addRanks(t, &table)
	return table
}

// asked is a number of bytes, or nothing where nobody asked for it.
func asked(bytes int64) any {
	if bytes < 0 {
		return nil
	}
	return bytes
}
