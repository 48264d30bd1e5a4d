package processes

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
)

// RankColumn is the column that AddRanks adds.
var RankColumn = report.Column{
	Key: "rank", Title: "RANK", Unit: report.UnitID,
	About: "rank of the process in its job; the column is there if the rank of any process is known",
}

// AddRanks adds RankColumn behind the column "pid" of each table, if any process of the recording
// has a rank. It leaves a table alone that has no column "pid", or a column "rank" already.
func AddRanks(t *timeline.Timeline, tables ...*report.Table) {
	if !t.Facts.HasRanks {
		return
	}
	for _, table := range tables {
		at := report.ColumnOf(table, "pid")
		if at < 0 || report.ColumnOf(table, RankColumn.Key) >= 0 {
			continue
		}
		column := RankColumn
		if table.Columns[at].Title == "" {
			column.Title = ""
		}
		table.InsertColumn("pid", column, func(r *report.Row) any { return rankOf(t, table.Cell(r, "pid")) })
		if spare := slices.Index(table.HideFirst, "pid"); spare >= 0 {
			table.HideFirst = slices.Insert(slices.Clone(table.HideFirst), spare+1, RankColumn.Key)
		}
		if len(table.Keys) > 0 { // ranks are the same in other recordings
			table.Keys = append(slices.Clone(table.Keys), RankColumn.Key)
		}
	}
}

// rankOf returns the rank of the process whose id is in a cell, nil if it is not known.
func rankOf(t *timeline.Timeline, cell any) any {
	pid, err := strconv.ParseInt(fmt.Sprint(cell), 10, 32)
	if err != nil {
		return nil
	}
	if rank, ok := t.Facts.Rank(int32(pid)); ok {
		return int64(rank)
	}
	return nil
}
