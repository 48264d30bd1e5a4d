package clocks

import "math"

// Bounds are upper bounds of the differences between clocks: a graph of difference constraints. The nodes are the
// hosts, and UTC after them.
type Bounds struct {
	hosts int
	max   []int64 // by from × nodes + to: time on to − time on from is at most this, ns
}

// unbounded is the bound of a difference that nothing bounds, ns. Sums of two bounds do not overflow.
const unbounded = int64(1) << 61

// NewBounds returns Bounds of a number of hosts that bound nothing.
func NewBounds(hosts int) *Bounds {
	b := &Bounds{hosts: hosts, max: make([]int64, (hosts+1)*(hosts+1))}
	for i := range b.max {
		if i%(hosts+2) != 0 {
			b.max[i] = unbounded
		}
	}
	return b
}

// utc returns the node of UTC.
func (b *Bounds) utc() int { return b.hosts }

// Add notes that the time on one node minus that on another at the same moment is at most ns.
func (b *Bounds) Add(from, to int, ns int64) {
	if ns >= unbounded || ns <= -unbounded {
		return
	}
	at := from*(b.hosts+1) + to
	b.max[at] = min(b.max[at], ns)
}

// clone returns a copy.
func (b *Bounds) clone() *Bounds {
	return &Bounds{hosts: b.hosts, max: append([]int64(nil), b.max...)}
}

// close replaces each bound by the tightest that follows from all (Floyd and Warshall).
func (b *Bounds) close() {
	n := b.hosts + 1
	for k := range n {
		via := b.max[k*n : (k+1)*n]
		for i := range n {
			first := b.max[i*n+k]
			if first >= unbounded {
				continue
			}
			row := b.max[i*n : (i+1)*n]
			for j, second := range via {
				if second < unbounded && first+second < row[j] {
					row[j] = max(-unbounded+1, first+second)
				}
			}
		}
	}
}

// contradictory returns the hosts with bounds that cannot all hold, ascending: those on a cycle of negative length. The
// bounds are closed.
func (b *Bounds) contradictory() (hosts []int) {
	for i := range b.hosts {
		if b.max[i*(b.hosts+1)+i] < 0 {
			hosts = append(hosts, i)
		}
	}
	return hosts
}

// remove takes away all bounds of a host.
func (b *Bounds) remove(host int) {
	n := b.hosts + 1
	for i := range n {
		if i != host {
			b.max[i*n+host], b.max[host*n+i] = unbounded, unbounded
		}
	}
}

// throughUTC returns the bounds of a difference that follow from those of the two hosts to UTC, not closed.
func (b *Bounds) throughUTC(from, to int) (low, high int64, ok bool) {
	n, utc := b.hosts+1, b.utc()
	high, low = b.max[from*n+utc]+b.max[utc*n+to], -b.max[to*n+utc]-b.max[utc*n+from]
	return low, high, high < unbounded && low > -unbounded
}

// interval returns the bounds of the time on to minus that on from, ns. ok is false if a side has none.
func (b *Bounds) interval(from, to int) (low, high int64, ok bool) {
	n := b.hosts + 1
	back, forth := b.max[to*n+from], b.max[from*n+to]
	if back >= unbounded || forth >= unbounded {
		return math.MinInt64, math.MaxInt64, false
	}
	return -back, forth, true
}
