package waitgraph

import (
	"cmp"
	"slices"
)

// Solve finds the faults that make ranks stand still. A job without ranks that stand still has none.
func Solve(job *Job) *Verdict {
	verdict := newGraph(job, newRun(job, false)).verdict()
	onlyStuck := len(verdict.Faults) > 1
	for i := range verdict.Faults {
		onlyStuck = onlyStuck && verdict.Faults[i].Kind == Stuck
	}
	if !onlyStuck {
		return verdict
	}
	// Several operations do not end though all ranks called them: look for two orders over streams.
	serial := newGraph(job, newRun(job, true)).verdict()
	if len(serial.Faults) > 0 && serial.Faults[0].Kind == Cycle {
		for i := range serial.Faults {
			serial.Faults[i].Guessed = true
		}
		return serial
	}
	return verdict
}

// graph is the wait-for graph. Its nodes are the hosts of ranks, their GPUs, and operations that do not end.
type graph struct {
	job      *Job
	run      *run
	waits    []Wait
	blocked  []*instance // with the same index as waits
	early    []bool      // ranks that died before, or with, the waits
	standing []bool      // ranks without progress for Job.LongNs
	heads    [][]int     // operations at the front of each rank's queues: indexes in waits
	edges    [][]int
	reverse  [][]int
}

// newGraph builds the graph of a run.
func newGraph(job *Job, r *run) *graph {
	g := &graph{job: job, run: r, heads: make([][]int, len(job.Ranks))}
	var candidates []*instance
	for _, n := range r.order {
		if !n.ended && n.ready > 0 {
			candidates = append(candidates, n)
		}
	}
	g.setDeaths(candidates)
	for _, n := range candidates {
		w := g.waitOf(n)
		waiters := slices.ContainsFunc(n.calls, func(c call) bool { return c.front && g.waitsIn(c.rank) })
		if !waiters || g.recordedUntil(&w)-w.SinceNs < job.LongNs {
			continue
		}
		for _, c := range n.calls {
			if c.front && g.waitsIn(c.rank) {
				g.heads[c.rank] = append(g.heads[c.rank], len(g.waits))
			}
		}
		g.waits, g.blocked = append(g.waits, w), append(g.blocked, n)
	}
	g.connect()
	return g
}

// setDeaths finds the ranks that stand still, and those whose death is not a consequence of the hang.
func (g *graph) setDeaths(candidates []*instance) {
	first := g.job.EndNs
	for _, n := range candidates {
		first = min(first, sinceOf(g.job, n))
	}
	g.early, g.standing = make([]bool, len(g.job.Ranks)), make([]bool, len(g.job.Ranks))
	for i := range g.job.Ranks {
		rank := &g.job.Ranks[i]
		end := g.endOf(i)
		if rank.DeadNs != 0 {
			g.early[i] = rank.DeadNs-first < g.job.LongNs
			end = min(end, rank.DeadNs)
		}
		g.standing[i] = end-rank.LastNs >= g.job.LongNs
	}
}

// endOf returns the end of a rank's recording, Unix ns.
func (g *graph) endOf(rank int) int64 {
	if end := g.job.Ranks[rank].EndNs; end != 0 {
		return end
	}
	return g.job.EndNs
}

// recordedUntil returns the time until which all living ranks of an operation were recorded, Unix ns. A rank may have
// called it later.
func (g *graph) recordedUntil(w *Wait) int64 {
	until := g.job.EndNs
	for _, rank := range slices.Concat(w.Called, w.NotCalled) {
		if g.job.Ranks[rank].DeadNs == 0 {
			until = min(until, g.endOf(rank))
		}
	}
	return until
}

// waitsIn reports whether a rank can wait in an operation.
func (g *graph) waitsIn(rank int) bool { return g.standing[rank] && !g.early[rank] }

// sinceOf returns the time of the last call of an instance, Unix ns.
func sinceOf(job *Job, n *instance) int64 {
	since := int64(0)
	for _, c := range n.calls {
		since = max(since, job.Ranks[c.rank].Operations[c.operation].StartNs)
	}
	return since
}

// waitOf describes an operation that does not end.
func (g *graph) waitOf(n *instance) Wait {
	w := Wait{
		Communicator: n.communicator, Number: n.number, Sender: n.sender, Receiver: n.receiver,
		SinceNs: sinceOf(g.job, n),
	}
	for _, c := range n.calls {
		if len(w.Called) == 0 || w.Called[len(w.Called)-1] != c.rank {
			w.Called = append(w.Called, c.rank)
		}
		if !c.front && !slices.Contains(w.Behind, c.rank) {
			w.Behind = append(w.Behind, c.rank)
		}
	}
	for i, m := range n.members {
		switch {
		case m == NotRecorded:
			w.Unknown++
		case !n.calledBy(m) && !g.run.passed(n, i):
			w.NotCalled = append(w.NotCalled, m)
		}
	}
	slices.Sort(w.NotCalled)
	return w
}

