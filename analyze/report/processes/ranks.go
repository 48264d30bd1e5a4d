package processes

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
)

// RankColumn is the column that AddRankColumn inserts.
var RankColumn = report.Column{
	Key: "rank", Title: "RANK", Unit: report.UnitID,
	About: "rank of the process in its job; absent if no process has a known rank",
}

// AddRankColumn inserts RankColumn behind the column "pid" of each table, if any recorded process
// has a rank. It skips tables without a column "pid" and tables that already have a column "rank".
func AddRankColumn(t *timeline.Timeline, tables ...*report.Table) {
	if !t.Facts.HasRanks {
		return
	}
	for _, table := range tables {
		at := report.ColumnIndex(table, "pid")
		if at < 0 || report.ColumnIndex(table, RankColumn.Key) >= 0 {
			continue
		}
		column := RankColumn
		if table.Columns[at].Title == "" {
			column.Title = ""
		}
		table.InsertColumn("pid", column, func(r *report.Row) any { return rankOfProcess(t, table.Cell(r, "pid")) })
		if spare := slices.Index(table.HideFirst, "pid"); spare >= 0 {
			table.HideFirst = slices.Insert(slices.Clone(table.HideFirst), spare+1, RankColumn.Key)
		}
		if len(table.Keys) > 0 { // pids differ between recordings, ranks do not
			table.Keys = append(slices.Clone(table.Keys), RankColumn.Key)
		}
	}
}

// rankOfProcess returns the rank of the process whose id is in a cell, or nil if the rank is
// unknown.
func rankOfProcess(t *timeline.Timeline, cell any) any {
	pid, err := strconv.ParseInt(fmt.Sprint(cell), 10, 32)
	if err != nil {
		return nil
	}
	if rank, ok := t.Facts.RankOfProcess(int32(pid)); ok {
		return int64(rank)
	}
	return nil
}
