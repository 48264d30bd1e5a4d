package hang

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/rankstate"
	"github.com/gpurec/gpurec/analyze/model/waitgraph"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// rankTotalColumns are the columns of rankTotals.
var rankTotalColumns = []report.Column{
	{Key: "ranks_recorded", Title: "ranks", Unit: report.UnitCount, About: "recorded ranks of the job"},
	{
		Key: "ranks_standing", Title: "standing", Unit: report.UnitCount,
		About: "ranks that called no new operation of NCCL for at least --long",
	},
	{Key: "ranks_dead", Title: "dead", Unit: report.UnitCount, About: "ranks whose process ended"},
	{
		Key:   "rank_faults",
		Title: "faults",
		Unit:  report.UnitCount,
		About: "causes of waits that depend on no other cause",
	},
	{
		Key: "ranks_waiting", Title: "waiting", Unit: report.UnitCount,
		About: "ranks that wait because of the first fault",
	},
}

// rankTotals returns the number of ranks by state.
func rankTotals(s *rankstate.State) []report.Fact {
	var dead, waiting int64
	for i := range s.Ranks {
		if s.Ranks[i].DeadNs != 0 {
			dead++
		}
	}
	if len(s.Verdict.Faults) > 0 {
		waiting = int64(s.Verdict.Faults[0].Waiting)
	}
	return report.NewFacts(rankTotalColumns, report.Values{
		"ranks_recorded": int64(len(s.Ranks)), "ranks_standing": int64(s.Verdict.Standing), "ranks_dead": dead,
		"rank_faults": int64(len(s.Verdict.Faults)), "ranks_waiting": waiting,
	})
}

// rankColumns are the columns of the table of ranks.
var rankColumns = []report.Column{
	{Key: "ranks", Title: "RANKS", Unit: report.UnitText, About: "ranks in this state; 5-29/8 is every eighth rank"},
	{Key: "count", Title: "N", Unit: report.UnitCount, About: "number of these ranks"},
	{
		Key: "state", Title: "STATE", Unit: report.UnitText,
		About: "dead: the process ended. In init: it makes a communicator. In call: its call has not returned. " +
			"Unfinished: its host waits for the operation. Launched: it called the operation, which may or may not " +
			"run. Not entered: it has not called the operation that others wait for. Waits: its host waits for the " +
			"GPU, in an operation that was not recorded. Done: nothing shows a wait",
	},
	{
		Key: "at", Title: "AT", Unit: report.UnitText,
		About: "operation that the ranks wait in; of ranks that have not entered, their last operation",
	},
	{
		Key: "since_ns", Title: "SINCE", Unit: report.UnitNs,
		About: "time since the call of that operation, or since the end of the process; the longest of these ranks",
	},
	{Key: "needs", Title: "NEEDS", Unit: report.UnitText, About: "ranks that the operation waits for"},
	{
		Key: "where", Title: "WHERE", Unit: report.UnitText,
		About: "what the host of the first of these ranks does: host, process, line",
	},
}

// rankRow is a set of ranks in equal states.
type rankRow struct {
	state, at, short, needs, where string
	ranks                          []int
	sinceNs                        int64
	culprit                        bool
}

// maxRankRows is the number of rows from which on ranks are folded over communicators.
const maxRankRows = 12

// rankTables returns the tables on the ranks of a job: their states, and the calls of a mismatch.
func rankTables(s *rankstate.State) []report.Table {
	table := report.Table{
		Name: "ranks", Title: "ranks by equal states", Columns: rankColumns, Keys: []string{"ranks"},
		HideFirst: []string{"needs"},
	}
	rows := rankRows(s)
	for i := range rows {
		r := &rows[i]
		table.Add(report.Values{
			"ranks": rankSetText(s, r.ranks), "count": int64(len(r.ranks)), "state": r.state,
			"at": units.TextOrNil(r.at), "since_ns": s.EndNs - r.sinceNs, "needs": units.TextOrNil(r.needs),
			"where": units.TextOrNil(r.where),
		})
	}
	tables := []report.Table{table}
	if len(s.Verdict.Faults) > 0 && s.Verdict.Faults[0].Kind == waitgraph.Mismatch {
		tables = append([]report.Table{mismatchTable(s, &s.Verdict.Faults[0])}, tables...)
	}
	return tables
}

