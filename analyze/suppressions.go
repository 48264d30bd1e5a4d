package analyze

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// suppressor applies suppressions to the stacks of one recording, and counts what they
// hid. A nil suppressor suppresses nothing.
type suppressor struct {
	t       *timeline.Timeline
	list    []query.Suppression
	byStack map[int32]int32 // 1 + the suppression that matches; 0: none
	bySite  map[string]int32
	hidden  []suppressedMemory // by suppression
}

// suppressedMemory is live memory that a suppression hid.
type suppressedMemory struct{ count, bytes int64 }

func newSuppressor(t *timeline.Timeline, s *query.Suppressions) *suppressor {
	if s == nil || len(s.Patterns) == 0 {
		return nil
	}
	return &suppressor{t: t, list: s.Patterns, byStack: make(map[int32]int32), bySite: make(map[string]int32), hidden: make([]suppressedMemory, len(s.Patterns))}
}

// of returns the first suppression that matches an allocation: a frame of its stack, or
// the site alone where no stack was recorded; false if none does.
func (s *suppressor) of(origin int32) (int, bool) {
	if s == nil {
		return 0, false
	}
	stack := s.t.Origins.List[origin].Stack
	if stack == 0 {
		return s.ofSite(s.t.SiteLabel(origin))
	}
	known, ok := s.byStack[stack]
	if !ok {
		known = s.ofFrames(s.t.Stacks.Stacks[stack])
		s.byStack[stack] = known
	}
	return int(known) - 1, known > 0
}

func (s *suppressor) ofFrames(stack []int32) int32 {
	for i := range s.list {
		if slices.ContainsFunc(stack, func(id int32) bool { return s.list[i].MatchesFrame(&s.t.Stacks.Frames[id]) }) {
			return int32(i) + 1
		}
	}
	return 0
}

func (s *suppressor) ofSite(site string) (int, bool) {
	known, ok := s.bySite[site]
	if !ok {
		known = int32(slices.IndexFunc(s.list, func(one query.Suppression) bool { return one.Matches(site) })) + 1
		s.bySite[site] = known
	}
	return int(known) - 1, known > 0
}

// never counts live memory that a suppression hides.
func (s *suppressor) never(which int, b *ledger.Block) {
	s.hidden[which].count++
	s.hidden[which].bytes += b.Bytes
}

// total sums up what was hidden.
func (s *suppressor) total() (sum suppressedMemory) {
	if s == nil {
		return sum
	}
	for _, h := range s.hidden {
		sum.count += h.count
		sum.bytes += h.bytes
	}
	return sum
}

var suppressedColumns = []Column{
	{"count", "count", UnitCount, "blocks that were live at the end and that the suppression hid: they are in no other number"},
	{"bytes", "bytes", UnitCount, "bytes of these"},
	{"template", "template", UnitText, "the suppression, as it stands in the file of --suppressions"},
}

// table lists the suppressions that hid live memory, as LeakSanitizer does.
func (s *suppressor) table() Table {
	table := Table{Name: "suppressions_used", Title: "Suppressions used:", Columns: suppressedColumns, Aside: true, Keys: []string{"template"}}
	if s == nil {
		return table
	}
	for i, h := range s.hidden {
		if h.count > 0 {
			table.Rows = append(table.Rows, Row{Cells: []any{h.count, h.bytes, s.list[i].Text}})
		}
	}
	slices.SortStableFunc(table.Rows, func(a, b Row) int {
		return cmp.Or(compareCells(a.Cells[1], b.Cells[1]), compareCells(a.Cells[0], b.Cells[0]))
	})
	return table
}
