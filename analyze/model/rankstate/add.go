package rankstate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/model/threadstate"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/model/waitgraph"
	"github.com/gpurec/gpurec/format"
)

// numberingFromStart is the numbering of Send and Recv that can be compared between ranks.
const numberingFromStart = format.NumberingExact

// addition adds one recording.
type addition struct {
	*Reader
	t         *timeline.Timeline
	last      *collective.Last
	index     int
	ranks     map[int32]int // index in State.Ranks by pid
	snapshots map[int32][]threadstate.Snapshot
	host      map[int32]*hostCalls
	toNs      int64 // end of the window on the clock of the recording
}

// shift returns the time to subtract from times of the recording, which is of a host, to get times of host 0, ns.
func (a *addition) shift(host int) int64 {
	if a.index < len(a.job.Recordings) {
		return a.Reader.shift(host) + a.job.Recordings[a.index].ShiftNs
	}
	return a.Reader.shift(host)
}

// run adds the ranks of the recording.
func (a *addition) run() error {
	a.toNs = a.opt.Filter.NarrowWindow(a.t.RecordingWindow()).ToNs
	var err error
	if a.snapshots, err = threadstate.Read(a.t, a.toNs); err != nil {
		return err
	}
	if a.host, err = readHostCalls(a.t, a.aborts(), a.toNs); err != nil {
		return err
	}
	for i := range a.job.Members {
		if m := &a.job.Members[i]; m.Recording == a.index {
			a.addRank(m)
		}
	}
	a.state.Lost += a.t.Rec.Meta.Totals().Lost
	a.state.Recordings++
	if !a.t.Rec.Meta.HasEnd() {
		a.state.Truncated++
	}
	for i := range a.last.Communicators {
		a.addCommunicator(&a.last.Communicators[i])
	}
	a.addOperations()
	for i := range a.last.Open {
		a.addInit(&a.last.Open[i])
	}
	for _, rank := range a.ranks {
		a.describeHost(rank)
	}
	return nil
}

// aborts returns when processes first aborted a communicator, Unix ns.
func (a *addition) aborts() map[int32]int64 {
	first := make(map[int32]int64)
	for i := range a.last.Communicators {
		c := &a.last.Communicators[i]
		if at := c.Fact.EndNs; c.Fact.End == format.CommunicatorAborted && at <= a.toNs &&
			(first[c.Pid] == 0 || at < first[c.Pid]) {
			first[c.Pid] = at
		}
	}
	return first
}

// addRank adds a process without its operations.
func (a *addition) addRank(m *job.Member) {
	shift := a.shift(m.Host)
	rank := Rank{Member: *m, Index: len(a.state.Ranks)}
	if m.Host < len(a.job.Hosts) {
		rank.Host = a.job.Hosts[m.Host].Name
	}
	a.state.EndNs = max(a.state.EndNs, a.toNs-shift)
	if exit := a.t.Facts.Processes[m.Pid].ExitNs; exit > 0 && exit <= a.toNs {
		process := a.t.Facts.Processes[m.Pid]
		rank.DeadNs, rank.Fate = exit-shift, a.fateOf(m.Pid, exit)
		rank.ExitSignal, rank.ExitCode = process.ExitSignal, process.ExitCode
	}
	a.ranks[m.Pid] = rank.Index
	a.state.Ranks = append(a.state.Ranks, rank)
	a.state.Graph.Ranks = append(a.state.Graph.Ranks, waitgraph.Rank{DeadNs: rank.DeadNs, EndNs: a.toNs - shift})
}

// xidLeadNs is the time before the end of a process in which an Xid may have ended it, ns.
const xidLeadNs = 30_000_000_000

// fateOf says how a process ended.
func (a *addition) fateOf(pid int32, exitNs int64) string {
	process := a.t.Facts.Processes[pid]
	how := process.DescribeExit()
	for i := range a.t.Facts.Xids {
		x := &a.t.Facts.Xids[i]
		if !x.Before && x.Pid == pid && x.AtNs <= exitNs && exitNs-x.AtNs < xidLeadNs {
			e, _ := x.Describe()
			return fmt.Sprintf("%s %d (%s), then %s", x.Kind(), x.Code, e.Name, cmp.Or(how, "it ended"))
		}
	}
	return cmp.Or(how, "the process ended")
}