// rankRows returns the ranks folded by equal states, the culprits first, then the largest set.
func rankRows(s *rankstate.State) []rankRow {
	culprits := make(map[int]bool)
	if len(s.Verdict.Faults) > 0 {
		for _, rank := range s.Verdict.Faults[0].Ranks {
			culprits[rank] = true
		}
	}
	for _, rank := range s.Counted.Ranks {
		culprits[rank] = true
	}
	var single []rankRow
	for rank := range s.Ranks {
		row := rankRowOf(s, rank)
		row.culprit = culprits[rank]
		single = append(single, row)
	}
	rows := foldRanks(single, func(r *rankRow) string { return strings.Join([]string{r.state, r.at, r.needs}, "\x00") })
	if len(rows) <= maxRankRows {
		return rows
	}
	return foldRanks(single, func(r *rankRow) string { return strings.Join([]string{r.state, r.short}, "\x00") })
}

// foldRanks joins rows with equal keys. Culprits and others are not joined.
func foldRanks(single []rankRow, key func(*rankRow) string) []rankRow {
	index := make(map[string]int)
	var rows []rankRow
	for i := range single {
		k := fmt.Sprint(single[i].culprit, key(&single[i]))
		at, ok := index[k]
		if !ok {
			index[k] = len(rows)
			rows = append(rows, single[i])
			rows[len(rows)-1].ranks = slices.Clone(single[i].ranks)
			continue
		}
		r := &rows[at]
		r.ranks = append(r.ranks, single[i].ranks...)
		r.sinceNs = min(r.sinceNs, single[i].sinceNs)
		if r.at != single[i].at {
			r.at = r.short + " of several communicators"
		}
		if r.needs != single[i].needs {
			r.needs = ""
		}
	}
	slices.SortStableFunc(rows, func(a, b rankRow) int {
		if a.culprit != b.culprit {
			return map[bool]int{true: -1, false: 1}[a.culprit]
		}
		return cmp.Compare(len(b.ranks), len(a.ranks))
	})
	return rows
}

// rankRowOf returns the state of a rank.
func rankRowOf(s *rankstate.State, rank int) rankRow {
	r := &s.Ranks[rank]
	row := rankRow{
		ranks:   []int{rank},
		state:   "done",
		where:   placeText(r, s.EndNs),
		sinceNs: max(r.SinceNs, r.LastCallNs),
	}
	operations := s.Graph.Ranks[rank].Operations
	last := len(operations) - 1
	switch heads := s.Verdict.Heads[rank]; {
	case r.DeadNs != 0:
		row.state, row.sinceNs = "dead", r.DeadNs
	case len(heads) > 0:
		last = heads[0]
		row.state, row.sinceNs = progressText(s, rank, last), operations[last].StartNs
		row.needs = needsText(s, rank, last)
	case s.Graph.Ranks[rank].EndNs-s.Graph.Ranks[rank].LastNs < s.Graph.LongNs:
		row.state = "continues"
	case isAwaited(s, rank), s.Counted.Kind == rankstate.CountsNotJoined && slices.Contains(s.Counted.Ranks, rank):
		row.state = "not entered"
	case s.Graph.Ranks[rank].Host == waitgraph.HostWaits:
		row.state = "waits"
	}
	if last >= 0 {
		c := &r.Calls[last]
		if s.Communicators[operations[last].Communicator].Init {
			row.short = cmp.Or(s.Communicators[operations[last].Communicator].MadeBy, "init")
			row.at = row.short + " of " + communicatorName(s, operations[last].Communicator)
		} else {
			row.short = callText(c)
			row.at = row.short + " of " + communicatorName(s, operations[last].Communicator)
		}
	}
	return row
}

