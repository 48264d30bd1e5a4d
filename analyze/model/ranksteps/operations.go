package ranksteps

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/collective"
)

// operationKey identifies equal operations of a communicator.
type operationKey struct {
	communicator int64
	bytes        int64
	function     collective.Function
	dataType     uint8
}

// maxTransfers bounds the operations of a key whose shortest time is kept. Later ones are left out.
const maxTransfers = 1 << 16

// maxOperations bounds the distinct operations. Further ones are left out of Survey.Operations.
const maxOperations = 4096

// operationSum collects equal operations of all ranks.
type operationSum struct {
	Operation
	counts    map[int]int64 // by member
	transfers map[int64]int // by sequence: index in Transfers
	kernelNs  float64       // of all ranks
	exposedNs float64
	kernels   int64 // with a known time
}

// sumOf returns the sum for an operation of a member, nil if there are too many kinds.
func (r *Reader) sumOf(c *collective.Communicator, o *collective.Operation, member int) *operationSum {
	key := operationKey{c.ID, o.TotalBytes(int(c.Size)), o.Function, o.DataType}
	s := r.operations[key]
	if s == nil {
		if len(r.operations) >= maxOperations {
			return nil
		}
		s = &operationSum{
			Operation: Operation{
				Communicator: c.ID, Name: c.Name, Size: int(c.Size), Function: o.Function, DataType: o.DataType,
				Bytes: key.bytes,
			},
			counts: make(map[int]int64), transfers: make(map[int64]int),
		}
		r.operations[key] = s
	}
	s.counts[member]++
	return s
}

// maxPlaces bounds the equal operations of a step that are compared apart.
const maxPlaces = 64

// addKernel adds the time of the kernel of an operation on one rank. place is that of Transfer.
func (s *operationSum) addKernel(sequence int64, place int, atNs, ns, exposedNs int64) {
	s.kernelNs, s.exposedNs, s.kernels = s.kernelNs+float64(ns), s.exposedNs+float64(exposedNs), s.kernels+1
	i, ok := s.transfers[sequence]
	if !ok {
		if len(s.Transfers) >= maxTransfers || sequence == 0 {
			return
		}
		s.transfers[sequence] = len(s.Transfers)
		s.Transfers = append(s.Transfers, Transfer{sequence, atNs, ns, 1, min(place, maxPlaces-1)})
		return
	}
	t := &s.Transfers[i]
	t.Ns, t.Ranks = min(t.Ns, ns), t.Ranks+1
}

// finishOperations returns the sums, those with the most bytes first.
func (r *Reader) finishOperations(steps float64) []Operation {
	list := make([]Operation, 0, len(r.operations))
	for _, s := range r.operations {
		o := s.Operation
		for member, n := range s.counts {
			o.Members, o.Count = append(o.Members, member), max(o.Count, n)
		}
		slices.Sort(o.Members)
		slices.SortFunc(o.Transfers, func(a, b Transfer) int { return cmp.Compare(a.Sequence, b.Sequence) })
		if o.TransferNs = o.typicalTransfer(); o.TransferNs > 0 {
			perStep := float64(o.Count) / max(1, steps) / float64(s.kernels)
			o.WaitNs = max(0, s.kernelNs-o.TransferNs*float64(s.kernels)) * perStep
			o.ExposedNs = s.exposedNs * perStep
		}
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b Operation) int {
		return cmp.Or(
			cmp.Compare(
				float64(b.Bytes)*float64(b.Count),
				float64(a.Bytes)*float64(a.Count),
			),
			cmp.Compare(b.Count, a.Count),
			cmp.Compare(a.Communicator, b.Communicator),
			cmp.Compare(a.Function, b.Function),
			cmp.Compare(a.Bytes, b.Bytes),
			cmp.Compare(a.DataType, b.DataType),
		)
	})
	return list
}

// places returns the transfers by place in their step, those whose time is known on all recorded ranks. The shortest
// time of fewer ranks has waits in it.
func (o *Operation) places() [][]*Transfer {
	var list [][]*Transfer
	for i := range o.Transfers {
		t := &o.Transfers[i]
		if t.Ranks < len(o.Members) || len(o.Members) < 2 {
			continue
		}
		for len(list) <= t.Place {
			list = append(list, nil)
		}
		list[t.Place] = append(list[t.Place], t)
	}
	return list
}

// typicalTransfer returns the median of the transfers at a place in the step, of the shortest place, ns. It returns
// 0 without transfers.
func (o *Operation) typicalTransfer() (ns float64) {
	places := o.places()
	most := 0
	for _, place := range places {
		most = max(most, len(place))
	}
	for _, place := range places {
		if 2*len(place) < most { // a few odd steps have more operations
			continue
		}
		values := make([]float64, len(place))
		for i, t := range place {
			values[i] = float64(t.Ns)
		}
		if m := middle(values); ns == 0 || m < ns {
			ns = m
		}
	}
	return ns
}
