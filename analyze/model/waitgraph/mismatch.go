package waitgraph

import (
	"cmp"
	"slices"
)

// setSides sets the sides of a mismatch, and its suspects: the ranks of the smallest side, if no unknown call
// can make another side the smallest.
func (g *graph) setSides(f *Fault, wait int) {
	n := g.blocked[wait]
	for _, c := range n.calls {
		signature := g.job.Ranks[c.rank].Operations[c.operation].Signature
		i := slices.IndexFunc(f.Sides, func(s Side) bool { return s.Signature.matches(signature) })
		if i < 0 {
			f.Sides = append(f.Sides, Side{Signature: signature, Operation: c.operation})
			i = len(f.Sides) - 1
		}
		f.Sides[i].Ranks = append(f.Sides[i].Ranks, c.rank)
	}
	slices.SortStableFunc(f.Sides, func(a, b Side) int { return cmp.Compare(len(a.Ranks), len(b.Ranks)) })
	unknown := g.waits[wait].Unknown + len(g.waits[wait].NotCalled)
	last := len(f.Sides) - 1
	if len(f.Sides[0].Ranks)+unknown >= len(f.Sides[last].Ranks) {
		return
	}
	for _, s := range f.Sides[:last] {
		if len(s.Ranks)+unknown < len(f.Sides[last].Ranks) {
			f.Ranks = append(f.Ranks, s.Ranks...)
		}
	}
	if len(f.Sides) == 2 && n.sender < 0 {
		f.Shift = g.shiftOf(&f.Sides[0], &f.Sides[1], n)
	}
}

// shiftOf compares the calls of two ranks after a mismatch.
func (g *graph) shiftOf(suspect, other *Side, n *instance) Shift {
	a := g.callsFrom(suspect.Ranks[0], n)
	b := g.callsFrom(other.Ranks[0], n)
	extra, skipped := continues(a[1:], b), continues(b[1:], a)
	switch {
	case extra && !skipped:
		return ExtraCall
	case skipped && !extra:
		return SkippedCall
	}
	return NoShift
}

// callsFrom returns the signatures of a rank's calls on the communicator of an instance, from its number on.
func (g *graph) callsFrom(rank int, n *instance) []Signature {
	var list []Signature
	operations := g.job.Ranks[rank].Operations
	for i := range operations {
		o := &operations[i]
		if o.Communicator == n.communicator && !o.isPeerToPeer() && o.Number >= n.number {
			list = append(list, o.Signature)
		}
	}
	return list
}

// continues reports whether the calls a are equal to b in all positions that both have, at least one.
func continues(a, b []Signature) bool {
	count := min(len(a), len(b))
	for i := range count {
		if !a[i].matches(b[i]) {
			return false
		}
	}
	return count > 0
}