// progressText returns the state of a rank that waits in an operation.
func progressText(s *rankstate.State, rank, operation int) string {
	o := &s.Graph.Ranks[rank].Operations[operation]
	switch {
	case s.Communicators[o.Communicator].Init:
		return "in init"
	case s.Ranks[rank].Calls[operation].IsOpen:
		return "in call"
	case o.Progress == waitgraph.Unfinished:
		return "unfinished"
	}
	return "launched"
}

// waitOf returns the wait of a rank's operation among the faults, or nil.
func waitOf(s *rankstate.State, rank, operation int) *waitgraph.Wait {
	o := &s.Graph.Ranks[rank].Operations[operation]
	isPeer := o.Function == collective.Send || o.Function == collective.Recv
	for i := range s.Verdict.Waits {
		w := &s.Verdict.Waits[i]
		if w.Communicator == o.Communicator && w.Number == o.Number && isPeer == (w.Sender >= 0) &&
			slices.Contains(w.Called, rank) {
			return w
		}
	}
	return nil
}

// needsText names the ranks that an operation of a rank waits for.
func needsText(s *rankstate.State, rank, operation int) string {
	w := waitOf(s, rank, operation)
	if w == nil {
		return ""
	}
	needed := slices.Concat(w.NotCalled, w.Behind)
	for _, m := range w.Called {
		if s.Ranks[m].DeadNs != 0 && m != rank {
			needed = append(needed, m)
		}
	}
	if len(needed) == 0 {
		return ""
	}
	slices.Sort(needed)
	return rankSetText(s, slices.Compact(needed))
}

// isAwaited reports whether an operation waits for a rank that has not called it.
func isAwaited(s *rankstate.State, rank int) bool {
	return slices.ContainsFunc(
		s.Verdict.Waits,
		func(w waitgraph.Wait) bool { return slices.Contains(w.NotCalled, rank) },
	)
}

// sideColumns are the columns of the table of a mismatch.
var sideColumns = []report.Column{
	{Key: "ranks", Title: "RANKS", Unit: report.UnitText, About: "ranks that make this call, the suspects first"},
	{Key: "operation", Title: "OPERATION", Unit: report.UnitText, About: "operation that they call"},
	{Key: "elements", Title: "COUNT", Unit: report.UnitCount, About: "argument count: number of elements"},
	{Key: "type", Title: "TYPE", Unit: report.UnitText, About: "data type"},
	{Key: "reduction", Title: "REDUCTION", Unit: report.UnitText, About: "reduction operator; absent if it has none"},
	{Key: "root", Title: "ROOT", Unit: report.UnitID, About: "root; absent if the operation has none"},
	{Key: "ago_ns", Title: "AGO", Unit: report.UnitNs, About: "time since the call of the first of these ranks"},
	{Key: "line", Title: "LINE", Unit: report.UnitText, About: "call site of the first of these ranks"},
}

// mismatchTable returns a table with the calls of a mismatch.
func mismatchTable(s *rankstate.State, f *waitgraph.Fault) report.Table {
	table := report.Table{
		Name: "calls", Title: "different calls with the same number", Columns: sideColumns, Keys: []string{"ranks"},
	}
	for i := range f.Sides {
		side := &f.Sides[i]
		c := &s.Ranks[side.Ranks[0]].Calls[side.Operation]
		var reduction, root, kind any
		if int(c.Reduction) < len(format.Reductions) {
			reduction = format.Reductions[c.Reduction]
		}
		if c.Root != format.NoRoot {
			root = int64(c.Root)
		}
		if int(c.DataType) < len(format.DataTypes) {
			kind = format.DataTypes[c.DataType]
		}
		table.Add(report.Values{
			"ranks": rankSetText(s, side.Ranks), "operation": c.Function.String(), "elements": c.Count, "type": kind,
			"reduction": reduction, "root": root, "ago_ns": s.EndNs - c.StartNs, "line": units.TextOrNil(c.Site),
		})
	}
	return table
}
