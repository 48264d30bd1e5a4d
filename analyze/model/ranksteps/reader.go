package ranksteps

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

// Reader reads the recordings of a job one after the other. It keeps the steps of each rank, and a sum for each
// kind of operation. It is not safe for concurrent use.
type Reader struct {
	job        *job.Job
	opt        query.Options
	ranks      []rank // by member
	markers    map[int64]chosenMarker
	operations map[operationKey]*operationSum
}

// chosenMarker is the result of chooseMarker for a communicator.
type chosenMarker struct {
	marker
	ok bool
}

// rank is a member of the job while its recording is read.
type rank struct {
	member, pid int32
	out         Rank
	mix         uint64    // hash of the operations of a step
	sequences   []int64   // of the collectives at which steps begin
	starts      []int64   // of the steps, Unix ns; one more than steps
	steps       []stepSum // by step
	isNumbered  bool
	hasGPU      bool
	timed       []bool                 // by step: the GPU times of all collectives are known
	operations  []collective.Operation // of the process, while its recording is read
	sums        []*operationSum        // of operations
	calls       []hostCall             // while its recording is read
	arrivals    []arrival
	waits       []int64 // by step: in collectives, by arrivals, ns; -1: unknown
}

// stepSum has the times of a step, ns.
type stepSum struct {
	blockedNs, hostCopyNs          int64
	hostCollectiveNs               int64 // part of blockedNs
	collectiveNs, kernelNs, copyNs int64
	coveredNs                      int64 // in which launches were recorded
	copyBytes                      int64 // between host and device
	kernels, collectives           int32
}

// NewReader returns a Reader for a job. Operations outside of the time window of opt are not read.
func NewReader(j *job.Job, opt query.Options) *Reader {
	r := &Reader{
		job: j, opt: opt, ranks: make([]rank, len(j.Members)), markers: make(map[int64]chosenMarker),
		operations: make(map[operationKey]*operationSum),
	}
	for i := range r.ranks {
		r.ranks[i].member, r.ranks[i].pid = int32(i), j.Members[i].Pid
	}
	return r
}

// Add reads recording i of the job. It returns errors of reading the recording.
func (r *Reader) Add(t *timeline.Timeline, i int) error {
	byPid := make(map[int32]*rank)
	for m := range r.ranks {
		if r.job.Members[m].Recording == i {
			byPid[r.ranks[m].pid] = &r.ranks[m]
		}
	}
	survey, err := collective.Read(t, r.opt)
	if err != nil {
		return err
	}
	if len(survey.Operations) == 0 {
		return r.addByLaunches(t, i, byPid)
	}
	for o := range survey.Operations {
		op := &survey.Operations[o]
		c := &survey.Communicators[op.Communicator]
		if k := byPid[c.Pid]; k != nil {
			k.operations = append(k.operations, *op)
			k.sums = append(k.sums, r.sumOf(c, op, int(k.member)))
		}
	}
	survey.Operations = nil
	if err := readHostCalls(t, byPid); err != nil {
		return err
	}
	for _, pid := range slices.Sorted(maps.Keys(byPid)) {
		r.findSteps(byPid[pid], survey)
	}
	if err := addGPUTimes(t, r.opt.NarrowWindow(t.RecordingWindow()), byPid); err != nil {
		return err
	}
	if err := addArrivals(t, survey, byPid, r.job.Recordings[i].ShiftNs); err != nil {
		return err
	}
	for _, k := range byPid {
		k.operations, k.sums, k.calls = nil, nil, nil
	}
	return nil
}

// communicatorOf collects the collectives of a communicator.
type communicatorOf struct {
	*collective.Communicator
	marks   []mark
	indexes []int // of rank.operations
}

// findSteps divides the time of a rank into steps.
func (r *Reader) findSteps(k *rank, survey *collective.Survey) {
	k.out.Collectives = int64(len(k.operations))
	for _, c := range k.communicators(survey) {
		chosen, known := r.markers[c.ID]
		if !known || c.ID == 0 {
			chosen.marker, chosen.ok = chooseMarker(c.marks)
			if c.ID != 0 {
				r.markers[c.ID] = chosen
			}
		}
		if chosen.ok && k.divide(c, &chosen.marker) {
			k.addCalls()
			k.mix = k.mixOf(survey)
			return
		}
	}
}

