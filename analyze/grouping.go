package analyze

import (
	"fmt"
	"slices"
	"strings"

	originpkg "github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// GroupNames lists what memory can be grouped by, the default first.
func GroupNames() []string {
	return append([]string{"site", "stack", "function", "module", "size", "thread", "stream", "device", "pid", "name"},
		timeline.IdentityGroups...)
}

// GroupError says that a report cannot be grouped by this.
type GroupError struct {
	Name  string
	Known []string
}

func (e *GroupError) Error() string {
	return fmt.Sprintf("cannot group by %q; there are %s", e.Name, strings.Join(e.Known, ", "))
}

// grouping puts allocations into numbered groups, by origin or by size.
type grouping struct {
	t      *timeline.Timeline
	filter *query.Filter
	by     string

	labels   originpkg.Names
	byOrigin []int32         // group + 1; 0 is not decided yet, -1 is filtered out, -2 suppressed
	bySize   map[int64]int32 // set when grouping by size
	seen     *query.Callers
	suppress *suppressor // nil: nothing is
}

func groupBy(t *timeline.Timeline, by string, filter *query.Filter) (*grouping, error) {
	if by == "" {
		by = GroupNames()[0]
	}
	if !slices.Contains(GroupNames(), by) {
		return nil, &GroupError{by, GroupNames()}
	}
	g := &grouping{t: t, filter: filter, by: by, seen: query.NewCallers()}
	if by == "size" {
		g.bySize = make(map[int64]int32)
	}
	return g, nil
}

// of returns the group of an allocation; false if the filter leaves it out.
func (g *grouping) of(origin int32, bytes int64) (int32, bool) {
	for int(origin) >= len(g.byOrigin) {
		g.byOrigin = append(g.byOrigin, 0)
	}
	group := g.byOrigin[origin]
	if group == 0 {
		group = g.decide(origin)
		g.byOrigin[origin] = group
	}
	if group < 0 || bytes < g.filter.MinBytes {
		return 0, false
	}
	if g.bySize == nil {
		return group - 1, true
	}
	group, ok := g.bySize[bytes]
	if !ok {
		group = g.labels.ID(timeline.SizeLabel(bytes))
		g.bySize[bytes] = group
	}
	return group, true
}

// suppressed reports whether an allocation that of left out would be in a group if it were not suppressed.
func (g *grouping) suppressed(origin int32, bytes int64) bool {
	return g.byOrigin[origin] == -2 && bytes >= g.filter.MinBytes
}

func (g *grouping) decide(id int32) int32 {
	o := &g.t.Origins.List[id]
	g.seen.Add(o.Pid, o.Tid, o.Device, o.Stream)
	if !g.filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) {
		return -1
	}
	if _, ok := g.suppress.of(id); ok {
		return -2
	}
	if g.bySize != nil {
		return 1
	}
	return g.labels.ID(g.t.OriginLabel(id, g.by)) + 1
}

// groupTitle is the heading of the column that names groups.
func groupTitle(by string) string { return strings.ToUpper(by) }