// host returns the number of the node for the host of a rank.
func (g *graph) host(rank int) int { return rank }

// gpu returns the number of the node for the GPU of a rank.
func (g *graph) gpu(rank int) int { return len(g.job.Ranks) + rank }

// wait returns the number of the node for wait i.
func (g *graph) wait(i int) int { return 2*len(g.job.Ranks) + i }

// connect adds the edges.
func (g *graph) connect() {
	count := 2*len(g.job.Ranks) + len(g.waits)
	g.edges, g.reverse = make([][]int, count), make([][]int, count)
	add := func(from, to int) {
		g.edges[from], g.reverse[to] = append(g.edges[from], to), append(g.reverse[to], from)
	}
	for rank := range g.job.Ranks {
		if g.early[rank] {
			continue
		}
		if g.job.Ranks[rank].Host != HostElsewhere && len(g.heads[rank]) > 0 {
			add(g.host(rank), g.gpu(rank))
		}
		for _, w := range g.heads[rank] {
			add(g.gpu(rank), g.wait(w))
		}
	}
	for i := range g.waits {
		if g.blocked[i].differs {
			continue
		}
		for _, rank := range g.waits[i].NotCalled {
			add(g.wait(i), g.host(rank))
		}
		for _, rank := range g.waits[i].Behind {
			add(g.wait(i), g.gpu(rank))
		}
		for _, rank := range g.waits[i].Called {
			if g.early[rank] && !slices.Contains(g.waits[i].Behind, rank) {
				add(g.wait(i), g.gpu(rank))
			}
		}
	}
}

// verdict returns the faults: the parts of the graph that wait for nothing else.
func (g *graph) verdict() *Verdict {
	v := &Verdict{Waits: g.waits, Heads: make([][]int, len(g.job.Ranks))}
	for _, s := range g.standing {
		if s {
			v.Standing++
		}
	}
	for rank := range g.heads {
		for _, w := range g.heads[rank] {
			for _, c := range g.blocked[w].calls {
				if c.rank == rank && c.front {
					v.Heads[rank] = append(v.Heads[rank], c.operation)
				}
			}
		}
		slices.Sort(v.Heads[rank])
	}
	groups := make(map[groupKey][]int)
	for _, sink := range g.sinks() {
		k := g.groupOf(sink)
		if k.kind == noKind {
			continue
		}
		groups[k] = append(groups[k], sink...)
	}
	for k, nodes := range groups {
		v.Faults = append(v.Faults, g.faultOf(k, nodes))
	}
	v.Faults = keepFirstMismatches(v.Faults)
	slices.SortFunc(v.Faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(b.Waiting, a.Waiting), slices.Compare(a.Ranks, b.Ranks),
			cmp.Compare(a.Waits[0].Communicator, b.Waits[0].Communicator),
			cmp.Compare(a.Waits[0].Number, b.Waits[0].Number))
	})
	return v
}

// keepFirstMismatches keeps the mismatch with the lowest number of each communicator: later ones follow from it.
func keepFirstMismatches(faults []Fault) []Fault {
	lowest := make(map[int]int64)
	for i := range faults {
		if w := &faults[i].Waits[0]; faults[i].Kind == Mismatch {
			if n, ok := lowest[w.Communicator]; !ok || w.Number < n {
				lowest[w.Communicator] = w.Number
			}
		}
	}
	return slices.DeleteFunc(faults, func(f Fault) bool {
		return f.Kind == Mismatch && f.Waits[0].Number > lowest[f.Waits[0].Communicator]
	})
}

// sinks returns the strongly connected parts without an edge to another part, that operations wait for.
func (g *graph) sinks() [][]int {
	part := components(g.edges)
	leaves := make(map[int]bool)
	nodes := make(map[int][]int)
	for n, p := range part {
		nodes[p] = append(nodes[p], n)
		for _, to := range g.edges[n] {
			leaves[p] = leaves[p] || part[to] != p
		}
	}
	var list [][]int
	for n, p := range part {
		if nodes[p][0] == n && !leaves[p] && (n >= g.wait(0) || len(g.reverse[n]) > 0) {
			list = append(list, nodes[p])
		}
	}
	return list
}
