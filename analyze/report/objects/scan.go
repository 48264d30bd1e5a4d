package objects

import (
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/objects"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/format"
)

// Scan counts objects by kind and call site. It reads row groups by AddGroup, and Finish ends it. A Scan
// is not safe for concurrent use.
type Scan struct {
	t           *timeline.Timeline
	Grouping    *group.Grouping
	Window      query.Window
	Counts      [objects.NumKinds]objects.Counts // calls that the replay could not match, after Finish
	calls       *objects.Replay                  // calls of class call
	memory      *objects.Replay                  // calls of class memory
	checkpoints stats.Checkpoints                // of the floors: the lowest numbers of live objects
	sites       []siteStats
	bySite      map[siteKey]int32
	// byOrigin has, for each origin, 1 + the index of its site, or one of the constants below.
	byOrigin []int32
	kinds    [objects.NumKinds]kindStats
	matched  bool // an object passed the filter
}

// Values of Scan.byOrigin for origins without a site.
const (
	originUnknown  = 0 // not decided yet
	originFiltered = -1
)

// siteKey identifies the objects of one kind from one group of call sites.
type siteKey struct {
	group int32
	kind  objects.Kind
}

// siteStats are the counters of the objects of one kind that one call site created.
type siteStats struct {
	siteKey
	created, destroyed int64
	withContext        int64 // objects that ended with their context
	exited             int64 // live objects when their process ended
	live, peak         int64
	early              int64 // unfinished objects that were created in the warm-up
	ages               []int64
	trackers           trackerList
	stacks             map[int32]int64 // live objects at the end, by stack
	firstStack         int32           // stack of the first creation
}

// kindStats are the counters of all objects of a kind.
type kindStats struct {
	created, destroyed, withContext, live, peak int64
	// trackers has the objects of all call sites, for kinds whose objects have no identity.
	trackers trackerList
}

// tracker tracks the live objects of a site in one process.
type tracker struct {
	pid int32
	stats.Floor
	exited int64 // live objects when the process ended
	exitNs int64 // when it ended, Unix ns
}

// GroupNames returns the group names that NewScan accepts, the default first. Objects have no size, and
// no stream.
func GroupNames() []string {
	return slices.DeleteFunc(group.GroupNames(), func(name string) bool { return name == "size" || name == "stream" })
}

// trackerList has one tracker per process.
type trackerList []tracker

// of returns the tracker of a process, and creates it if necessary.
func (l *trackerList) of(pid int32) *tracker {
	for i := range *l {
		if (*l)[i].pid == pid {
			return &(*l)[i]
		}
	}
	*l = append(*l, tracker{pid: pid})
	return &(*l)[len(*l)-1]
}

// passCheckpoints ends the intervals before checkpoint n in all processes.
func (l trackerList) passCheckpoints(n int) {
	for i := range l {
		l[i].PassCheckpoints(n)
	}
}

// NewScan returns a scan of the objects whose creation passes opt.Filter. It returns a
// *report.GroupError for an unknown opt.GroupBy.
func NewScan(t *timeline.Timeline, opt *query.Options) (*Scan, error) {
	if names := GroupNames(); opt.GroupBy != "" && !slices.Contains(names, opt.GroupBy) {
		return nil, &report.GroupError{Name: opt.GroupBy, Known: names}
	}
	by, err := group.NewGrouping(t, opt.GroupBy, &opt.Filter)
	if err != nil {
		return nil, err
	}
	by.Suppress = group.NewSuppressor(t, opt.Suppressions)
	s := &Scan{t: t, Grouping: by, Window: opt.Filter.NarrowWindow(callWindow(t)), bySite: make(map[siteKey]int32)}
	s.checkpoints = stats.NewCheckpoints(s.Window.FromNs, s.Window.ToNs)
	s.calls, s.memory = objects.NewReplay(t, s.onChange), objects.NewReplay(t, s.onChange)
	return s, nil
}

// callWindow returns the window from the first call to the end of the recording, or of the last
// process.
func callWindow(t *timeline.Timeline) query.Window {
	w := t.RecordingWindow()
	first := int64(math.MaxInt64)
	for _, spans := range [][]timeline.Span{t.Memory, t.Calls} {
		for _, s := range spans {
			first = min(first, s.FirstNs)
		}
	}
	if first > w.FromNs && first < w.ToNs {
		w.FromNs = first
	}
	if end, ok := t.Facts.LastExit(); ok && end > w.FromNs && end < w.ToNs {
		w.ToNs = end
	}
	return w
}

// AddGroup adds the calls of a row group. g has the rows of sp.Group, and may cache its columns. The
// groups of a class must come in the order of their FirstNs.
func (s *Scan) AddGroup(sp timeline.Span, g *format.Group) {
	if sp.Group.Class() == format.ClassMemory {
		s.memory.AddGroup(sp, g)
	} else {
		s.calls.AddGroup(sp, g)
	}
}

