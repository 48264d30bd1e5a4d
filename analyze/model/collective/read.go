package collective

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// Read returns the communicators of a recording, and the operations that pass the filter of opt. It reads row
// groups of class collective one by one, and keeps about 80 bytes for an operation. It returns errors of
// reading the recording. It may run while other goroutines use other views of the recording.
func Read(t *timeline.Timeline, opt query.Options) (*Survey, error) {
	r := reader{index: make(map[address][]int32), window: opt.NarrowWindow(t.RecordingWindow()), filter: &opt.Filter}
	if err := r.readCommunicators(t); err != nil {
		return nil, t.WrapReadError(err)
	}
	for _, g := range t.Groups {
		if g.Class() == format.ClassCollective {
			r.addGroup(g)
		}
		if err := g.Err(); err != nil {
			return nil, t.WrapReadError(err)
		}
	}
	slices.SortStableFunc(r.survey.Operations, func(a, b Operation) int { return cmp.Compare(a.StartNs, b.StartNs) })
	return &r.survey, nil
}

// HasRows reports whether the recording has rows of class collective.
func HasRows(t *timeline.Timeline) bool {
	return slices.ContainsFunc(t.Groups, func(g *format.Group) bool {
		return g.Class() == format.ClassCollective
	})
}

// address identifies a communicator at one time.
type address struct {
	ptr int64
	pid int32
}

// reader reads operations. Its columns hold the current row group.
type reader struct {
	survey Survey
	index  map[address][]int32 // communicators at an address, ordered by FromNs
	window query.Window
	filter *query.Filter

	kind, name, dataType, reduction                             format.Strings
	start, dur, sequence, group, bytes, stream, ptr, id         []int64
	pid, tid, device, root, stack, result, flags, rank, sizeCol []int32
	value                                                       []float64
}

// readCommunicators reads the facts.
func (r *reader) readCommunicators(t *timeline.Timeline) (err error) {
	r.survey.Communicators, err = ReadCommunicators(t.Pieces...)
	for i, c := range r.survey.Communicators {
		a := address{c.Ptr, c.Pid}
		r.index[a] = append(r.index[a], int32(i))
	}
	return err
}

