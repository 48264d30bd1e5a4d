package hosttime

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/origin"
)

// Breakdown sums up the parts of many spans by cause and line. Spans that end at the same line form a group:
// their CPU time is divided by the samples of all of them, because a short span has no sample of its own. So is
// their time in run queues or waiting for the GIL without a stack: a thread loses both where it runs.
// It is not safe for concurrent use.
type Breakdown struct {
	h       *History
	siteOf  func(stack int32) string
	entries map[entryKey]*Entry
	recent  map[recentKey]*Entry
	groups  map[groupKey]*group
	inOrder []*group // groups in the order in which they were met, so that sums of floats do not differ
	// TotalNs is the length of all spans.
	TotalNs float64
}

// Entry is the time of a cause at a line in all spans. The owner and the target are those with the most time.
type Entry struct {
	Place
	Ns float64
	// CertainNs is the part of Ns whose cause and length are measured. The rest is estimated.
	CertainNs float64
	Spans     int64 // with this cause at this line
	// LongestNs is the longest part in a span, and LongestFromNs the start of that span, Unix ns.
	LongestNs, LongestFromNs int64
	Samples                  int64 // CPU samples behind the time
	// OwnerStack is the stack of what the owner did meanwhile; for CauseLoader, of what its workers did. 0: unknown.
	OwnerStack int32

	thread  origin.Thread    // of the longest part
	spanNs  int64            // of the span with the longest part
	owners  map[owner]int64  // ns
	targets map[string]int64 // ns
}

type owner struct {
	thread origin.Thread
	name   string
}

// entryKey identifies an Entry. site is the text of the line.
type entryKey struct {
	cause    Cause
	inLoader bool
	site     string
}

// recentKey finds an Entry without the text of its line.
type recentKey struct {
	cause    Cause
	inLoader bool
	stack    int32
}

// groupKey identifies a group of spans, and what samples tell about it: CPU time, garbage collections, or waits
// without a stack.
type groupKey struct {
	of    any
	cause Cause // CauseCPU, CauseGC, CauseRunQueue, CauseThrottled or CauseGIL
}

// group has the time of a cause in a group of spans.
type group struct {
	key      groupKey
	total    Entry
	beyondNs float64             // sum of Part.BeyondNs
	lines    map[recentKey]int64 // samples; of queues and the GIL, waits with a stack
}

// maxOwners bounds the owners and targets that are kept for an Entry.
const maxOwners = 256

// NewBreakdown returns an empty Breakdown. siteOf returns the text of the line of a stack.
func NewBreakdown(h *History, siteOf func(stack int32) string) *Breakdown {
	return &Breakdown{
		h: h, siteOf: siteOf, entries: make(map[entryKey]*Entry), recent: make(map[recentKey]*Entry),
		groups: make(map[groupKey]*group),
	}
}

// Add measures a span of a thread and adds its parts. of is the group of the span, and certain the share of its
// length that is certain. It returns the longest part.
func (b *Breakdown) Add(of any, th origin.Thread, fromNs, toNs int64, certain float64) (longest Part) {
	parts := b.h.Measure(th.Pid, th.Tid, fromNs, toNs)
	b.TotalNs += float64(max(0, toNs-fromNs))
	pooled := [2]Part{{Place: Place{Cause: CauseCPU}}, {Place: Place{Cause: CauseGC}}}
	for i := range parts {
		p := &parts[i]
		pool := &pooled[0]
		switch {
		case p.Cause == CauseGC:
			pool = &pooled[1]
			b.groupOf(groupKey{of, CauseGC}).beyondNs += float64(p.BeyondNs)
		case !p.Cause.IsRunning():
			if p.Ns > longest.Ns {
				longest = *p
			}
			b.entryOfWait(of, p).add(p, th, fromNs, toNs, certain)
			continue
		}
		if p.Ns > longest.Ns {
			longest = *p
		}
		pool.Ns, pool.CertainNs, pool.Samples = pool.Ns+p.Ns, pool.CertainNs+p.CertainNs, pool.Samples+p.Samples
		if p.Samples > 0 {
			lines := b.groupOf(groupKey{of, pool.Cause}).lines
			lines[recentKey{p.Cause, p.InLoader, p.Stack}] += int64(p.Samples)
		}
	}
	for i := range pooled {
		pool := &pooled[i]
		if pool.Ns > 0 {
			b.groupOf(groupKey{of, pool.Cause}).total.add(pool, th, fromNs, toNs, certain)
		}
		if pool.Ns > longest.Ns {
			longest = *pool
		}
	}
	return longest
}