// communicators returns the communicators of a rank with enough collectives: the one with the most ranks first,
// then the one with the most collectives.
func (r *rank) communicators(survey *collective.Survey) []*communicatorOf {
	byIndex := make(map[int32]*communicatorOf)
	wait, ops := 0, r.operations
	for i := range ops {
		o := &ops[i]
		if !o.Function.IsCollective() || o.Sequence == 0 {
			continue
		}
		c := byIndex[o.Communicator]
		if c == nil {
			c = &communicatorOf{Communicator: &survey.Communicators[o.Communicator]}
			byIndex[o.Communicator] = c
		}
		waited := false
		for ; wait < len(r.calls) && r.calls[wait].startNs < o.StartNs; wait++ {
			waited = waited || r.calls[wait].kind == callWait
		}
		c.marks = append(c.marks, mark{o.Sequence, o.StartNs, keyOf(o), waited})
		c.indexes = append(c.indexes, i)
	}
	list := slices.DeleteFunc(slices.Collect(maps.Values(byIndex)), func(c *communicatorOf) bool {
		return len(c.marks) < leastMarks
	})
	slices.SortFunc(list, func(a, b *communicatorOf) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(len(b.marks), len(a.marks)), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// divide begins a step at each collective that the marker selects. It returns false if there are too few.
func (r *rank) divide(c *communicatorOf, m *marker) bool {
	r.sequences, r.starts = nil, nil
	last, lengths := 0, []int{}
	for i := range c.marks {
		if !m.selects(&c.marks[i]) {
			continue
		}
		if len(r.starts) > 0 {
			lengths = append(lengths, i-last)
		}
		last = i
		r.sequences, r.starts = append(r.sequences, c.marks[i].sequence), append(r.starts, c.marks[i].startNs)
		if r.out.Marker == "" {
			o := &r.operations[c.indexes[i]]
			r.out.Marker = fmt.Sprintf("%s %s", o.Function, units.FormatBytes(o.TotalBytes(int(c.Size))))
		}
	}
	if len(r.starts) <= leastMarks {
		r.sequences, r.starts, r.out.Marker = nil, nil, ""
		return false
	}
	slices.Sort(lengths)
	r.steps = make([]stepSum, len(r.starts)-1)
	r.out.Communicator, r.out.WindowSize, r.out.PerStep = c.ID, m.window, lengths[len(lengths)/2]
	r.isNumbered = c.ID != 0 && c.isNumbered()
	return true
}

// isNumbered reports whether equal numbers on two ranks are the same collective.
func (c *communicatorOf) isNumbered() bool { return c.Fact.Numbering != "relative" }

// keyOf identifies equal collectives. All ranks have the same root.
func keyOf(o *collective.Operation) uint64 {
	h := fnv.New64a()
	var data [18]byte
	data[0], data[1] = byte(o.Function), o.DataType
	binary.LittleEndian.PutUint64(data[2:], uint64(o.Count))
	binary.LittleEndian.PutUint32(data[10:], uint32(o.Root))
	data[14] = o.Reduction
	h.Write(data[:])
	return h.Sum64()
}

// usualShare is the number of operations a step from which on a kind of operation belongs to the steps of a rank.
const usualShare = 0.37

// mixOf returns a hash of the kinds of operations in the steps of a rank. Sizes do not count: with experts, each
// rank and step has others.
func (r *rank) mixOf(survey *collective.Survey) uint64 {
	type kind struct {
		function collective.Function
		size     int32
	}
	counts := make(map[kind]int)
	for i := range r.operations {
		o := &r.operations[i]
		if o.StartNs >= r.starts[0] && o.StartNs < r.starts[len(r.starts)-1] {
			counts[kind{o.Function, survey.Communicators[o.Communicator].Size}]++
		}
	}
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b kind) int {
		return cmp.Or(cmp.Compare(a.function, b.function), cmp.Compare(a.size, b.size))
	})
	h := fnv.New64a()
	for _, c := range kinds {
		if float64(counts[c]) >= usualShare*float64(len(r.steps)) {
			fmt.Fprintln(h, r.out.Communicator, c.function, c.size)
		}
	}
	return h.Sum64()
}

// stepAt returns the step that a time is in, or -1.
func (r *rank) stepAt(ns int64) int {
	i, found := slices.BinarySearch(r.starts, ns)
	if !found {
		i--
	}
	if i >= len(r.steps) {
		return -1
	}
	return i
}