// onChange counts a change of the replay.
func (s *Scan) onChange(c *objects.Change) {
	if c.Object.SinceNs < s.Window.FromNs || c.Object.SinceNs > s.Window.ToNs {
		return
	}
	site := s.siteOf(c.Object)
	if site == nil {
		if c.Kind == objects.ChangeEndedByExit || c.Kind != objects.ChangeCreated && c.AtNs > s.Window.ToNs {
			s.countSuppressed(c.Object)
		}
		return
	}
	if c.AtNs > s.Window.ToNs {
		s.addUnfinished(site, c.Object, s.Window.ToNs)
		return
	}
	kind := &s.kinds[site.kind]
	pid, checkpoint := s.t.Origins.List[c.Object.Origin].Pid, s.checkpoints.CountBefore(c.AtNs)
	in := site.trackers.of(pid)
	in.PassCheckpoints(checkpoint)
	if !site.kind.HasIdentity() {
		kind.trackers.of(pid).PassCheckpoints(checkpoint)
	}
	switch c.Kind {
	case objects.ChangeCreated:
		site.created, kind.created = site.created+1, kind.created+1
		site.change(in, kind, +1)
	case objects.ChangeDestroyed, objects.ChangeDestroyLost:
		site.destroyed, kind.destroyed = site.destroyed+1, kind.destroyed+1
		site.change(in, kind, -1)
	case objects.ChangeEndedWithContext:
		site.withContext, kind.withContext = site.withContext+1, kind.withContext+1
		site.change(in, kind, -1)
	case objects.ChangeEndedByExit:
		// The end of the process ended the object, not the program. It stays live in this report.
		site.exited++
		in.exited++
		in.exitNs = max(in.exitNs, c.AtNs)
		s.addUnfinished(site, c.Object, c.AtNs)
	}
}

// siteOf returns the statistics of an object's call site, or nil if a filter or a suppression leaves it
// out. The function of an origin gives the kind of its objects.
func (s *Scan) siteOf(o objects.Object) *siteStats {
	for int(o.Origin) >= len(s.byOrigin) {
		s.byOrigin = append(s.byOrigin, originUnknown)
	}
	if s.byOrigin[o.Origin] == originUnknown {
		s.byOrigin[o.Origin] = s.findSite(o)
	}
	if i := s.byOrigin[o.Origin]; i > 0 {
		return &s.sites[i-1]
	}
	return nil
}

// findSite returns the value of byOrigin for an object's origin.
func (s *Scan) findSite(o objects.Object) int32 {
	i, ok := s.Grouping.GroupOf(o.Origin, math.MaxInt64)
	if !ok {
		s.matched = s.matched || s.Grouping.IsSuppressed(o.Origin, math.MaxInt64)
		return originFiltered
	}
	s.matched = true
	key := siteKey{i, o.Kind}
	n, ok := s.bySite[key]
	if !ok {
		n = int32(len(s.sites))
		s.bySite[key] = n
		s.sites = append(s.sites, siteStats{
			siteKey: key, stacks: make(map[int32]int64), firstStack: s.t.Origins.List[o.Origin].Stack,
		})
	}
	return n + 1
}

// countSuppressed counts an object that the program did not destroy, if a suppression matches it.
func (s *Scan) countSuppressed(o objects.Object) {
	if s.Grouping.IsSuppressed(o.Origin, math.MaxInt64) {
		which, _ := s.Grouping.Suppress.FindSuppression(o.Origin)
		s.Grouping.Suppress.CountBlock(which, &livemem.Block{})
	}
}

// change adds to the numbers of live objects.
func (s *siteStats) change(in *tracker, kind *kindStats, by int64) {
	in.Add(by)
	if !s.kind.HasIdentity() {
		kind.trackers.of(in.pid).Add(by)
	}
	s.live, kind.live = s.live+by, kind.live+by
	s.peak, kind.peak = max(s.peak, s.live), max(kind.peak, kind.live)
}

// addUnfinished adds an object that the program had not destroyed at atNs, Unix ns.
func (s *Scan) addUnfinished(g *siteStats, o objects.Object, atNs int64) {
	g.ages = append(g.ages, max(0, atNs-o.SinceNs))
	if o.SinceNs <= s.checkpoints.WarmNs {
		g.early++
	}
	g.stacks[s.t.Origins.List[o.Origin].Stack]++
}

// Finish ends the scan after the last row group.
func (s *Scan) Finish() {
	for _, r := range []*objects.Replay{s.memory, s.calls} {
		r.Finish()
		r.EachLive(func(_ int64, o objects.Object) {
			if o.SinceNs >= s.Window.FromNs && o.SinceNs <= s.Window.ToNs {
				if site := s.siteOf(o); site != nil {
					s.addUnfinished(site, o, s.Window.ToNs)
				} else {
					s.countSuppressed(o)
				}
			}
		})
		for kind := range s.Counts {
			s.Counts[kind].Older += r.Counts[kind].Older
			s.Counts[kind].Unknown += r.Counts[kind].Unknown
			s.Counts[kind].LostDestroys += r.Counts[kind].LostDestroys
			s.Counts[kind].Nested += r.Counts[kind].Nested
		}
	}
	for i := range s.sites {
		slices.Sort(s.sites[i].ages)
		s.sites[i].trackers.passCheckpoints(stats.CheckpointCount + 1)
	}
	for i := range s.kinds {
		s.kinds[i].trackers.passCheckpoints(stats.CheckpointCount + 1)
	}
}

// floorsUntilExit returns the floors up to the end of the process.
func (s *Scan) floorsUntilExit(c *tracker) []int64 {
	if c.Level == 0 || c.exited < c.Level {
		return c.Floors
	}
	return c.Floors[:min(len(c.Floors), max(0, s.checkpoints.CountBefore(c.exitNs)-1))]
}

// StackID returns the id of the stack that created most of the live objects, or the first object if none
// is live.
func (s *siteStats) StackID() int32 {
	best, most := s.firstStack, int64(-1)
	for id, n := range s.stacks {
		if n > most || n == most && id < best {
			best, most = id, n
		}
	}
	return best
}
