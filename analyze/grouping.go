package analyze

import (
	"fmt"
	"slices"
	"strings"

	originpkg "github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/symbolize"
)

// GroupNames lists what memory can be grouped by, the default first.
func GroupNames() []string {
	return append([]string{"site", "stack", "function", "module", "size", "thread", "stream", "device", "pid", "name"},
		identityGroups...)
}

// GroupError says that a report cannot be grouped by this.
type GroupError struct {
	Name  string
	Known []string
}

func (e *GroupError) Error() string {
	return fmt.Sprintf("cannot group by %q; there are %s", e.Name, strings.Join(e.Known, ", "))
}

// noStack is the place of calls whose stack was not recorded.
const noStack = "(no stack)"

// grouping puts allocations into numbered groups, by origin or by size.
type grouping struct {
	t      *Timeline
	filter *query.Filter
	by     string

	labels   originpkg.Names
	byOrigin []int32         // group + 1; 0 is not decided yet, -1 is filtered out, -2 suppressed
	bySize   map[int64]int32 // set when grouping by size
	seen     *query.Callers
	suppress *suppressor // nil: nothing is
}

func (t *Timeline) groupBy(by string, filter *query.Filter) (*grouping, error) {
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
		group = g.labels.ID(sizeLabel(bytes))
		g.bySize[bytes] = group
	}
	return group, true
}

// suppressed reports whether an allocation that of left out would be in a group if it were not suppressed.
func (g *grouping) suppressed(origin int32, bytes int64) bool {
	return g.byOrigin[origin] == -2 && bytes >= g.filter.MinBytes
}

func (g *grouping) decide(id int32) int32 {
	o := &g.t.origins.List[id]
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
	return g.labels.ID(g.t.originLabel(id, g.by)) + 1
}

// sizeLabel has the exact number: sizes that look alike rounded are different.
func sizeLabel(bytes int64) string { return fmt.Sprintf("%d B", bytes) }

// originLabel names the group that an origin belongs to.
func (t *Timeline) originLabel(id int32, by string) string {
	o := &t.origins.List[id]
	switch by {
	case "stack":
		if o.Stack == 0 {
			return noStack
		}
		return fmt.Sprintf("%s #%d", t.siteLabel(id), o.Stack)
	case "function", "module":
		f, ok := t.stacks.UserFrame(o.Stack)
		switch {
		case !ok:
			return noStack
		case by == "module" && f.Module == "":
			return "(no module)"
		case by == "module":
			return f.Module
		}
		return query.FrameName(f)
	case "thread":
		if name := t.facts.threads[originpkg.Thread{Pid: o.Pid, Tid: o.Tid}]; name != "" {
			return fmt.Sprintf("%d %s", o.Tid, name)
		}
		return fmt.Sprint(o.Tid)
	case "stream":
		return query.StreamName(o.Stream)
	case "device":
		return t.ordinalLabel(o.Pid, o.Device)
	case "pid":
		return t.pidLabel(o.Pid)
	case "name":
		return t.origins.Name(id)
	}
	if slices.Contains(identityGroups, by) {
		return t.identityLabel(o.Pid, by)
	}
	return t.siteLabel(id)
}

// siteLabel is the place in the program that made the calls.
func (t *Timeline) siteLabel(id int32) string {
	if place, ok := t.stacks.Placed[t.origins.List[id].Stack]; ok {
		return place
	}
	if site := t.origins.Site(id); site != "" {
		return site
	}
	return t.siteOf(t.origins.List[id].Stack)
}

// siteOf is the place in the program that a stack stands for.
func (t *Timeline) siteOf(stack int32) string {
	if place, ok := t.stacks.Placed[stack]; ok {
		return place
	}
	if site := t.stacks.About[stack].Site; site != "" {
		return site
	}
	f, ok := t.stacks.UserFrame(stack)
	if !ok {
		return noStack
	}
	return symbolize.PlaceName(query.FrameName(f), f.File, f.Line)
}

func (t *Timeline) deviceLabel(device int32) string {
	if device < 0 {
		return "(none)"
	}
	if name := t.facts.devices[device].name; name != "" {
		return fmt.Sprintf("%d %s", device, name)
	}
	return fmt.Sprint(device)
}

// groupTitle is the heading of the column that names groups.
func groupTitle(by string) string { return strings.ToUpper(by) }