// entryOfWait returns the Entry of a wait. Waits in run queues and for the GIL without a stack belong to their group
// until Finish.
func (b *Breakdown) entryOfWait(of any, p *Part) *Entry {
	if !p.Cause.isQueued() && p.Cause != CauseGIL {
		return b.entryOf(p.Place)
	}
	g := b.groupOf(groupKey{of, p.Cause})
	if p.Stack == 0 {
		return &g.total
	}
	g.lines[recentKey{p.Cause, p.InLoader, p.Stack}]++
	return b.entryOf(p.Place)
}

// LastParts returns the parts of the span that was added last. They are valid until the next Add.
func (b *Breakdown) LastParts() Parts { return b.h.parts }

// groupOf returns the group with a key.
func (b *Breakdown) groupOf(key groupKey) *group {
	g := b.groups[key]
	if g == nil {
		g = &group{key: key, total: Entry{Place: Place{Cause: key.cause}}, lines: make(map[recentKey]int64)}
		b.groups[key] = g
		b.inOrder = append(b.inOrder, g)
	}
	return g
}

// entryOf returns the Entry of a place.
func (b *Breakdown) entryOf(at Place) *Entry {
	near := recentKey{at.Cause, at.InLoader, at.Stack}
	e := b.recent[near]
	if e != nil {
		return e
	}
	key := entryKey{cause: at.Cause, inLoader: at.InLoader}
	if at.Stack != 0 {
		key.site = b.siteOf(at.Stack)
	}
	if e = b.entries[key]; e == nil {
		e = &Entry{Place: Place{Cause: at.Cause, Stack: at.Stack, InLoader: at.InLoader}}
		b.entries[key] = e
	}
	b.recent[near] = e
	return e
}

// add adds a part of a span.
func (e *Entry) add(p *Part, th origin.Thread, fromNs, toNs int64, certain float64) {
	e.Ns += float64(p.Ns)
	e.CertainNs += float64(p.CertainNs) * certain
	e.Spans++
	e.Samples += int64(p.Samples)
	if p.Ns > e.LongestNs {
		e.LongestNs, e.LongestFromNs, e.spanNs, e.thread = p.Ns, fromNs, toNs-fromNs, th
	}
	if o := (owner{p.Owner, p.OwnerName}); o != (owner{}) && (len(e.owners) < maxOwners || e.owners[o] > 0) {
		if e.owners == nil {
			e.owners = make(map[owner]int64)
		}
		e.owners[o] += p.Ns
	}
	if p.Target != "" && (len(e.targets) < maxOwners || e.targets[p.Target] > 0) {
		if e.targets == nil {
			e.targets = make(map[string]int64)
		}
		e.targets[p.Target] += p.Ns
	}
}

// LineOf returns the line with the most samples of CPU time, or of garbage collections, in a group. Without
// samples, ok is false.
func (b *Breakdown) LineOf(of any, c Cause) (at Place, ok bool) {
	g := b.groups[groupKey{of, c}]
	if g == nil || len(g.lines) == 0 {
		return at, false
	}
	best := g.sortedLines()[0]
	return Place{Cause: best.cause, InLoader: best.inLoader, Stack: best.stack}, true
}

// sortedLines returns the lines of the samples, the most samples first.
func (g *group) sortedLines() []recentKey {
	return slices.SortedFunc(maps.Keys(g.lines), func(a, b recentKey) int {
		return cmp.Or(cmp.Compare(g.lines[b], g.lines[a]), cmp.Compare(a.stack, b.stack))
	})
}

// Finish returns all entries, the longest first. Nothing can be added after it.
func (b *Breakdown) Finish() []*Entry {
	for _, g := range b.inOrder {
		switch key := g.key; {
		case key.cause == CauseGC:
			b.moveToPauses(g, b.groups[groupKey{key.of, CauseCPU}])
		case key.cause.isQueued(), key.cause == CauseGIL && len(g.lines) == 0:
			b.useLinesOfCPU(key, g)
		}
	}
	for _, g := range b.inOrder {
		b.divide(g)
	}
	list := make([]*Entry, 0, len(b.entries))
	for _, e := range b.entries {
		e.chooseOwner()
		e.OwnerStack = b.h.meanwhile(e)
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *Entry) int {
		return cmp.Or(cmp.Compare(b.Ns, a.Ns), cmp.Compare(a.Cause, b.Cause), cmp.Compare(a.Stack, b.Stack))
	})
	return list
}

