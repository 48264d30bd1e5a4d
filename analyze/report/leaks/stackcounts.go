package leaks

import (
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report/group"
)

// maxStacksPerSite is the number of stacks of one call site that are counted. A site with more is
// not split into ways. A line of a program has some hundred stacks at most; more come from deep
// recursion. The limit bounds memory: each stack needs about 500 bytes.
const maxStacksPerSite = 4096

// stackCounter counts the memory of each call site by stack, so that Finish can split sites into
// ways. It counts nothing for a site with one stack, as most have: the counters of the site are those
// of the stack. A nil stackCounter counts nothing.
type stackCounter struct {
	t        *timeline.Timeline
	parts    []groupStats       // memory of one site from one stack
	sites    [][]int32          // parts of each group
	numbers  map[sitePart]int32 // index of the part
	byOrigin []int32            // part + 1; 0: not decided yet, -1: not counted
}

// sitePart identifies the memory of a group from one stack.
type sitePart struct{ group, stack int32 }

func newStackCounter(t *timeline.Timeline) *stackCounter {
	return &stackCounter{t: t, numbers: make(map[sitePart]int32)}
}

// partOf returns the counters of the stack of an origin, which belongs to a group. g has the counters of
// the group before the present change. partOf returns nil if the stack is not counted.
func (c *stackCounter) partOf(group int32, g *groupStats, origin int32) *groupStats {
	if c == nil {
		return nil
	}
	for int(origin) >= len(c.byOrigin) {
		c.byOrigin = append(c.byOrigin, 0)
	}
	part := c.byOrigin[origin]
	if part == 0 {
		part = c.findPart(group, g, origin)
		c.byOrigin[origin] = part
	}
	if part < 0 || len(c.sites[group]) == 1 {
		return nil
	}
	return &c.parts[part-1]
}

// findPart returns the value of byOrigin for an origin.
func (c *stackCounter) findPart(group int32, g *groupStats, origin int32) int32 {
	o := &c.t.Origins.List[origin]
	key := sitePart{group, o.Stack}
	if part, ok := c.numbers[key]; ok {
		return part + 1
	}
	for int(group) >= len(c.sites) {
		c.sites = append(c.sites, nil)
	}
	if len(c.sites[group]) > maxStacksPerSite {
		return -1
	}
	if len(c.sites[group]) == 1 { // so far, all memory of the group is from its first stack
		c.parts[c.sites[group][0]] = g.clone()
	}
	part := int32(len(c.parts))
	c.parts = append(c.parts, groupStats{Device: o.Device})
	c.sites[group] = append(c.sites[group], part)
	c.numbers[key] = part
	return part + 1
}

// recordFloors ends an interval for all stacks, see Scan.recordCheckpoint.
func (c *stackCounter) recordFloors(step int) {
	if c == nil {
		return
	}
	for i := range c.parts {
		c.parts[i].recordFloors(step)
	}
}

// splitSites returns the groups, with each site that separates into ways replaced by its ways.
func (c *stackCounter) splitSites(groups []groupStats) []groupStats {
	if c == nil {
		return groups
	}
	finder := newWayFinder(c.t)
	var list []groupStats
	for i := range groups {
		g := &groups[i]
		ways := finder.findWays(g, c.partsOfSite(i))
		if ways == nil {
			list = append(list, *g)
		}
		for _, w := range ways {
			name := group.Group{Label: g.Label + " from " + finder.callers.List[w.caller], Via: g.Via}
			list = append(list, w.stats(name))
		}
	}
	return list
}

// partsOfSite returns the memory of a group by stack. It returns nil if the site has too many stacks.
func (c *stackCounter) partsOfSite(group int) (parts []*groupStats) {
	if group >= len(c.sites) || len(c.sites[group]) > maxStacksPerSite {
		return nil
	}
	for _, part := range c.sites[group] {
		if p := &c.parts[part]; p.allocs > 0 {
			parts = append(parts, p)
		}
	}
	return parts
}

// clone returns a copy that shares no memory.
func (g *groupStats) clone() groupStats {
	c := *g
	c.ages, c.stacks, c.trackers = slices.Clone(g.ages), maps.Clone(g.stacks), slices.Clone(g.trackers)
	c.sizes, c.sightings = maps.Clone(g.sizes), g.sightings.clone()
	for i := range c.trackers {
		c.trackers[i].floors = slices.Clone(g.trackers[i].floors)
	}
	return c
}

// addPart adds the memory of another stack. The sum of the floors is at most the floor of all memory
// together. It is lower by at most the bytes that were freed in the interval.
func (g *groupStats) addPart(p *groupStats) {
	if g.allocs == 0 {
		g.firstStack, g.memory, g.Device = p.firstStack, p.memory, p.Device
	}
	if g.memory != p.memory {
		g.memory = severalKindsMark
	}
	if p.LiveCount > 0 && g.Device != p.Device {
		g.Device = severalDevicesMark
	}
	g.hasSite = g.hasSite || p.hasSite
	g.allocs += p.allocs
	g.frees += p.frees
	g.allocBytes += p.allocBytes
	g.LiveBytes += p.LiveBytes
	g.LiveCount += p.LiveCount
	g.startBytes += p.startBytes
	g.hostBytes += p.hostBytes
	g.exited += p.exited
	g.ages = append(g.ages, p.ages...)
	for stack, bytes := range p.stacks {
		g.addStack(stack, bytes)
	}
	g.addSizes(p)
	g.addSightings(p)
	for i := range p.trackers {
		g.trackerOfProcess(p.trackers[i].pid).addTracker(&p.trackers[i])
	}
}

// addTracker adds the live bytes of another stack in the same process. Both have passed the same
// checkpoints.
func (t *floorTracker) addTracker(p *floorTracker) {
	t.liveBytes += p.liveBytes
	t.liveCount += p.liveCount
	t.exited += p.exited
	t.exitNs = max(t.exitNs, p.exitNs)
	t.floor += p.floor
	if t.floors == nil {
		t.floors = slices.Clone(p.floors)
		return
	}
	for i, floor := range p.floors {
		t.floors[i] += floor
	}
}
