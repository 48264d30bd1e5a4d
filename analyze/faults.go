package analyze

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// fault is an asynchronous error as it was first noticed in a context: the call that returned it.
type fault struct {
	startNs, endNs int64
	pid, tid       int32
	device         int32
	context        int64
	stream         int64
	result         int32
	stack          int32
	name, site     string
}

func (f *fault) before(o *fault) int {
	return cmp.Or(cmp.Compare(f.endNs, o.endNs), cmp.Compare(f.startNs, o.startNs), cmp.Compare(f.pid, o.pid), cmp.Compare(f.tid, o.tid))
}

// label names the fault where others are listed with it.
func (f *fault) label(t *Timeline) string {
	return fmt.Sprintf("%d at %s", f.result, units.Duration(f.endNs-t.Recording().FromNs))
}

// faultKey is what breaks once: a context, until the process resets or destroys one.
type faultKey struct {
	pid     int32
	context int64
	ends    int
}

// faultScan finds faults.
type faultScan struct {
	t     *Timeline
	first map[faultKey]*fault
	ends  map[int32][]int64 // by process, when contexts ended

	start, dur, context, stream            []int64
	pid, tid, device, result, flags, stack []int32
	name, site                             format.Strings
}

// faults returns the first asynchronous error in each context, in order of time. Every later call in a broken context
// returns the same.
func (t *Timeline) faults() ([]fault, error) {
	s := faultScan{t: t, first: make(map[faultKey]*fault), ends: make(map[int32][]int64)}
	for i := range t.api.calls {
		if c := &t.api.calls[i]; c.what == apiDestroyContext || c.what == apiResetPrimary {
			s.ends[c.pid] = append(s.ends[c.pid], c.startNs)
		}
	}
	for _, spans := range [][]span{t.memory, t.calls} {
		for _, sp := range spans {
			s.group(sp.group)
			if err := sp.group.Err(); err != nil {
				return nil, t.wrap(err)
			}
		}
	}
	list := make([]fault, 0, len(s.first))
	for _, f := range s.first {
		list = append(list, *f)
	}
	slices.SortFunc(list, func(a, b fault) int { return a.before(&b) })
	return list, nil
}

func (s *faultScan) group(g *format.Group) {
	s.result = g.Int32("result", s.result)
	if !slices.ContainsFunc(s.result, catalog.IsAsynchronous) {
		return
	}
	s.start, s.dur = g.Int64("start_ns", s.start), g.Int64("dur_ns", s.dur)
	s.context, s.stream = g.Int64("context", s.context), g.Int64("stream", s.stream)
	s.pid, s.tid, s.device = g.Int32("pid", s.pid), g.Int32("tid", s.tid), g.Int32("device", s.device)
	s.flags, s.stack = g.Int32("flags", s.flags), g.Int32("stack_id", s.stack)
	s.name, s.site = g.StringsInto("name", s.name), g.StringsInto("site", s.site)
	for i, result := range s.result {
		if !catalog.IsAsynchronous(result) || s.flags[i]&noResult != 0 {
			continue
		}
		f := fault{startNs: s.start[i], endNs: units.EndOf(s.start[i], s.dur[i]), pid: s.pid[i], tid: s.tid[i], device: s.t.deviceOf(s.pid[i], s.context[i], s.device[i]),
			context: s.context[i], stream: s.stream[i], result: result, stack: s.stack[i], name: s.name.At(i), site: s.site.At(i)}
		ends, _ := slices.BinarySearch(s.ends[f.pid], f.endNs)
		key := faultKey{f.pid, f.context, ends}
		if old := s.first[key]; old == nil || f.before(old) < 0 {
			s.first[key] = &f
		}
	}
}

// noResult are the flags of calls whose result means nothing.
const noResult = format.FlagOpen | format.FlagAbandoned | format.FlagNoReturn

// clockSlackNs is by how much the times of an Xid and of a call may be wrong against each other: the kernel's log has its own
// clock, and the driver tells it when it gets to it.
const clockSlackNs = 100_000_000

// xidOf returns the last Xid of the fault's process until the fault was noticed.
func (f *facts) xidOf(fl *fault) (*xid, bool) {
	for i := len(f.xids) - 1; i >= 0; i-- {
		if x := &f.xids[i]; !x.sxid && x.pid == fl.pid && !x.before && x.atNs <= fl.endNs+clockSlackNs {
			return x, true
		}
	}
	return nil, false
}

// faultAfter returns the first of the faults, which are in order of time, that a process noticed from an Xid on.
func faultAfter(faults []fault, pid int32, atNs int64) *fault {
	for i := range faults {
		if f := &faults[i]; f.pid == pid && f.endNs >= atNs-clockSlackNs {
			return f
		}
	}
	return nil
}
