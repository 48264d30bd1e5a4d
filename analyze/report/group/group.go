package group

import (
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
)

// GroupNames returns the group names that New accepts, the default first.
func GroupNames() []string {
	return slices.Concat(
		[]string{"site", "stack", "function", "library", "size", "thread", "stream", "device", "pid", "name"},
		stack.OperatorGroups,
		timeline.IdentityGroups,
	)
}

// Grouping assigns allocations to groups by a property of their origin or by size. Groups are
// numbered from 0. A Grouping is not safe for concurrent use.
type Grouping struct {
	t      *timeline.Timeline
	Filter *query.Filter
	By     string // one of Names

	Groups   []Group // names of the groups
	numbers  map[Group]int32
	byOrigin []int32            // group + 1; 0: not decided yet, -1: filtered out, -2: suppressed
	bySize   map[int64]int32    // nil unless By is "size"
	Callers  *query.SeenCallers // callers of all allocations, to explain a filter that passes none
	Suppress *Suppressor        // leaves out allocations that a suppression matches; may be nil
}

// NewGrouping returns a Grouping of the allocations that pass the filter. An empty by means the
// first of Names. NewGrouping returns a *report.GroupError for an unknown name.
func NewGrouping(t *timeline.Timeline, by string, filter *query.Filter) (*Grouping, error) {
	if by == "" {
		by = GroupNames()[0]
	}
	if !slices.Contains(GroupNames(), by) {
		return nil, &report.GroupError{Name: by, Known: GroupNames()}
	}
	g := &Grouping{t: t, Filter: filter, By: by, numbers: make(map[Group]int32), Callers: query.NewSeenCallers()}
	if by == "size" {
		g.bySize = make(map[int64]int32)
	}
	return g, nil
}

// GroupOf returns the group of an allocation. originID is an index of Timeline.Origins, bytes the
// size. It returns false if the filter or a suppression leaves the allocation out.
func (g *Grouping) GroupOf(originID int32, bytes int64) (int32, bool) {
	for int(originID) >= len(g.byOrigin) {
		g.byOrigin = append(g.byOrigin, 0)
	}
	group := g.byOrigin[originID]
	if group == 0 {
		group = g.findGroup(originID)
		g.byOrigin[originID] = group
	}
	if group < 0 || bytes < g.Filter.MinBytes {
		return 0, false
	}
	if g.bySize == nil {
		return group - 1, true
	}
	group, ok := g.bySize[bytes]
	if !ok {
		group = g.numberOf(Group{Label: timeline.FormatExactSize(bytes)})
		g.bySize[bytes] = group
	}
	return group, true
}

// IsSuppressed reports whether Of left an allocation out because of a suppression.
func (g *Grouping) IsSuppressed(originID int32, bytes int64) bool {
	return g.byOrigin[originID] == -2 && bytes >= g.Filter.MinBytes
}

// findGroup returns the value of byOrigin for origin id.
func (g *Grouping) findGroup(id int32) int32 {
	o := &g.t.Origins.List[id]
	g.Callers.AddCaller(o.Pid, o.Tid, o.Device, o.Stream)
	if !g.Filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) {
		return -1
	}
	if _, ok := g.Suppress.FindSuppression(id); ok {
		return -2
	}
	if g.bySize != nil {
		return 1
	}
	named := Group{Label: g.t.OriginLabel(id, g.By)}
	if g.By == "site" || g.By == "stack" {
		named.Via = g.t.ViaOfOrigin(id)
	}
	return g.numberOf(named) + 1
}

// numberOf returns the number of a group. A new group gets the next number.
func (g *Grouping) numberOf(named Group) int32 {
	number, ok := g.numbers[named]
	if !ok {
		number = int32(len(g.Groups))
		g.numbers[named] = number
		g.Groups = append(g.Groups, named)
	}
	return number
}

// ColumnTitle returns the heading of the column with the group names.
func ColumnTitle(by string) string { return strings.ToUpper(by) }
