package waitgraph

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/collective"
)

// key identifies an operation over all ranks. owner is -1, or the rank if numbers cannot be compared.
type key struct {
	communicator     int
	sender, receiver int32
	number           int64
	owner            int
}

// instance is an operation of all its ranks.
type instance struct {
	key
	members []int // ranks that have to call it, NotRecorded included
	calls   []call
	ready   int // number of calls at the front of their queue
	need    int // number of calls that must be ready
	ended   bool
	differs bool // the calls have different signatures
	open    bool // a rank knows that it has not ended
}

// call is the call of an instance by a rank.
type call struct {
	rank, operation int
	front           bool
}

// item is a group of operations of a queue.
type item struct {
	operations []int
	left       int // operations that have not ended
}

// queue has the operations of a stream that have not ended, in program order.
type queue struct {
	rank  int
	items []item
	front int
}

// run lets all operations end that can end, by the calls that were made.
type run struct {
	job       *Job
	instances map[key]*instance
	order     []*instance // as they were found
	queues    []queue
	byRank    [][]int         // queues of each rank
	where     map[[2]int]int  // queue of (rank, operation)
	begun     []map[key]int64 // of each rank: the last Send and Recv number by (communicator, sender, receiver)
	todo      []*instance
}

// newRun returns the result of a run. With serial, the operations of a rank run one after the other over all its
// streams.
func newRun(job *Job, serial bool) *run {
	r := &run{
		job: job, instances: make(map[key]*instance), byRank: make([][]int, len(job.Ranks)),
		where: make(map[[2]int]int), begun: make([]map[key]int64, len(job.Ranks)),
	}
	for rank := range job.Ranks {
		r.addRank(rank, serial)
	}
	for _, n := range r.order {
		r.completeInstance(n)
	}
	for q := range r.queues {
		r.openFront(q)
	}
	for len(r.todo) > 0 {
		n := r.todo[len(r.todo)-1]
		r.todo = r.todo[:len(r.todo)-1]
		r.end(n)
	}
	return r
}

// addRank adds the queues of a rank and its calls.
func (r *run) addRank(rank int, serial bool) {
	operations := r.job.Ranks[rank].Operations
	r.begun[rank] = make(map[key]int64)
	lastDone := make(map[int64]int64) // by stream
	for i := range operations {
		o := &operations[i]
		if o.Progress == Done {
			lastDone[o.Stream] = max(lastDone[o.Stream], o.Order+1)
		}
	}
	streams := make(map[int64]int)
	for i := range operations {
		o := &operations[i]
		k := r.keyOf(rank, o)
		if o.isPeerToPeer() {
			series := k
			series.number = 0
			r.begun[rank][series] = max(r.begun[rank][series], o.Number)
		}
		if o.Progress == Done || o.Order < lastDone[o.Stream]-1 {
			continue
		}
		stream := o.Stream
		if serial {
			stream = 0
		}
		q, ok := streams[stream]
		if !ok {
			q = len(r.queues)
			streams[stream] = q
			r.queues = append(r.queues, queue{rank: rank})
			r.byRank[rank] = append(r.byRank[rank], q)
		}
		r.addOperation(q, rank, i, k)
	}
}

// addOperation appends an operation to a queue and to its instance.
func (r *run) addOperation(q, rank, operation int, k key) {
	o := &r.job.Ranks[rank].Operations[operation]
	items := &r.queues[q].items
	last := len(*items) - 1
	if last < 0 || r.job.Ranks[rank].Operations[(*items)[last].operations[0]].Order != o.Order {
		*items = append(*items, item{})
		last++
	}
	(*items)[last].operations = append((*items)[last].operations, operation)
	(*items)[last].left++
	r.where[[2]int{rank, operation}] = q
	n := r.instances[k]
	if n == nil {
		n = &instance{key: k, members: r.membersOf(k)}
		r.instances[k] = n
		r.order = append(r.order, n)
	}
	n.calls = append(n.calls, call{rank: rank, operation: operation})
	n.open = n.open || o.Progress == Unfinished
	first := &r.job.Ranks[n.calls[0].rank].Operations[n.calls[0].operation]
	n.differs = n.differs || !first.matches(o.Signature)
}

