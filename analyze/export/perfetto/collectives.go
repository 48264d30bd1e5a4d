package perfetto

import (
	"cmp"
	"errors"
	"fmt"
	"iter"

	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Each rank of a communicator has a track with the calls of its operations. A flow connects the calls of one operation
// on all ranks in the order of their starts, so that its last slice is that of the rank that comes last.

// collectiveLane identifies a track with operations of a communicator on one rank.
type collectiveLane struct {
	communicator int32 // index in Stream.Communicators
	// number is 0 for the first track. Further ones have calls of other threads that overlap.
	number int
}

// collectiveCategory is the category of operations of NCCL.
const collectiveCategory = "collective"

// maxCollectiveLanes is the largest number of tracks of a communicator on one rank.
const maxCollectiveLanes = 8

// collectiveCalls reads the operations of NCCL in order of their start.
type collectiveCalls struct {
	stream    *collective.Stream
	next      func() (collective.Operation, bool)
	stop      func()
	operation collective.Operation
	has       bool
	err       error
	ranks     map[int64]int // number of recorded ranks by joinedID, of communicators whose numbers agree
	arrivals  arrivalCounts
}

// errStopped ends the reading of operations.
var errStopped = errors.New("stopped")

// newCollectiveCalls returns the operations that pass the filter. Recordings without class collective have none.
func newCollectiveCalls(p *traceBuilder) (*collectiveCalls, error) {
	c := &collectiveCalls{stop: func() {}}
	if !collective.HasRows(p.t) {
		return c, nil
	}
	var err error
	if c.stream, err = collective.NewStream(p.t, query.Options{Filter: p.filter}); err != nil {
		return nil, err
	}
	c.countRanks(&p.filter)
	c.next, c.stop = iter.Pull(func(yield func(collective.Operation) bool) {
		err := c.stream.Each(func(o *collective.Operation) error {
			if !yield(*o) {
				return errStopped
			}
			return nil
		})
		if !errors.Is(err, errStopped) {
			c.err = err
		}
	})
	c.operation, c.has = c.next()
	return c, nil
}

// joinedID returns a number that is equal on all ranks of a communicator, 0 if there is none.
func joinedID(c *collective.Communicator) int64 { return cmp.Or(c.ID, c.Fact.UniqueID) }

// countRanks counts the recorded ranks of the communicators whose numbers of operations agree between ranks.
func (c *collectiveCalls) countRanks(f *query.Filter) {
	type rank struct {
		id   int64
		pid  int32
		rank int32
	}
	c.ranks = make(map[int64]int)
	seen := make(map[rank]bool)
	list := c.stream.Communicators()
	for i := range list {
		m := &list[i]
		r := rank{joinedID(m), m.Pid, m.Rank}
		if r.id == 0 || seen[r] || m.Fact.Numbering == format.NumberingRelative ||
			!(&query.Filter{Pids: f.Pids}).PassesCaller(m.Pid, 0, 0, 0) {
			continue
		}
		seen[r] = true
		c.ranks[r.id]++
	}
}

// flowOf returns the id of the flow of an operation, and the number of recorded ranks that it connects. The id is 0 if
// the operation cannot be found on other ranks, or only one is recorded.
func (c *collectiveCalls) flowOf(o *collective.Operation) (flow uint64, ranks int) {
	m := &c.stream.Communicators()[o.Communicator]
	ranks = c.ranks[joinedID(m)]
	if ranks < 2 || o.Sequence == 0 || m.Fact.Numbering == format.NumberingRelative {
		return 0, 0
	}
	var from, to int32
	switch {
	case o.Function.IsCollective():
	case m.Size == 0 || m.Fact.Numbering != format.NumberingExact:
		return 0, 0 // numbers of Send and Recv count from the first recorded one
	case o.Function == collective.Send:
		from, to, ranks = m.Rank, o.Root, 2
	case o.Function == collective.Recv:
		from, to, ranks = o.Root, m.Rank, 2
	default:
		return 0, 0
	}
	pair := uint64(uint32(from+1))<<32 | uint64(uint32(to+1))
	if o.Function.IsCollective() {
		pair = 0
	}
	id := (uint64(joinedID(m)) ^ uint64(o.Sequence)*0x9e3779b97f4a7c15 ^ pair*0xbf58476d1ce4e5b9) * 0x94d049bb133111eb
	return id | 1, ranks
}

// arrivalCounts counts the ranks that have called an operation. It forgets the operations that only some ranks call,
// after maxArrivals later ones.
type arrivalCounts struct {
	young, old map[uint64]arrival // by flow
}

// arrival is the first call of an operation on any rank, and the number of ranks that have called it.
type arrival struct {
	firstNs int64 // Unix ns
	ranks   int
}

// maxArrivals is the number of operations after which older ones are forgotten.
const maxArrivals = 1 << 15

// add counts a call of an operation. It returns the calls so far.
func (c *arrivalCounts) add(flow uint64, atNs int64, ranks int) arrival {
	a, ok := c.young[flow]
	if !ok {
		a, ok = c.old[flow]
		delete(c.old, flow)
	}
	if !ok {
		a.firstNs = atNs
	}
	if a.ranks++; a.ranks >= ranks {
		delete(c.young, flow)
		return a
	}
	if len(c.young) >= maxArrivals {
		c.young, c.old = nil, c.young
	}
	if c.young == nil {
		c.young = make(map[uint64]arrival)
	}
	c.young[flow] = a
	return a
}

// writeCollective writes the next operation: a slice for its call, on the track of its communicator and rank.
func (t *traceBuilder) writeCollective() error {
	o := t.collectives.operation
	t.collectives.operation, t.collectives.has = t.collectives.next()
	if t.max > 0 && t.slices >= t.max && t.next != nil {
		if err := t.beginNextPart(o.StartNs); err != nil {
			return err
		}
	}
	if t.full || t.max > 0 && t.slices >= t.max {
		t.leaveOut(o.StartNs)
		return nil
	}
	t.slices++
	t.stats.Calls++
	lane, track := t.freeCollectiveLane(o.Communicator)
	m := &t.collectives.stream.Communicators()[o.Communicator]
	name := operationName(&o)
	t.beginSlice(openSlice{
		startNs: o.StartNs, atNs: units.EndOfRange(o.StartNs, o.DurNs), thread: track,
		caller: origin.Thread{Pid: m.Pid, Tid: o.Tid}, name: name, category: collectiveCategory, stack: o.Stack,
		operations: &lane,
	})
	t.w.setOwnEventName(name)
	t.w.addEventCategory(collectiveCategory)
	t.w.setEventStack(o.Stack)
	t.annotateOperation(&o, m)
	if flow, ranks := t.collectives.flowOf(&o); flow != 0 {
		t.w.event = appendFixed64Field(t.w.event, fieldFlowIDs, flow)
		a := t.collectives.arrivals.add(flow, o.StartNs, ranks)
		t.w.addTextAnnotation("arrival", fmt.Sprintf("%d of %d recorded ranks", a.ranks, ranks))
		t.w.addAnnotation("after_first_ns", fieldAnnotationInt, uint64(o.StartNs-a.firstNs))
	}
	t.w.finishEvent(o.StartNs)
	return nil
}

// operationName names an operation with its number, and the peer of Send and Recv.
func operationName(o *collective.Operation) string {
	name := o.Function.String()
	switch {
	case o.Root == format.NoRoot:
	case o.Function == collective.Send:
		name += fmt.Sprintf(" to %d", o.Root)
	case o.Function == collective.Recv:
		name += fmt.Sprintf(" from %d", o.Root)
	}
	if o.Sequence > 0 {
		name += fmt.Sprintf(" #%d", o.Sequence)
	}
	return name
}

// annotateOperation adds the arguments and the result of an operation to the current event.
func (t *traceBuilder) annotateOperation(o *collective.Operation, m *collective.Communicator) {
	w := t.w
	number := func(name string, v int64) { w.addAnnotation(name, fieldAnnotationInt, uint64(v)) }
	w.addTextAnnotation("operation", o.Function.String())
	if m.ID != 0 {
		w.addTextAnnotation("communicator", fmt.Sprintf("%016x", uint64(m.ID)))
	}
	if m.Name != "" {
		w.addTextAnnotation("communicator_name", m.Name)
	}
	if m.Size > 0 {
		number("rank", int64(m.Rank))
		number("ranks", int64(m.Size))
	}
	if o.Sequence > 0 {
		number("sequence", o.Sequence)
	}
	if o.Group > 0 {
		number("group", o.Group)
	}
	number("elements", o.Count)
	number("bytes", o.Bytes)
	w.addTextAnnotation("data_type", nameOrUnknown(format.DataTypes[:], o.DataType))
	switch o.Function {
	case collective.AllReduce, collective.ReduceScatter, collective.Reduce:
		reduction := format.ReductionCustom
		if int(o.Reduction) < len(format.Reductions) {
			reduction = format.Reductions[o.Reduction]
		}
		w.addTextAnnotation("reduction", reduction)
	}
	switch {
	case o.Root == format.NoRoot:
	case o.Function.IsCollective():
		number("root", int64(o.Root))
	default:
		number("peer", int64(o.Root))
	}
	w.addTextAnnotation("stream", query.StreamName(o.Stream))
	number("thread", int64(o.Tid))
	if o.IsOpen {
		w.addAnnotation("open", fieldAnnotationBool, 1)
	} else {
		number("result", int64(o.Result))
	}
}

// nameOrUnknown returns a name by its index.
func nameOrUnknown(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return "unknown"
}

// freeCollectiveLane returns the first track of a communicator on its rank without an open slice. If all tracks have
// one, it returns the last.
func (t *traceBuilder) freeCollectiveLane(communicator int32) (collectiveLane, *threadTrack) {
	for number := 0; ; number++ {
		lane := collectiveLane{communicator, number}
		if track := t.findCollectiveLane(lane); len(track.open) == 0 || number == maxCollectiveLanes-1 {
			return lane, track
		}
	}
}

// findCollectiveLane returns a track with operations, a child of the track of the process.
func (t *traceBuilder) findCollectiveLane(l collectiveLane) *threadTrack {
	if tr, ok := t.collectiveLanes[l]; ok {
		return tr
	}
	m := &t.collectives.stream.Communicators()[l.communicator]
	name := "collectives of " + m.Label()
	if m.Size > 0 {
		name += fmt.Sprintf(", rank %d of %d", m.Rank, m.Size)
	}
	if l.number > 0 {
		name += fmt.Sprintf(" (overlapping %d)", l.number)
	}
	parent := t.findProcessTrack(m.Pid)
	tr := &threadTrack{uuid: t.newTrackUUID()}
	t.collectiveLanes[l] = tr
	t.w.writeTrackDescriptor(tr.uuid, parent, name, nil)
	return tr
}
