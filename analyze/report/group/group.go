package group

import (
	"slices"
	"strings"

	originpkg "github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
)

// Names lists what memory can be grouped by, the default first.
func Names() []string {
	return append([]string{"site", "stack", "function", "module", "size", "thread", "stream", "device", "pid", "name"},
		timeline.IdentityGroups...)
}

// Grouping puts allocations into numbered groups, by origin or by size.
type Grouping struct {
	t      *timeline.Timeline
	Filter *query.Filter
	By     string

	Labels   originpkg.Names
	byOrigin []int32         // group + 1; 0 is not decided yet, -1 is filtered out, -2 suppressed
	bySize   map[int64]int32 // set when grouping by size
	Seen     *query.Callers
	Suppress *Suppressor // nil: nothing is
}

func New(t *timeline.Timeline, by string, filter *query.Filter) (*Grouping, error) {
	if by == "" {
		by = Names()[0]
	}
	if !slices.Contains(Names(), by) {
		return nil, &report.GroupError{Name: by, Known: Names()}
	}
	g := &Grouping{t: t, Filter: filter, By: by, Seen: query.NewCallers()}
	if by == "size" {
		g.bySize = make(map[int64]int32)
	}
	return g, nil
}

// Of returns the group of an allocation; false if the filter leaves it out.
func (g *Grouping) Of(origin int32, bytes int64) (int32, bool) {
	for int(origin) >= len(g.byOrigin) {
		g.byOrigin = append(g.byOrigin, 0)
	}
	group := g.byOrigin[origin]
	if group == 0 {
		group = g.decide(origin)
		g.byOrigin[origin] = group
	}
	if group < 0 || bytes < g.Filter.MinBytes {
		return 0, false
	}
	if g.bySize == nil {
		return group - 1, true
	}
	group, ok := g.bySize[bytes]
	if !ok {
		group = g.Labels.ID(timeline.SizeLabel(bytes))
		g.bySize[bytes] = group
	}
	return group, true
}

// Suppressed reports whether an allocation that of left out would be in a group if it were not suppressed.
func (g *Grouping) Suppressed(origin int32, bytes int64) bool {
	return g.byOrigin[origin] == -2 && bytes >= g.Filter.MinBytes
}

func (g *Grouping) decide(id int32) int32 {
	o := &g.t.Origins.List[id]
	g.Seen.Add(o.Pid, o.Tid, o.Device, o.Stream)
	if !g.Filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) {
		return -1
	}
	if _, ok := g.Suppress.Of(id); ok {
		return -2
	}
	if g.bySize != nil {
		return 1
	}
	return g.Labels.ID(g.t.OriginLabel(id, g.By)) + 1
}

// Title is the heading of the column that names groups.
func Title(by string) string { return strings.ToUpper(by) }