// addCommunicator adds the side of a process.
func (a *addition) addCommunicator(c *collective.Communicator) {
	rank, ok := a.ranks[c.Pid]
	if !ok || c.FromNs > a.toNs {
		return
	}
	i := a.communicatorOf(c, rank)
	s := side{
		rank: rank, exact: c.Fact.Numbering == format.NumberingExact || c.Fact.Numbering == format.NumberingCounter,
		numbers: c.Fact.Numbering, census: c.Fact.Census,
	}
	if c.Fact.Numbering == format.NumberingCounter {
		s.entered = c.Fact.Before
	}
	at := a.placeOf(c, i)
	if a.last.FromNs != math.MinInt64 {
		s.entered = math.MaxInt64 // it may have called what others wait for, before the row groups that were read
	}
	a.sides[i][at] = s
}

// communicatorOf returns the index of a process's communicator in the job.
func (a *addition) communicatorOf(c *collective.Communicator, rank int) int {
	k := communicatorKey{id: cmp.Or(c.ID, c.Fact.UniqueID), size: c.Size, owner: -1}
	if k.id == 0 || c.Size <= 0 || c.Size > maxWorldSize || c.Rank < 0 || c.Rank >= c.Size {
		k = communicatorKey{owner: rank, ptr: c.Ptr}
	}
	if k.owner >= 0 || c.Fact.UniqueID == 0 {
		return a.communicatorWith(k, c.Name)
	}
	known, ok := a.unique[c.Fact.UniqueID]
	if !ok || a.state.Communicators[known].Size != int(c.Size) {
		known = a.communicatorWith(k, c.Name)
		a.unique[c.Fact.UniqueID] = known
	}
	if c.ID != 0 {
		a.keys[k], a.state.Communicators[known].ID = known, c.ID
	}
	return known
}

// placeOf returns the rank of a process in communicator i of the job, 0 in one that only the process is known to have.
func (a *addition) placeOf(c *collective.Communicator, i int) int {
	if a.state.Communicators[i].ID == 0 {
		return 0
	}
	return int(c.Rank)
}

// communicatorWith returns the index of a communicator, and adds it if it is new.
func (a *addition) communicatorWith(k communicatorKey, name string) int {
	i, ok := a.keys[k]
	if !ok {
		i = len(a.state.Communicators)
		a.keys[k] = i
		a.state.Communicators = append(a.state.Communicators, Communicator{ID: k.id, Size: int(k.size), Init: k.init})
		a.sides = append(a.sides, make(map[int]side))
	}
	a.state.Communicators[i].Name = cmp.Or(a.state.Communicators[i].Name, name)
	return i
}

// addOperations adds the operations of all processes of the recording.
func (a *addition) addOperations() {
	var order int64
	groups := make(map[[2]int64]int64)         // order by thread and group
	unknown := make(map[[2]int64]unknownGroup) // by thread and stream
	for i := range a.last.Operations {
		o := &a.last.Operations[i]
		c := &a.last.Communicators[o.Communicator]
		rank, ok := a.ranks[c.Pid]
		if !ok || c.Size == 1 || isError(o) {
			continue
		}
		order++
		at := order
		switch {
		case o.Group == format.GroupUnknown:
			k := [2]int64{int64(o.Tid), o.Stream}
			at = unknown[k].orderOf(o, order)
			unknown[k] = unknownGroup{at, o.Communicator, o.Function.IsCollective()}
		case o.Group != 0:
			k := [2]int64{int64(o.Tid), o.Group}
			if known, ok := groups[k]; ok {
				at = known
			} else {
				groups[k] = at
			}
		}
		a.addOperation(rank, c, o, at)
	}
	for _, rank := range a.ranks {
		// A group keeps the order of its first operation.
		operations := a.state.Graph.Ranks[rank].Operations
		index := make([]int, len(operations))
		for i := range index {
			index[i] = i
		}
		slices.SortStableFunc(
			index,
			func(x, y int) int { return cmp.Compare(operations[x].Order, operations[y].Order) },
		)
		sorted, calls := make([]waitgraph.Operation, len(index)), make([]Call, len(index))
		for to, from := range index {
			sorted[to], calls[to] = operations[from], a.state.Ranks[rank].Calls[from]
			sorted[to].Ref = to
		}
		a.state.Graph.Ranks[rank].Operations, a.state.Ranks[rank].Calls = sorted, calls
		a.markWeak(rank)
	}
}

// unknownGroup has the last operation of a thread on a stream, whose group was not recorded.
type unknownGroup struct {
	order        int64 // 0: the thread has none
	communicator int32
	isCollective bool
}

