package group

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
)

// Suppressor matches suppressions against the stacks of one recording, and counts the live memory
// that they match. A nil Suppressor suppresses nothing.
type Suppressor struct {
	t       *timeline.Timeline
	list    []query.Suppression
	byStack map[int32]int32 // by stack id: 1 + index of the matching suppression, 0 for none
	bySite  map[string]int32
	hidden  []suppressedMemory // memory by suppression
}

// suppressedMemory is the live memory that one suppression matches.
type suppressedMemory struct{ Count, Bytes int64 }

// NewSuppressor returns a Suppressor of s. It returns nil if s has no patterns.
func NewSuppressor(t *timeline.Timeline, s *query.Suppressions) *Suppressor {
	if s == nil || len(s.Patterns) == 0 {
		return nil
	}
	return &Suppressor{
		t:       t,
		list:    s.Patterns,
		byStack: make(map[int32]int32),
		bySite:  make(map[string]int32),
		hidden:  make([]suppressedMemory, len(s.Patterns)),
	}
}

// FindSuppression returns the index of the first suppression that matches an allocation: any frame
// of its stack, or its call site if no stack was recorded. It returns false if no suppression
// matches.
func (s *Suppressor) FindSuppression(origin int32) (int, bool) {
	if s == nil {
		return 0, false
	}
	stack := s.t.Origins.List[origin].Stack
	if stack == 0 {
		return s.matchSite(s.t.SiteOfOrigin(origin))
	}
	match, ok := s.byStack[stack]
	if !ok {
		match = s.matchFrames(s.t.Stacks.Stacks[stack])
		s.byStack[stack] = match
	}
	return int(match) - 1, match > 0
}

func (s *Suppressor) matchFrames(stack []int32) int32 {
	for i := range s.list {
		if slices.ContainsFunc(stack, func(id int32) bool { return s.list[i].MatchesFrame(&s.t.Stacks.Frames[id]) }) {
			return int32(i) + 1
		}
	}
	return 0
}

func (s *Suppressor) matchSite(site string) (int, bool) {
	match, ok := s.bySite[site]
	if !ok {
		matches := func(p query.Suppression) bool { return p.MatchesName(site) }
		match = int32(slices.IndexFunc(s.list, matches)) + 1
		s.bySite[site] = match
	}
	return int(match) - 1, match > 0
}

// CountBlock adds a live block to the memory that suppression which matches.
func (s *Suppressor) CountBlock(which int, b *livemem.Block) {
	s.hidden[which].Count++
	s.hidden[which].Bytes += b.Bytes
}

// TotalHidden returns the sum of all suppressed memory.
func (s *Suppressor) TotalHidden() (sum suppressedMemory) {
	if s == nil {
		return sum
	}
	for _, h := range s.hidden {
		sum.Count += h.Count
		sum.Bytes += h.Bytes
	}
	return sum
}

// SuppressionColumns are the columns of Suppressor.Table.
var SuppressionColumns = []report.Column{
	{
		Key: "count", Title: "count", Unit: report.UnitCount,
		About: "blocks live at the end that match the suppression; all other numbers exclude them",
	},
	{Key: "bytes", Title: "bytes", Unit: report.UnitCount, About: "bytes of the blocks that match the suppression"},
	{
		Key: "template", Title: "template", Unit: report.UnitText,
		About: "pattern of the suppression in the --suppressions file",
	},
}

// Table returns a table of the suppressions that match live memory, like the summary of
// LeakSanitizer.
func (s *Suppressor) Table() report.Table {
	table := report.Table{
		Name:      "suppressions_used",
		Title:     "Suppressions used:",
		Columns:   SuppressionColumns,
		Secondary: true,
		Keys:      []string{"template"},
	}
	if s == nil {
		return table
	}
	for i, h := range s.hidden {
		if h.Count > 0 {
			table.Add(report.Values{
				"count":    h.Count,
				"bytes":    h.Bytes,
				"template": s.list[i].Text,
			})
		}
	}
	table.Sort("bytes", "count")
	return table
}