// moveToPauses moves CPU time of a group to its garbage collections, as much as counts in its spans beyond them.
func (b *Breakdown) moveToPauses(pauses, ran *group) {
	if ran == nil || ran.total.Ns <= 0 {
		return
	}
	ns := min(pauses.beyondNs, ran.total.Ns)
	ran.total.CertainNs *= 1 - ns/ran.total.Ns
	ran.total.Ns -= ns
	pauses.total.Ns += ns
}

// useLinesOfCPU replaces the lines of waits in run queues, or for the GIL, by those in which the spans of the group
// ran. The other lines are of waits for something else that ended in a run queue.
func (b *Breakdown) useLinesOfCPU(key groupKey, waited *group) {
	ran := b.groups[groupKey{key.of, CauseCPU}]
	if ran == nil || len(ran.lines) == 0 {
		return
	}
	clear(waited.lines)
	for line, samples := range ran.lines {
		waited.lines[recentKey{key.cause, line.inLoader, line.stack}] += samples
	}
}

// divide gives the time of a group to the lines of its samples.
func (b *Breakdown) divide(g *group) {
	t := &g.total
	if t.Ns == 0 {
		return
	}
	all := int64(0)
	for _, n := range g.lines {
		all += n
	}
	if all == 0 {
		b.entryOf(t.Place).merge(t, 1)
		return
	}
	for _, line := range g.sortedLines() {
		share := float64(g.lines[line]) / float64(all)
		e := b.entryOf(Place{Cause: line.cause, InLoader: line.inLoader, Stack: line.stack})
		e.merge(t, share)
	}
}

// merge adds a share of the time of a group. The longest span stays as long as it is.
func (e *Entry) merge(t *Entry, share float64) {
	e.Ns += share * t.Ns
	e.CertainNs += share * t.CertainNs
	e.Spans += max(1, int64(share*float64(t.Spans)+0.5))
	e.Samples += int64(share*float64(t.Samples) + 0.5)
	for o, ns := range t.owners {
		if e.owners == nil {
			e.owners = make(map[owner]int64)
		}
		e.owners[o] += int64(share * float64(ns))
	}
	for target, ns := range t.targets {
		if e.targets == nil {
			e.targets = make(map[string]int64)
		}
		e.targets[target] += int64(share * float64(ns))
	}
	if longest := int64(share * float64(t.LongestNs)); longest > e.LongestNs {
		e.LongestNs, e.LongestFromNs, e.spanNs, e.thread = longest, t.LongestFromNs, t.spanNs, t.thread
	}
}

// chooseOwner sets the owner and the target with the most time.
func (e *Entry) chooseOwner() {
	most := int64(0)
	for o, ns := range e.owners {
		if ns > most || ns == most && o.name < e.OwnerName {
			most, e.Owner, e.OwnerName = ns, o.thread, o.name
		}
	}
	most = 0
	for target, ns := range e.targets {
		if ns > most || ns == most && target < e.Target {
			most, e.Target = ns, target
		}
	}
}

// meanwhile returns the stack of what the owner did in the longest span: on a processor, or else in its
// longest wait. For waits for a data loader it is that of the busiest worker.
func (h *History) meanwhile(e *Entry) int32 {
	threads := []origin.Thread{e.Owner}
	switch {
	case e.Cause == CauseLoader:
		threads = h.index.workers[e.thread.Pid]
	case e.Owner == origin.Thread{} || e.Cause != CauseGIL && e.Cause != CauseLock:
		return 0
	}
	ns := make(map[int32]int64) // by stack
	for _, th := range threads {
		v := h.viewOf(th, e.LongestFromNs, e.LongestFromNs+e.spanNs)
		toNs := e.LongestFromNs + e.spanNs
		v.eachSample(e.LongestFromNs, toNs, func(s *CPUSample) { ns[s.Stack] += s.ForNs })
		v.eachWait(e.LongestFromNs, toNs, func(w *Wait) {
			if h.index.isLoader[w.Stack] != loaderIdle {
				ns[w.Stack] += (min(w.ToNs, toNs) - max(w.FromNs, e.LongestFromNs)) / 2 // CPU time says more
			}
		})
	}
	delete(ns, 0)
	best := int32(0)
	for stack, n := range ns {
		if n > ns[best] || n == ns[best] && stack < best {
			best = stack
		}
	}
	return best
}
