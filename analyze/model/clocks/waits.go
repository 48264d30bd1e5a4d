package clocks

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// waits are the waits of hosts for their GPUs in the last row groups, and what tells which operations they wait for.
type waits struct {
	list      []wait // ordered by startNs
	groupEnds map[groupKey]int64
	captures  map[int32][]capture // by pid
	// fromNs is a time since which all calls were read, Unix ns.
	fromNs int64
}

// capture is a time in which a process captured a graph.
type capture struct{ startNs, endNs int64 }

// wait is a wait that returned without an error.
type wait struct {
	startNs, endNs   int64
	stream           int64
	pid, tid, device int32
	isAll            bool // it waits for all streams of the device
}

// groupKey identifies a group of operations of a thread.
type groupKey struct {
	pid, tid int32
	group    int64
}

// maxGroups is the number of row groups with calls of NCCL that are read for ends of groups, the last ones.
const maxGroups = 4

// readWaits reads the waits and groups of the last row groups. A recording without rows about capture has no waits.
func readWaits(t *timeline.Timeline) (*waits, error) {
	w := &waits{
		groupEnds: make(map[groupKey]int64), captures: make(map[int32][]capture), fromNs: math.MinInt64,
	}
	if !t.Rec.Meta.Has(format.RecordGraph) {
		return w, nil
	}
	for _, s := range t.Calls {
		w.addCalls(s.Group)
		if err := s.Group.Err(); err != nil {
			return nil, t.WrapReadError(err)
		}
	}
	slices.SortStableFunc(w.list, func(a, b wait) int { return cmp.Compare(a.startNs, b.startNs) })
	read, calls := 0, 0
	for _, g := range slices.Backward(t.Groups) {
		switch class := g.Class(); {
		case class == format.ClassCall:
			calls++
		case class == format.ClassCollective && read < maxGroups:
			read++
			w.addGroupEnds(g)
		}
		if err := g.Err(); err != nil {
			return nil, t.WrapReadError(err)
		}
	}
	if calls > len(t.Calls) && len(t.Calls) > 0 {
		w.fromNs = medianStart(t.Calls[0].Group)
	}
	return w, nil
}

// medianStart returns the median start of the calls of a row group, Unix ns. Few calls of earlier groups began later.
func medianStart(g *format.Group) int64 {
	start := slices.Sorted(slices.Values(g.Int64("start_ns", nil)))
	if len(start) == 0 {
		return math.MaxInt64
	}
	return start[len(start)/2]
}

// notReturned are the flags of calls whose return says nothing.
const notReturned = format.FlagOpen | format.FlagNoReturn | format.FlagAbandoned | format.FlagCaptured

// addCalls adds the waits and captures of a row group of calls.
func (w *waits) addCalls(g *format.Group) {
	names, start, dur := g.Strings("name"), g.Int64("start_ns", nil), g.Int64("dur_ns", nil)
	kinds, stream := g.Strings("kind"), g.Int64("stream", nil)
	pid, tid, device := g.Int32("pid", nil), g.Int32("tid", nil), g.Int32("device", nil)
	flags, result := g.Int32("flags", nil), g.Int32("result", nil)
	for i, at := range start {
		switch kind := kinds.At(i); {
		case kind == format.KindAPI && strings.HasPrefix(names.At(i), "cuStreamBeginCapture"):
			w.captures[pid[i]] = append(w.captures[pid[i]], capture{at, math.MaxInt64})
		case kind == format.KindAPI && strings.HasPrefix(names.At(i), "cuStreamEndCapture"):
			w.endCapture(pid[i], units.EndOfRange(at, dur[i]))
		case kind == format.KindSync && flags[i]&notReturned == 0 && result[i] == 0:
			name := catalog.BaseFunctionName(names.At(i))
			if isAll := name == "cuCtxSynchronize"; isAll || name == "cuStreamSynchronize" {
				w.list = append(w.list, wait{
					startNs: at, endNs: units.EndOfRange(at, dur[i]), stream: stream[i], pid: pid[i], tid: tid[i],
					device: device[i], isAll: isAll,
				})
			}
		}
	}
}

// endCapture ends the captures of a process. One that it does not know began before the rows that were read.
func (w *waits) endCapture(pid int32, endNs int64) {
	list := w.captures[pid]
	if len(list) == 0 {
		w.captures[pid] = []capture{{math.MinInt64, endNs}}
		return
	}
	list[len(list)-1].endNs = endNs
}

// mayBeCaptured reports whether a process may have captured an operation that it called at a time.
func (w *waits) mayBeCaptured(pid int32, ns int64) bool {
	return ns < w.fromNs || slices.ContainsFunc(w.captures[pid], func(c capture) bool {
		return ns >= c.startNs && ns <= c.endNs
	})
}

// addGroupEnds adds the returns of ncclGroupEnd of a row group.
func (w *waits) addGroupEnds(g *format.Group) {
	names, start, dur := g.Strings("name"), g.Int64("start_ns", nil), g.Int64("dur_ns", nil)
	group, pid, tid := g.Int64("group_number", nil), g.Int32("pid", nil), g.Int32("tid", nil)
	flags, result := g.Int32("flags", nil), g.Int32("result", nil)
	for i, at := range start {
		if group[i] != 0 && flags[i]&notReturned == 0 && result[i] == 0 && strings.HasSuffix(names.At(i), "GroupEnd") {
			w.groupEnds[groupKey{pid[i], tid[i], group[i]}] = units.EndOfRange(at, dur[i])
		}
	}
}

// Handles of streams that mean another stream in each thread, or that may.
const (
	defaultStream   = 0
	perThreadStream = 2
)

// endOf returns the earliest known end of an operation, noEnd if none is known.
func (w *waits) endOf(c *collective.Communicator, o *collective.Operation) int64 {
	if o.IsOpen || w.mayBeCaptured(c.Pid, o.StartNs) {
		return noEnd
	}
	given := units.EndOfRange(o.StartNs, o.DurNs)
	if o.Group != 0 {
		end, ok := w.groupEnds[groupKey{c.Pid, o.Tid, o.Group}]
		if !ok {
			return noEnd
		}
		given = end
	}
	end := int64(noEnd)
	from, _ := slices.BinarySearchFunc(w.list, given, func(s wait, ns int64) int { return cmp.Compare(s.startNs, ns) })
	for i := from; i < len(w.list) && w.list[i].startNs < end; i++ {
		s := &w.list[i]
		isStream := !s.isAll && s.stream == o.Stream &&
			(s.tid == o.Tid || o.Stream != defaultStream && o.Stream != perThreadStream)
		isDevice := s.isAll && s.device >= 0 && s.device == c.Device
		if s.pid == c.Pid && (isStream || isDevice) {
			end = min(end, s.endNs)
		}
	}
	return end
}
