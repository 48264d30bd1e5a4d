package collective

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Limits of ReadLast.
const (
	// maxLastGroups is the number of row groups with calls of NCCL that ReadLast reads, the last ones.
	maxLastGroups = 3
	// maxLastOperations is the number of operations that ReadLast keeps for each communicator, and for Send and
	// Recv for each peer and direction.
	maxLastOperations = 64
)

// Last has the last operations of each communicator of a recording.
type Last struct {
	Survey
	// FromNs is the time, Unix ns, since which no operation is missing but for the limit of each communicator. It
	// is math.MinInt64 if all row groups were read.
	FromNs int64
	// Open are the calls that make communicators and had not returned.
	Open []OpenCall
}

// OpenCall is a call of NCCL that is no operation and had not returned.
type OpenCall struct {
	Name         string
	Pid, Tid     int32
	StartNs      int64 // Unix ns
	Communicator int64 // identity of the communicator, or of the parent with OfParent; 0 if unknown
	Rank, Size   int32
	Stack        int32
	// OfParent says that identity, rank and size are those of the communicator from which the call makes a new one. All
	// ranks of it make the call.
	OfParent bool
}

// ReadLast returns the communicators of a recording and the last operations on each, up to the end of opt's
// window. It reads the last row groups only, so that its time does not grow with the recording. It returns errors
// of reading the recording.
func ReadLast(t *timeline.Timeline, opt query.Options) (*Last, error) {
	r := reader{index: make(map[address][]int32), window: opt.NarrowWindow(t.RecordingWindow()), filter: &opt.Filter}
	r.window.FromNs = math.MinInt64
	if err := r.readCommunicators(t); err != nil {
		return nil, t.WrapReadError(err)
	}
	last := &Last{FromNs: math.MinInt64}
	read := 0
	for _, g := range slices.Backward(t.Groups) {
		if g.Class() != format.ClassCollective {
			continue
		}
		if read == maxLastGroups {
			last.FromNs = earliest(r.survey.Operations)
			break
		}
		before := len(r.survey.Operations)
		r.addGroup(g)
		if err := g.Err(); err != nil {
			return nil, t.WrapReadError(err)
		}
		last.Open = append(last.Open, r.openCalls()...)
		if len(r.survey.Operations) > before { // a row group after the window does not count
			read++
		}
	}
	last.Survey = r.survey
	last.keepLast(r.window.ToNs)
	return last, nil
}

// earliest returns the earliest start of operations, Unix ns.
func earliest(list []Operation) int64 {
	from := int64(math.MaxInt64)
	for i := range list {
		from = min(from, list[i].StartNs)
	}
	return from
}

// openCalls returns the open calls of the current row group that make communicators.
func (r *reader) openCalls() (list []OpenCall) {
	for i, at := range r.start {
		name := r.name.At(i)
		ofParent := strings.Contains(name, "CommSplit") || strings.Contains(name, "CommShrink")
		if r.kind.At(i) != format.KindCommunicatorCall || r.flags[i]&format.FlagOpen == 0 || at > r.window.ToNs ||
			!ofParent && !strings.Contains(name, "CommInit") {
			continue
		}
		list = append(list, OpenCall{
			Name:         name,
			OfParent:     ofParent,
			Pid:          r.pid[i],
			Tid:          r.tid[i],
			StartNs:      at,
			Communicator: r.id[i],
			Rank:         r.rank[i],
			Size:         r.sizeCol[i],
			Stack:        r.stack[i],
		})
	}
	return list
}

// lastSeries are operations that are counted together: collectives of a communicator, or Send or Recv with a peer.
type lastSeries struct {
	communicator int32
	function     Function // Send, Recv, or FunctionOther for collectives
	peer         int32
}

// keepLast keeps the last operations of each series, and marks those that had not returned at a time, Unix ns.
func (l *Last) keepLast(toNs int64) {
	slices.SortStableFunc(l.Operations, func(a, b Operation) int { return cmp.Compare(a.StartNs, b.StartNs) })
	kept := make(map[lastSeries]int)
	list := make([]Operation, 0, len(l.Operations))
	for _, o := range slices.Backward(l.Operations) {
		s := lastSeries{communicator: o.Communicator}
		if o.Function == Send || o.Function == Recv {
			s.function, s.peer = o.Function, o.Root
		}
		if kept[s]++; kept[s] <= maxLastOperations {
			o.IsOpen = o.IsOpen || units.EndOfRange(o.StartNs, o.DurNs) > toNs
			list = append(list, o)
		}
	}
	slices.Reverse(list)
	l.Operations = list
}
