package byrank

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// rankColumn is the first column of each table.
var rankColumn = report.Column{
	Key: "rank", Title: "RANK", Unit: report.UnitText,
	About: "rank of the process in its job; of a row of several ranks, their numbers",
}

// memberColumns are the further columns of the table of ranks.
var memberColumns = []report.Column{
	{Key: "host", Title: "HOST", Unit: report.UnitText, About: "host of the process"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
}

// labelOf names members, such as "3", "0-3, 7" or "pid 4242".
func labelOf(members []*job.Member) string {
	if len(members) == 1 {
		return members[0].Label
	}
	var numbers []int
	var texts []string
	for _, m := range members {
		if m.Rank == job.UnknownRank {
			texts = append(texts, m.Label)
		} else {
			numbers = append(numbers, m.Rank)
		}
	}
	if len(numbers) > 0 {
		texts = slices.Insert(texts, 0, units.FormatNumberSet(numbers))
	}
	const most = 4
	if len(texts) > most {
		texts = append(texts[:most], "...")
	}
	return strings.Join(texts, ", ")
}

// Ranks names all members of a job, such as "0-7".
func Ranks(j *job.Job) string {
	members := make([]*job.Member, len(j.Members))
	for i := range j.Members {
		members[i] = &j.Members[i]
	}
	return labelOf(members)
}

// Merge returns one report of the parts, which are not empty. Its first table, ranks, has the totals of each rank,
// and the facts in which the ranks differ. The other tables have the rows of all ranks. With fold, rows with equal
// identity and similar values become one row, outliers come first, and each table has at most top rows; top 0 is no
// limit.
func Merge(parts []Part, fold bool, top int) *report.Report {
	parts = slices.Clone(parts)
	slices.SortStableFunc(parts, func(a, b Part) int { return compareMembers(a.Members[0], b.Members[0]) })
	first := parts[0].Report
	merged := &report.Report{Command: first.Command, Window: first.Window}
	addCommon(merged, parts)
	tables := slices.Concat([]rankTable{ranksTable(merged, parts)}, joinTables(parts))
	for i := range tables {
		t := &tables[i]
		if fold {
			t.fold()
			_ = t.table.SortAndCut("", top) // it fails only for an unknown column to sort by
		}
		merged.Tables = append(merged.Tables, t.finish(fold))
	}
	return merged
}

// compareMembers orders members by rank, those without a rank last.
func compareMembers(a, b *job.Member) int {
	if a.Rank < 0 || b.Rank < 0 {
		return cmp.Compare(b.Rank, a.Rank)
	}
	return cmp.Compare(a.Rank, b.Rank)
}

// addCommon adds what is not in tables: the window, notes, sentences and quality.
func addCommon(merged *report.Report, parts []Part) {
	matching := false
	counted := make(map[int]bool) // by recording
	for i := range parts {
		r := parts[i].Report
		merged.Window = query.Window{
			FromNs: min(merged.Window.FromNs, r.Window.FromNs), ToNs: max(merged.Window.ToNs, r.Window.ToNs),
		}
		for _, note := range r.Notes {
			if !slices.Contains(merged.Notes, note) {
				merged.Notes = append(merged.Notes, note)
			}
		}
		for _, key := range r.Sentences {
			if !slices.Contains(merged.Sentences, key) {
				merged.Sentences = append(merged.Sentences, key)
			}
		}
		matching = matching || r.NoMatch == nil
		if recording := parts[i].Members[0].Recording; !counted[recording] {
			counted[recording] = true
			merged.Quality.Add(&r.Quality)
		}
	}
	if !matching {
		merged.NoMatch = parts[0].Report.NoMatch
	}
}

// rankTable is a table with the ranks of its rows.
type rankTable struct {
	table report.Table
	ranks [][]*job.Member // by row
	isKey []bool          // by column: it identifies a row
	// places is the place of each row in the table of its rank. Folded rows have that of the first rank.
	places []int
}

// joinTables returns the tables of all parts, those of equal names and columns as one.
func joinTables(parts []Part) (list []rankTable) {
	for i := range parts {
		p := &parts[i]
		for k := range p.Report.Tables {
			from := &p.Report.Tables[k]
			at := slices.IndexFunc(list, func(t rankTable) bool { return hasSameColumns(&t.table, from) })
			if at < 0 {
				at = len(list)
				list = append(list, newRankTable(from))
			}
			list[at].addRows(p, from)
		}
	}
	return list
}

// hasSameColumns reports whether two tables have one name and the same columns.
func hasSameColumns(a, b *report.Table) bool {
	return a.Name == b.Name && slices.EqualFunc(a.Columns, withoutRank(b.Columns), func(x, y report.Column) bool {
		return x.Key == y.Key
	})
}

// withoutRank returns the columns without the column of ranks that reports on jobs have.
func withoutRank(columns []report.Column) []report.Column {
	return slices.DeleteFunc(slices.Clone(columns), func(c report.Column) bool { return c.Key == rankColumn.Key })
}

// newRankTable returns a table without rows.
func newRankTable(from *report.Table) rankTable {
	t := rankTable{table: *from}
	t.table.Rows, t.table.OmittedRows = nil, 0
	t.table.Columns = withoutRank(from.Columns)
	for _, c := range t.table.Columns {
		t.isKey = append(t.isKey, isKeyColumn(from, &c))
	}
	return t
}

// processColumns are keys of columns that differ between ranks that do the same.
var processColumns = []string{
	"pid", "tid", "thread", "process", "name_and_pid", "device", "gpu", "gpu_uuid", "stream", "context", "channel",
}

// isKeyColumn reports whether a column identifies a row on all ranks.
func isKeyColumn(t *report.Table, c *report.Column) bool {
	if slices.Contains(processColumns, c.Key) {
		return false
	}
	if len(t.Keys) > 0 {
		return slices.Contains(t.Keys, c.Key)
	}
	return c.Unit == report.UnitText
}

// addRows adds the rows of a part.
func (t *rankTable) addRows(p *Part, from *report.Table) {
	pid, rank := report.ColumnIndex(from, "pid"), report.ColumnIndex(from, rankColumn.Key)
	for i, row := range from.Rows {
		members := p.Members
		if pid >= 0 && len(members) > 1 {
			members = membersWith(p.Members, row.Cells[pid])
		}
		if rank >= 0 { // the report's own column of ranks
			row.Cells = slices.Delete(slices.Clone(row.Cells), rank, rank+1)
		}
		t.table.Rows = append(t.table.Rows, row)
		t.ranks = append(t.ranks, members)
		t.places = append(t.places, i)
	}
	t.table.OmittedRows += from.OmittedRows
}

// membersWith returns the member with a process id, all members if none has it.
func membersWith(members []*job.Member, pid any) []*job.Member {
	for _, m := range members {
		if pid == int64(m.Pid) {
			return []*job.Member{m}
		}
	}
	return members
}

// finish adds the column of ranks. With fold, a row of several ranks has no process id.
func (t *rankTable) finish(fold bool) report.Table {
	table := t.table
	pid := report.ColumnIndex(&table, "pid")
	table.Columns = slices.Insert(slices.Clone(table.Columns), 0, rankColumn)
	for i := range table.Rows {
		row := &table.Rows[i]
		row.Cells = slices.Insert(slices.Clone(row.Cells), 0, any(labelOf(t.ranks[i])))
		if fold && pid >= 0 && len(t.ranks[i]) > 1 {
			row.Cells[pid+1] = nil
		}
	}
	if len(table.Keys) > 0 {
		table.Keys = slices.Insert(slices.Clone(table.Keys), 0, rankColumn.Key)
	}
	return table
}