// ReadCommunicators returns the communicators of the pieces of a recording, ordered by FromNs. It reads facts only. A
// later row replaces an earlier one of the same communicator. It returns errors of reading the recording.
func ReadCommunicators(pieces ...*format.Recording) ([]Communicator, error) {
	type key struct {
		address
		fromNs int64
	}
	known := make(map[key]int)
	var list []Communicator
	add := func(row *format.Row) error {
		if row.Kind != format.KindCommunicator {
			return nil
		}
		c := Communicator{
			ID: row.Communicator, Ptr: row.Ptr, FromNs: row.StartNs, Pid: row.Pid, Rank: row.CommunicatorRank,
			Size: max(0, row.CommunicatorSize), Device: row.Device, Name: row.Name,
		}
		if json.Unmarshal([]byte(row.Message), &c.Fact) != nil {
			c.Fact = format.CommunicatorFact{Missing: "unreadable facts"}
		}
		k := key{address{c.Ptr, c.Pid}, c.FromNs}
		if i, ok := known[k]; ok {
			list[i] = c
			return nil
		}
		known[k] = len(list)
		list = append(list, c)
		return nil
	}
	for _, rec := range pieces {
		if err := rec.Rows(add, format.ClassFact); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(list, func(a, b Communicator) int { return cmp.Compare(a.FromNs, b.FromNs) })
	return list, nil
}

func (r *reader) readColumns(g *format.Group) {
	r.kind, r.name = g.StringsInto("kind", r.kind), g.StringsInto("name", r.name)
	r.dataType, r.reduction = g.StringsInto("data_type", r.dataType), g.StringsInto("reduction", r.reduction)
	r.start, r.dur = g.Int64("start_ns", r.start), g.Int64("dur_ns", r.dur)
	r.sequence, r.group = g.Int64("sequence", r.sequence), g.Int64("group_number", r.group)
	r.bytes, r.stream = g.Int64("bytes", r.bytes), g.Int64("stream", r.stream)
	r.ptr, r.id = g.Int64("ptr", r.ptr), g.Int64("communicator", r.id)
	r.pid, r.tid, r.device = g.Int32("pid", r.pid), g.Int32("tid", r.tid), g.Int32("device", r.device)
	r.root, r.stack = g.Int32("root", r.root), g.Int32("stack_id", r.stack)
	r.result, r.flags = g.Int32("result", r.result), g.Int32("flags", r.flags)
	r.rank, r.sizeCol = g.Int32("communicator_rank", r.rank), g.Int32("communicator_size", r.sizeCol)
	r.value = g.Float64("value", r.value)
}

// addGroup adds the operations of a row group.
func (r *reader) addGroup(g *format.Group) {
	r.readColumns(g)
	if g.Err() != nil {
		return
	}
	functions := make([]Function, len(r.name.Dict))
	for i, name := range r.name.Dict {
		functions[i] = FunctionOf(name)
	}
	types, reductions := numbersOf(
		r.dataType.Dict,
		format.DataTypes[:],
	), numbersOf(
		r.reduction.Dict,
		format.Reductions[:],
	)
	for i, at := range r.start {
		if r.kind.At(i) != format.KindCollective || at < r.window.FromNs || at > r.window.ToNs {
			continue
		}
		if f := r.filter; f.SelectsCallers() && !f.PassesCaller(r.pid[i], r.tid[i], r.device[i], r.stream[i]) {
			continue
		}
		c, function := r.communicatorOf(i), functions[r.name.Index[i]]
		r.survey.Operations = append(r.survey.Operations, Operation{
			StartNs: at, DurNs: max(0, r.dur[i]), Sequence: r.numberOf(i, c, function), Group: r.group[i],
			Count: wholeCount(r.value[i]), Bytes: max(0, r.bytes[i]), Stream: r.stream[i],
			Communicator: c, Tid: r.tid[i], Root: r.root[i], Stack: r.stack[i],
			Result: r.result[i], Function: function, DataType: types[r.dataType.Index[i]],
			Reduction: reductions[r.reduction.Index[i]], IsOpen: r.flags[i]&format.FlagOpen != 0,
		})
	}
}

// numberOf returns the number of the operation in row i since its communicator was made, 0 if it has none.
func (r *reader) numberOf(i int, communicator int32, f Function) int64 {
	before := r.survey.Communicators[communicator].Fact.Before
	if n := r.sequence[i]; n <= 0 || !f.IsCollective() || before < 0 || before > math.MaxInt64-n {
		return max(0, n)
	}
	return r.sequence[i] + before
}

// communicatorOf returns the communicator of row i: the last at its address that began before. Without such a
// row it adds a communicator with what the row says.
func (r *reader) communicatorOf(i int) int32 {
	a := address{r.ptr[i], r.pid[i]}
	list := r.index[a]
	for j := len(list) - 1; j >= 0; j-- {
		c := &r.survey.Communicators[list[j]]
		isSame := c.ID == r.id[i] || r.id[i] == 0 || c.ID == 0
		isOlder := j == 0 && c.Fact.How == format.CommunicatorOlder
		if isSame && (c.FromNs <= r.start[i] || isOlder) {
			return list[j]
		}
	}
	n := int32(len(r.survey.Communicators))
	r.survey.Communicators = append(r.survey.Communicators, Communicator{
		ID: r.id[i], Ptr: a.ptr, FromNs: r.start[i], Pid: a.pid, Rank: r.rank[i], Size: max(0, r.sizeCol[i]),
		Device: r.device[i], Fact: format.CommunicatorFact{
			How: format.CommunicatorOlder, Numbering: format.NumberingRelative, Missing: "no facts in the recording",
		},
	})
	r.index[a] = append(list, n)
	return n
}

// wholeCount returns a number of elements; 0 for values that are none.
func wholeCount(value float64) int64 {
	if !(value > 0 && value < math.MaxInt64/2) {
		return 0
	}
	return int64(value)
}

// numbersOf returns the index in names of each value of a dictionary; len(names) for others.
func numbersOf(dict, names []string) []uint8 {
	list := make([]uint8, len(dict))
	for i, value := range dict {
		n := slices.Index(names, value)
		if n < 0 {
			n = len(names)
		}
		list[i] = uint8(n)
	}
	return list
}
