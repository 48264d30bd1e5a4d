package processes

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
)

var RankColumn = report.Column{Key: "rank", Title: "RANK", Unit: report.UnitID,
	About: "rank of the process in its job; the column is there if the rank of any process is known"}

// AddRanks puts a column with the rank behind that with the process, if any process has a rank. It
// changes tables once, and only those that have such a column.
func AddRanks(t *timeline.Timeline, tables ...*report.Table) {
	if !t.Facts.HasRanks {
		return
	}
	for _, table := range tables {
		at := report.ColumnOf(table, "pid")
		if at < 0 || report.ColumnOf(table, "rank") >= 0 {
			continue
		}
		column := RankColumn
		if table.Columns[at].Title == "" {
			column.Title = ""
		}
		table.Columns = slices.Insert(slices.Clone(table.Columns), at+1, column)
		for i := range table.Rows {
			cells := slices.Clone(table.Rows[i].Cells)
			table.Rows[i].Cells = slices.Insert(cells, at+1, rankOfCell(t, cells[at]))
		}
		if spare := slices.Index(table.Spare, "pid"); spare >= 0 {
			table.Spare = slices.Insert(slices.Clone(table.Spare), spare+1, "rank")
		}
		if len(table.Keys) > 0 { // ranks are the same in other recordings
			table.Keys = append(slices.Clone(table.Keys), "rank")
		}
	}
}

// rankOfCell is the rank of the process that a cell names, nil if it is not known.
func rankOfCell(t *timeline.Timeline, cell any) any {
	pid, err := strconv.ParseInt(fmt.Sprint(cell), 10, 32)
	if err != nil {
		return nil
	}
	if rank, ok := t.Facts.Rank(int32(pid)); ok {
		return int64(rank)
	}
	return nil
}
