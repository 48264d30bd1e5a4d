package waitgraph

import (
	"cmp"
	"math"
	"slices"
)

// noKind is the kind of sinks that are no fault.
const noKind = Kind(math.MaxUint8)

// groupKey joins sinks to one fault: those of a kind for which the same operation waits.
type groupKey struct {
	kind Kind
	wait int // index in graph.waits
}

// groupOf returns the group of a sink.
func (g *graph) groupOf(nodes []int) groupKey {
	ranks := len(g.job.Ranks)
	n := nodes[0]
	switch {
	case len(nodes) > 1:
		i := slices.IndexFunc(nodes, func(n int) bool { return n >= g.wait(0) })
		return groupKey{Cycle, nodes[i] - g.wait(0)}
	case n < g.wait(0):
		if g.early[n%ranks] {
			return groupKey{kind: Died}
		}
		return groupKey{Missing, g.firstWaitFor(n)}
	}
	i := n - g.wait(0)
	w, instance := &g.waits[i], g.blocked[i]
	switch {
	case instance.differs:
		return groupKey{Mismatch, i}
	case instance.owner >= 0:
		return groupKey{UnknownPeer, i}
	case w.Unknown > 0:
		return groupKey{Unrecorded, i}
	case instance.open && g.unmatchedBefore(instance) != nil:
		return groupKey{UnknownPeer, i}
	case instance.open:
		return groupKey{Stuck, i}
	}
	return groupKey{kind: noKind}
}

// unmatchedBefore returns a Send or Recv that runs before an instance on a stream of one of its ranks, and whose other side
// is unknown: it may be what does not end. It returns nil if there is none.
func (g *graph) unmatchedBefore(n *instance) *instance {
	for _, c := range n.calls {
		operations := g.job.Ranks[c.rank].Operations
		for i := range operations[:c.operation] {
			o := &operations[i]
			if !o.isPeerToPeer() || o.Progress == Done || o.Stream != operations[c.operation].Stream {
				continue
			}
			if before := g.run.instances[g.run.keyOf(c.rank, o)]; before != nil && before.owner >= 0 {
				return before
			}
		}
	}
	return nil
}

// firstWaitFor returns the operation that waits for a node for the longest time.
func (g *graph) firstWaitFor(node int) int {
	first := -1
	for _, from := range g.reverse[node] {
		i := from - g.wait(0)
		if i >= 0 && (first < 0 || g.waits[i].SinceNs < g.waits[first].SinceNs) {
			first = i
		}
	}
	if first < 0 { // only the rank's own host waits for it
		first = 0
	}
	return first
}

// faultOf returns the fault of a group of sinks.
func (g *graph) faultOf(k groupKey, nodes []int) Fault {
	f := Fault{Kind: k.kind}
	var waits []int
	if k.kind != Died {
		waits = append(waits, k.wait)
	}
	for _, n := range nodes {
		switch {
		case n >= g.wait(0):
			waits = append(waits, n-g.wait(0))
			continue
		case k.kind == Cycle && n < g.gpu(0) && g.job.Ranks[n].Host == HostUnknown,
			k.kind == Missing && g.mayWait(n%len(g.job.Ranks)):
			f.Guessed = true
		}
		f.Ranks = append(f.Ranks, n%len(g.job.Ranks))
		if k.kind != Cycle {
			for _, from := range g.reverse[n] {
				if from >= g.wait(0) {
					waits = append(waits, from-g.wait(0))
				}
			}
		}
	}
	switch k.kind {
	case Stuck, Unrecorded, UnknownPeer:
		f.Ranks = slices.Clone(g.waits[k.wait].Called)
	case Mismatch:
		g.setSides(&f, k.wait)
	}
	slices.Sort(waits)
	waits = slices.Compact(waits)
	slices.SortStableFunc(waits, func(a, b int) int { return cmp.Compare(g.waits[a].SinceNs, g.waits[b].SinceNs) })
	for _, i := range waits {
		f.Waits = append(f.Waits, g.waits[i])
	}
	if k.kind == UnknownPeer && g.blocked[k.wait].owner < 0 {
		before := g.waitOf(g.unmatchedBefore(g.blocked[k.wait]))
		f.Ranks, f.Waits = slices.Clone(before.Called), slices.Insert(f.Waits, 0, before)
	}
	slices.Sort(f.Ranks)
	f.Ranks = slices.Compact(f.Ranks)
	f.Waiting = g.countWaiting(nodes, f.Ranks)
	if k.kind == Died {
		g.setDeathOrder(&f)
	}
	return f
}

// mayWait reports whether a rank may wait for one of its operations. Nothing says that they have ended.
func (g *graph) mayWait(rank int) bool {
	return g.job.Ranks[rank].Host != HostElsewhere && len(g.run.byRank[rank]) > 0
}

// countWaiting counts the ranks from which a path leads to the nodes, without the culprits.
func (g *graph) countWaiting(nodes, culprits []int) int {
	seen := make([]bool, len(g.edges))
	todo := slices.Clone(nodes)
	for _, n := range todo {
		seen[n] = true
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, from := range g.reverse[n] {
			if !seen[from] {
				seen[from] = true
				todo = append(todo, from)
			}
		}
	}
	count := 0
	for rank := range g.job.Ranks {
		if _, culprit := slices.BinarySearch(culprits, rank); !culprit && seen[g.gpu(rank)] {
			count++
		}
	}
	return count
}

// setDeathOrder compares the first death with the first wait.
func (g *graph) setDeathOrder(f *Fault) {
	dead := slices.MinFunc(f.Ranks, func(a, b int) int {
		return cmp.Compare(g.job.Ranks[a].DeadNs, g.job.Ranks[b].DeadNs)
	})
	f.LeadNs = math.MaxInt64
	clockError := int64(0)
	for _, rank := range f.Waits[0].Called {
		operations := g.job.Ranks[rank].Operations
		for i := range operations {
			o := &operations[i]
			if o.Communicator != f.Waits[0].Communicator || o.Number != f.Waits[0].Number || rank == dead {
				continue
			}
			f.LeadNs = min(f.LeadNs, o.StartNs-g.job.Ranks[dead].DeadNs)
			if g.job.ClockErrorNs != nil {
				clockError = max(clockError, g.job.ClockErrorNs(dead, rank))
			}
		}
	}
	switch {
	case f.LeadNs > clockError:
		f.Order = DeathFirst
	case f.LeadNs >= -clockError:
		f.Order = DeathWithin
	default:
		f.Order = DeathShortly
	}
}