// keyOf returns the key of an operation of a rank.
func (r *run) keyOf(rank int, o *Operation) key {
	c := &r.job.Communicators[o.Communicator]
	k := key{communicator: o.Communicator, sender: -1, receiver: -1, number: o.Number, owner: -1}
	relative := c.Relative
	if o.isPeerToPeer() {
		relative = c.RelativePeers
		self := int32(slices.Index(c.Members, rank))
		k.sender, k.receiver = self, o.Root
		if o.Function == collective.Recv {
			k.sender, k.receiver = o.Root, self
		}
	}
	if relative {
		k.owner = rank
	}
	return k
}

// membersOf returns the ranks that have to call an instance.
func (r *run) membersOf(k key) []int {
	c := &r.job.Communicators[k.communicator]
	switch {
	case k.owner >= 0:
		return []int{k.owner}
	case k.sender < 0:
		return c.Members
	}
	members := []int{memberAt(c, k.sender)}
	if k.receiver != k.sender {
		members = append(members, memberAt(c, k.receiver))
	}
	return members
}

// memberAt returns a member of a communicator, or NotRecorded.
func memberAt(c *Communicator, rank int32) int {
	if rank < 0 || int(rank) >= len(c.Members) {
		return NotRecorded
	}
	return c.Members[rank]
}

// completeInstance computes how many calls an instance needs. A member whose call has ended is not needed.
func (r *run) completeInstance(n *instance) {
	n.need = len(n.calls)
	for i, m := range n.members {
		if m != NotRecorded && !n.calledBy(m) && !r.passed(n, i) {
			n.need++
		}
	}
}

// calledBy reports whether a rank's call of the instance is in a queue.
func (i *instance) calledBy(rank int) bool {
	_, ok := slices.BinarySearchFunc(i.calls, rank, func(c call, rank int) int { return cmp.Compare(c.rank, rank) })
	return ok
}

// passed reports whether a member without a call in a queue had called the instance before. member is an index
// in n.members.
func (r *run) passed(n *instance, member int) bool {
	if n.sender >= 0 {
		series := n.key
		series.number = 0
		return r.begun[n.members[member]][series] >= n.number
	}
	entered := r.job.Communicators[n.communicator].Entered
	return member < len(entered) && entered[member] >= n.number
}

// openFront makes the operations at the front of a queue ready.
func (r *run) openFront(q int) {
	queue := &r.queues[q]
	for queue.front < len(queue.items) && queue.items[queue.front].left == 0 {
		queue.front++
	}
	if queue.front == len(queue.items) {
		return
	}
	operations := r.job.Ranks[queue.rank].Operations
	for _, i := range queue.items[queue.front].operations {
		n := r.instances[r.keyOf(queue.rank, &operations[i])]
		for c := range n.calls {
			if n.calls[c].rank == queue.rank && n.calls[c].operation == i && !n.calls[c].front {
				n.calls[c].front = true
				n.ready++
			}
		}
		if n.canEnd() {
			r.todo = append(r.todo, n)
		}
	}
}

// canEnd reports whether all ranks of an instance run it, and nothing says that it does not end.
func (i *instance) canEnd() bool {
	return !i.ended && !i.differs && !i.open && i.ready >= i.need
}

// end ends an instance, and makes ready what waits behind it.
func (r *run) end(n *instance) {
	if n.ended {
		return
	}
	n.ended = true
	for _, c := range n.calls {
		q := r.where[[2]int{c.rank, c.operation}]
		item := &r.queues[q].items[r.queues[q].front]
		if item.left--; item.left == 0 {
			r.openFront(q)
		}
	}
}
