package hosttime

import (
	"cmp"
	"maps"
	"slices"
	"strings"

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
	pools   []Part   // memory of Add: CPU time and garbage collections of a span, by thread
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
	// Ends is the number of threads at the ends of chains. Chain leads to the one with the most time.
	Ends int

	thread  origin.Thread    // of the longest part
	spanNs  int64            // of the span with the longest part
	owners  map[owner]int64  // ns
	wakers  map[owner]int64  // ns
	targets map[string]int64 // ns
	chains  map[Chain]int64  // ns
}

type owner struct {
	thread origin.Thread
	name   string
}

// entryKey identifies an Entry. site is the text of the line.
type entryKey struct {
	recentKey        // its stack is 0
	site      string // "": unknown
}

// recentKey finds an Entry without the text of its line.
type recentKey struct {
	cause    Cause
	inLoader bool
	stack    int32
	chain    chainKey
}

// chainKey tells apart places at the ends of chains. Without a line, each thread has its own place.
type chainKey struct {
	isOther, inLoader bool
	end               origin.Thread
}

// keyOf returns the key of a place.
func keyOf(at *Place) recentKey {
	key := recentKey{cause: at.Cause, inLoader: at.InLoader, stack: at.Stack}
	key.chain = chainKey{isOther: at.Chain.IsOther(), inLoader: at.Chain.InLoader}
	if at.Stack == 0 {
		key.chain.end = at.Chain.End
	}
	return key
}

// groupKey identifies a group of spans, and what samples tell about it: CPU time, garbage collections, or waits
// without a stack.
type groupKey struct {
	of    any
	end   origin.Thread // of the chain
	cause Cause         // CauseCPU, CauseGC, CauseRunQueue, CauseThrottled or CauseGIL
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
	b.pools = b.pools[:0]
	for i := range parts {
		p := &parts[i]
		if p.Ns > longest.Ns {
			longest = *p
		}
		if p.Cause == CauseGC || p.Cause.IsRunning() {
			b.pool(of, p)
		} else {
			b.entryOfWait(of, p).add(p, th, fromNs, toNs, certain)
		}
	}
	for i := range b.pools {
		pool := &b.pools[i]
		if pool.Ns > 0 {
			b.groupOf(of, &pool.Place).total.add(pool, th, fromNs, toNs, certain)
		}
		if pool.Ns > longest.Ns {
			longest = *pool
		}
	}
	return longest
}

// pool adds CPU time, or a garbage collection, to the sum of its thread in the span.
func (b *Breakdown) pool(of any, p *Part) {
	cause := CauseCPU
	if p.Cause == CauseGC {
		cause = CauseGC
	}
	i := slices.IndexFunc(b.pools, func(o Part) bool { return o.Cause == cause && o.Chain.End == p.Chain.End })
	if i < 0 {
		i = len(b.pools)
		b.pools = append(b.pools, Part{Place: Place{Cause: cause, Chain: p.Chain}})
	}
	pool := &b.pools[i]
	pool.Ns, pool.CertainNs, pool.Samples = pool.Ns+p.Ns, pool.CertainNs+p.CertainNs, pool.Samples+p.Samples
	if cause == CauseGC {
		b.groupOf(of, &pool.Place).beyondNs += float64(p.BeyondNs)
	}
	if p.Samples > 0 {
		b.groupOf(of, &pool.Place).lines[keyOf(&p.Place)] += int64(p.Samples)
	}
}

// entryOfWait returns the Entry of a wait. Waits in run queues and for the GIL without a stack belong to their group
// until Finish.
func (b *Breakdown) entryOfWait(of any, p *Part) *Entry {
	if !p.Cause.isQueued() && p.Cause != CauseGIL {
		return b.entryOf(p.Place)
	}
	g := b.groupOf(of, &p.Place)
	if p.Stack == 0 {
		return &g.total
	}
	g.lines[keyOf(&p.Place)]++
	return b.entryOf(p.Place)
}

// LastParts returns the parts of the span that was added last. They are valid until the next Add.
func (b *Breakdown) LastParts() Parts { return b.h.parts }

// groupOf returns the group of a place in the spans of a group.
func (b *Breakdown) groupOf(of any, at *Place) *group {
	key := groupKey{of, at.Chain.End, at.Cause}
	g := b.groups[key]
	if g == nil {
		total := Entry{Place: Place{Cause: at.Cause, Chain: at.Chain}}
		g = &group{key: key, total: total, lines: make(map[recentKey]int64)}
		b.groups[key] = g
		b.inOrder = append(b.inOrder, g)
	}
	return g
}