// orderOf returns the order of the next operation of the thread on the stream. Two operations of one group run at the
// same time, so neither waits for the other. Collectives of one communicator run in program order on all ranks, in a
// group or not. next is the order of an operation in no group.
func (u unknownGroup) orderOf(o *collective.Operation, next int64) int64 {
	isOrdered := u.isCollective && o.Function.IsCollective() && u.communicator == o.Communicator
	if u.order == 0 || isOrdered {
		return next
	}
	return u.order
}

// isError reports whether an operation returned an error, so that it does nothing.
func isError(o *collective.Operation) bool {
	return !o.IsOpen && o.Result != 0 && o.Result != ncclInProgress
}

// ncclInProgress is the ncclResult_t of calls on communicators that do not block.
const ncclInProgress = 7

// addOperation adds an operation of a rank.
func (a *addition) addOperation(rank int, c *collective.Communicator, o *collective.Operation, order int64) {
	i := a.communicatorOf(c, rank)
	shift := a.shift(a.state.Ranks[rank].Member.Host)
	w := waitgraph.Operation{
		Signature: waitgraph.Signature{
			Function: o.Function, DataType: o.DataType, Reduction: o.Reduction, Root: o.Root, Count: o.Count,
		},
		Communicator: i, Number: o.Sequence, Order: order, Stream: o.Stream, StartNs: o.StartNs - shift,
		Progress: a.host[c.Pid].progressOf(o, c.Fact.End == format.CommunicatorAborted, a.longNs),
	}
	if int(o.Reduction) == len(format.Reductions) {
		w.Reduction = waitgraph.CustomReduction
	}
	if c.Fact.EndNs > 0 && c.Fact.EndNs <= a.toNs && c.Fact.End != format.CommunicatorAborted {
		w.Progress = waitgraph.Done
	}
	g := &a.state.Graph.Ranks[rank]
	g.LastNs = max(g.LastNs, w.StartNs)
	g.Operations = append(g.Operations, w)
	call := Call{Operation: *o, Site: a.t.SiteOfStack(o.Stack)}
	call.StartNs -= shift
	a.state.Ranks[rank].Calls = append(a.state.Ranks[rank].Calls, call)
	if o.Function == collective.Send || o.Function == collective.Recv {
		return
	}
	at := a.placeOf(c, i)
	if s, ok := a.sides[i][at]; ok {
		if s.entered == math.MaxInt64 {
			s.entered = 0
		}
		s.entered = max(s.entered, o.Sequence)
		a.sides[i][at] = s
	}
}

// markWeak notes the last operation of a rank whose host waits for its GPU, on whatever stream.
func (a *addition) markWeak(rank int) {
	operations := a.state.Graph.Ranks[rank].Operations
	h := a.host[a.state.Ranks[rank].Member.Pid]
	if h == nil || len(h.open) == 0 || len(operations) == 0 {
		return
	}
	last := len(operations) - 1
	for i := last; i >= 0 && operations[i].Order == operations[last].Order; i-- {
		a.weak = append(a.weak, [2]int{rank, i})
	}
}

// addInit adds the call that makes a communicator and has not returned.
func (a *addition) addInit(o *collective.OpenCall) {
	rank, ok := a.ranks[o.Pid]
	if !ok || o.Size <= 0 || o.Size > maxWorldSize || o.Rank < 0 || o.Rank >= o.Size || o.Communicator == 0 {
		return
	}
	i := a.communicatorWith(communicatorKey{id: o.Communicator, size: o.Size, owner: -1, init: true}, "")
	if o.OfParent {
		a.state.Communicators[i].MadeBy = o.Name
	}
	a.sides[i][int(o.Rank)] = side{rank: rank, exact: true, numbers: numberingFromStart, entered: 1}
	start := o.StartNs - a.shift(a.state.Ranks[rank].Member.Host)
	g := &a.state.Graph.Ranks[rank]
	g.LastNs = max(g.LastNs, start)
	g.Operations = append(g.Operations, waitgraph.Operation{
		Communicator: i, Number: 1, Order: math.MaxInt64, Stream: math.MinInt64, StartNs: start,
		Progress: waitgraph.Unfinished, Ref: len(g.Operations),
	})
	a.state.Ranks[rank].Calls = append(a.state.Ranks[rank].Calls, Call{
		Operation: collective.Operation{StartNs: start, Tid: o.Tid, Stack: o.Stack, IsOpen: true},
		Site:      a.t.SiteOfStack(o.Stack),
	})
}
