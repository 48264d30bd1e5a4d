package analyze

import (
	"fmt"
	"slices"
	"strings"

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
	filter *Filter
	by     string

	labels   names
	byOrigin []int32         // group + 1; 0 is not decided yet, -1 is filtered out, -2 suppressed
	bySize   map[int64]int32 // set when grouping by size
	seen     *callers
	suppress *suppressor // nil: nothing is
}

func (t *Timeline) groupBy(by string, filter *Filter) (*grouping, error) {
	if by == "" {
		by = GroupNames()[0]
	}
	if !slices.Contains(GroupNames(), by) {
		return nil, &GroupError{by, GroupNames()}
	}
	g := &grouping{t: t, filter: filter, by: by, seen: newCallers()}
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
		group = g.labels.id(sizeLabel(bytes))
		g.bySize[bytes] = group
	}
	return group, true
}

// suppressed reports whether an allocation that of left out would be in a group if it were not suppressed.
func (g *grouping) suppressed(origin int32, bytes int64) bool {
	return g.byOrigin[origin] == -2 && bytes >= g.filter.MinBytes
}

func (g *grouping) decide(id int32) int32 {
	o := &g.t.origins.list[id]
	g.seen.add(o.pid, o.tid, o.device, o.stream)
	if !g.filter.caller(o.pid, o.tid, o.device, o.stream) {
		return -1
	}
	if _, ok := g.suppress.of(id); ok {
		return -2
	}
	if g.bySize != nil {
		return 1
	}
	return g.labels.id(g.t.originLabel(id, g.by)) + 1
}

// sizeLabel has the exact number: sizes that look alike rounded are different.
func sizeLabel(bytes int64) string { return fmt.Sprintf("%d B", bytes) }

// originLabel names the group that an origin belongs to.
func (t *Timeline) originLabel(id int32, by string) string {
	o := &t.origins.list[id]
	switch by {
	case "stack":
		if o.stack == 0 {
			return noStack
		}
		return fmt.Sprintf("%s #%d", t.siteLabel(id), o.stack)
	case "function", "module":
		f, ok := t.stacks.userFrame(o.stack)
		switch {
		case !ok:
			return noStack
		case by == "module" && f.Module == "":
			return "(no module)"
		case by == "module":
			return f.Module
		}
		return frameName(f)
	case "thread":
		if name := t.facts.threads[thread{o.pid, o.tid}]; name != "" {
			return fmt.Sprintf("%d %s", o.tid, name)
		}
		return fmt.Sprint(o.tid)
	case "stream":
		return streamName(o.stream)
	case "device":
		return t.ordinalLabel(o.pid, o.device)
	case "pid":
		return t.pidLabel(o.pid)
	case "name":
		return t.origins.name(id)
	}
	if slices.Contains(identityGroups, by) {
		return t.identityLabel(o.pid, by)
	}
	return t.siteLabel(id)
}

// siteLabel is the place in the program that made the calls.
func (t *Timeline) siteLabel(id int32) string {
	if place, ok := t.stacks.placed[t.origins.list[id].stack]; ok {
		return place
	}
	if site := t.origins.site(id); site != "" {
		return site
	}
	return t.siteOf(t.origins.list[id].stack)
}

// siteOf is the place in the program that a stack stands for.
func (t *Timeline) siteOf(stack int32) string {
	if place, ok := t.stacks.placed[stack]; ok {
		return place
	}
	if site := t.stacks.about[stack].site; site != "" {
		return site
	}
	f, ok := t.stacks.userFrame(stack)
	if !ok {
		return noStack
	}
	return symbolize.PlaceName(frameName(f), f.File, f.Line)
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
