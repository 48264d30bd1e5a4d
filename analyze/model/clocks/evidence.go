package clocks

import (
	"math"

	"github.com/gpurec/gpurec/analyze/model/collective"
)

// series are operations with common numbers: the collectives of a communicator, or the operations from one of its ranks
// to another.
type series struct {
	communicator int64
	sender       int32 // rank in the communicator; notPeers for collectives
	receiver     int32
}

// notPeers is the sender and receiver of collectives.
const notPeers = int32(-1)

// operation identifies an operation in all recordings of a job.
type operation struct {
	series
	number int64
}

// hostTimes are the times of an operation on one host, on the host's clock.
type hostTimes struct {
	host int32
	// startNs is the latest entry of a call, and endNs the earliest known end, of the ranks on the host. rootStartNs
	// and rootEndNs are those of the root or sender, or receiver, alone.
	startNs, endNs         int64
	rootStartNs, rootEndNs int64
}

// noStart and noEnd are the times of hosts without one.
const (
	noStart = math.MinInt64
	noEnd   = math.MaxInt64
)

// evidence has the times of an operation on all hosts.
type evidence struct {
	function collective.Function
	root     int32
	count    int64
	isWrong  bool // the ranks called different operations
	times    []hostTimes
}

// entry is an operation of one rank: its start and its known end, or noEnd.
type entry struct {
	operation
	function       collective.Function
	root           int32
	count          int64
	isRoot         bool
	startNs, endNs int64
}

// evidenceTable collects the operations of all ranks.
type evidenceTable map[operation]*evidence

// add adds an operation of a rank on a host.
func (t evidenceTable) add(host int32, e *entry) {
	v := t[e.operation]
	if v == nil {
		v = &evidence{function: e.function, root: e.root, count: e.count}
		t[e.operation] = v
	}
	if e.sender == notPeers && (v.function != e.function || v.root != e.root || v.count != e.count) {
		v.isWrong = true
		return
	}
	at := -1
	for i := range v.times {
		if v.times[i].host == host {
			at = i
		}
	}
	if at < 0 {
		at = len(v.times)
		v.times = append(v.times, hostTimes{
			host: host, startNs: noStart, endNs: noEnd, rootStartNs: noStart, rootEndNs: noEnd,
		})
	}
	h := &v.times[at]
	h.startNs, h.endNs = max(h.startNs, e.startNs), min(h.endNs, e.endNs)
	if e.isRoot {
		h.rootStartNs, h.rootEndNs = max(h.rootStartNs, e.startNs), min(h.rootEndNs, e.endNs)
	}
}

// addTo adds the bounds of all operations. They hold at endNs, on whichever clock.
//
// An AllReduce, AllGather or ReduceScatter needs the input of all ranks, so it ends on no rank before all have called
// it. With s the entry of the call on one host and e an end on another, s − offset ≤ e − offset there, so that the
// difference of the clocks is at most e − s. A Broadcast or Scatter ends on no rank before its root called it, a
// Reduce or Gather does not end on its root before all ranks called it, and a Recv does not end before its Send was
// called. An entry before the true start, or an end seen late, only makes the bound wider.
func (t evidenceTable) addTo(b *Bounds, endNs int64) {
	for op, v := range t {
		if v.isWrong {
			continue
		}
		for i := range v.times {
			for k := range v.times {
				start, end := usable(op.sender != notPeers, v.function, &v.times[i], &v.times[k])
				if i == k || start == noStart || end == noEnd {
					continue
				}
				b.Add(int(v.times[i].host), int(v.times[k].host), end-start+driftNs(endNs-end))
			}
		}
	}
}

// usable returns a start on one host and an end on another that the function orders, noStart or noEnd if it orders
// none.
func usable(isPeers bool, f collective.Function, from, to *hostTimes) (start, end int64) {
	switch {
	case isPeers:
		return from.rootStartNs, to.rootEndNs
	case f == collective.AllReduce || f == collective.AllGather || f == collective.ReduceScatter:
		return from.startNs, to.endNs
	case f == collective.Broadcast || f == collective.Scatter:
		return from.rootStartNs, to.endNs
	case f == collective.Reduce || f == collective.Gather:
		return from.startNs, to.rootEndNs
	}
	return noStart, noEnd
}