// entryOf returns the Entry of a place.
func (b *Breakdown) entryOf(at Place) *Entry {
	near := keyOf(&at)
	e := b.recent[near]
	if e != nil {
		return e
	}
	key := entryKey{recentKey: near}
	key.stack = 0
	if at.Stack != 0 {
		key.site = b.siteOf(at.Stack)
	}
	if e = b.entries[key]; e == nil {
		e = &Entry{Place: Place{Cause: at.Cause, Stack: at.Stack, InLoader: at.InLoader, Chain: at.Chain}}
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
	addNs(&e.owners, owner{p.Owner, p.OwnerName}, p.Ns)
	addNs(&e.wakers, owner{p.Waker, p.WakerName}, p.Ns)
	addNs(&e.targets, p.Target, p.Ns)
	if p.Chain.IsOther() {
		addNs(&e.chains, p.Chain, p.Ns)
	}
}

// addNs adds time to a key of a map, which it makes. The zero key, and new keys of a full map, are left out.
func addNs[K comparable](to *map[K]int64, key K, ns int64) {
	var zero K
	if key == zero || len(*to) >= maxOwners && (*to)[key] == 0 {
		return
	}
	if *to == nil {
		*to = make(map[K]int64)
	}
	(*to)[key] += ns
}

// LineOf returns the line with the most samples of CPU time, or of garbage collections, of the threads of a group. Without
// samples, ok is false.
func (b *Breakdown) LineOf(of any, c Cause) (at Place, ok bool) {
	g := b.groups[groupKey{of: of, cause: c}]
	if g == nil || len(g.lines) == 0 {
		return at, false
	}
	best := g.sortedLines()[0]
	return Place{Cause: best.cause, InLoader: best.inLoader, Stack: best.stack}, true
}

// sortedLines returns the lines of the samples, the most samples first.
func (g *group) sortedLines() []recentKey {
	return slices.SortedFunc(maps.Keys(g.lines), func(a, b recentKey) int {
		return cmp.Or(cmp.Compare(g.lines[b], g.lines[a]), cmp.Compare(a.stack, b.stack),
			compareThreads(a.chain.end, b.chain.end))
	})
}

// Finish returns all entries, the longest first. Nothing can be added after it.
func (b *Breakdown) Finish() []*Entry {
	for _, g := range b.inOrder {
		switch key := g.key; {
		case key.cause == CauseGC:
			b.moveToPauses(g, b.groups[groupKey{key.of, key.end, CauseCPU}])
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
	ran := b.groups[groupKey{key.of, key.end, CauseCPU}]
	if ran == nil || len(ran.lines) == 0 {
		return
	}
	clear(waited.lines)
	for line, samples := range ran.lines {
		line.cause = key.cause
		waited.lines[line] += samples
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
		at := Place{Cause: line.cause, InLoader: line.inLoader, Stack: line.stack, Chain: t.Chain}
		at.Chain.InLoader = line.chain.inLoader
		b.entryOf(at).merge(t, share)
	}
}

// merge adds a share of the time of a group. The longest span stays as long as it is.
func (e *Entry) merge(t *Entry, share float64) {
	e.Ns += share * t.Ns
	e.CertainNs += share * t.CertainNs
	e.Spans += max(1, int64(share*float64(t.Spans)+0.5))
	e.Samples += int64(share*float64(t.Samples) + 0.5)
	mergeNs(&e.owners, t.owners, share)
	mergeNs(&e.wakers, t.wakers, share)
	mergeNs(&e.targets, t.targets, share)
	mergeNs(&e.chains, t.chains, share)
	if longest := int64(share * float64(t.LongestNs)); longest > e.LongestNs {
		e.LongestNs, e.LongestFromNs, e.spanNs, e.thread = longest, t.LongestFromNs, t.spanNs, t.thread
	}
}

// mergeNs adds a share of the times of a map.
func mergeNs[K comparable](to *map[K]int64, from map[K]int64, share float64) {
	for key, ns := range from {
		if *to == nil {
			*to = make(map[K]int64)
		}
		(*to)[key] += int64(share * float64(ns))
	}
}

// chooseOwner sets the owner, the waker, the target and the chain with the most time.
func (e *Entry) chooseOwner() {
	if o, ok := longestOf(e.owners, owner.compare); ok {
		e.Owner, e.OwnerName = o.thread, o.name
	}
	if w, ok := longestOf(e.wakers, owner.compare); ok {
		e.Waker, e.WakerName = w.thread, w.name
	}
	if target, ok := longestOf(e.targets, strings.Compare); ok {
		e.Target = target
	}
	if c, ok := longestOf(e.chains, Chain.compare); ok {
		inLoader := e.Chain.InLoader
		e.Chain = c
		e.Chain.InLoader = inLoader
	}
	ends := make(map[origin.Thread]bool)
	for c := range e.chains {
		ends[c.End] = true
	}
	e.Ends = len(ends)
}

// longestOf returns the key with the most time, of equal ones the first. Keys without time do not count.
func longestOf[K comparable](times map[K]int64, compare func(a, b K) int) (best K, ok bool) {
	most := int64(0)
	for key, ns := range times {
		if ns > most || ns == most && ok && compare(key, best) < 0 {
			most, best, ok = ns, key, true
		}
	}
	return best, ok
}

func (o owner) compare(other owner) int {
	return cmp.Or(strings.Compare(o.name, other.name), compareThreads(o.thread, other.thread))
}

func (c Chain) compare(o Chain) int {
	return cmp.Or(compareThreads(c.End, o.End), cmp.Compare(c.Links, o.Links), cmp.Compare(c.Stack, o.Stack),
		cmp.Compare(c.Cause, o.Cause), strings.Compare(c.EndName, o.EndName))
}

func compareThreads(a, b origin.Thread) int {
	return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Tid, b.Tid))
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
