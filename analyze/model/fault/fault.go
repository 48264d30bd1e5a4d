package fault

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Fault is the first call in a context that returned an asynchronous error. Times are Unix ns.
type Fault struct {
	StartNs, EndNs int64
	Pid, Tid       int32
	Device         int32
	Context        int64
	Stream         int64
	Result         int32
	stack          int32
	Name, site     string
}

func (f *Fault) before(o *Fault) int {
	return cmp.Or(
		cmp.Compare(f.EndNs, o.EndNs),
		cmp.Compare(f.StartNs, o.StartNs),
		cmp.Compare(f.Pid, o.Pid),
		cmp.Compare(f.Tid, o.Tid),
	)
}

// Label returns a short name of the fault for tables: its result and the time since the start of
// the recording.
func (f *Fault) Label(t *timeline.Timeline) string {
	return fmt.Sprintf("%d at %s", f.Result, units.Duration(f.EndNs-t.Recording().FromNs))
}

// faultKey identifies a context that can fail once. ends counts the contexts that the process
// destroyed or reset before.
type faultKey struct {
	pid     int32
	context int64
	ends    int
}

// faultScan finds the first fault of each context.
type faultScan struct {
	t     *timeline.Timeline
	first map[faultKey]*Fault
	ends  map[int32][]int64 // by process: when contexts ended, Unix ns

	start, dur, context, stream            []int64
	pid, tid, device, result, flags, stack []int32
	name, site                             format.Strings
}

// Find returns the first asynchronous error of each context, in order of time. Every later call in
// a broken context returns the same error.
func Find(t *timeline.Timeline) ([]Fault, error) {
	s := faultScan{t: t, first: make(map[faultKey]*Fault), ends: make(map[int32][]int64)}
	for i := range t.API.Calls {
		if c := &t.API.Calls[i]; c.Kind == timeline.APIDestroyContext || c.Kind == timeline.APIResetPrimary {
			s.ends[c.Pid] = append(s.ends[c.Pid], c.StartNs)
		}
	}
	for _, spans := range [][]timeline.Span{t.Memory, t.Calls} {
		for _, sp := range spans {
			s.group(sp.Group)
			if err := sp.Group.Err(); err != nil {
				return nil, t.Wrap(err)
			}
		}
	}
	list := make([]Fault, 0, len(s.first))
	for _, f := range s.first {
		list = append(list, *f)
	}
	slices.SortFunc(list, func(a, b Fault) int { return a.before(&b) })
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
		if !catalog.IsAsynchronous(result) || s.flags[i]&timeline.NoResult != 0 {
			continue
		}
		f := Fault{
			StartNs: s.start[i],
			EndNs:   units.EndOf(s.start[i], s.dur[i]),
			Pid:     s.pid[i],
			Tid:     s.tid[i],
			Device:  s.t.DeviceOf(s.pid[i], s.context[i], s.device[i]),
			Context: s.context[i],
			Stream:  s.stream[i],
			Result:  result,
			stack:   s.stack[i],
			Name:    s.name.At(i),
			site:    s.site.At(i),
		}
		ends, _ := slices.BinarySearch(s.ends[f.Pid], f.EndNs)
		key := faultKey{f.Pid, f.Context, ends}
		if old := s.first[key]; old == nil || f.before(old) < 0 {
			s.first[key] = &f
		}
	}
}

// clockSlackNs is the maximum error between the time of an Xid and that of a call. The kernel log
// has its own clock, and the driver logs an Xid with a delay.
const clockSlackNs = 100_000_000

// XidOf returns the last Xid that the driver logged for the fault's process before the process
// noticed the fault. It returns false if there is none.
func XidOf(f *facts.Facts, fl *Fault) (*facts.Xid, bool) {
	for i := len(f.Xids) - 1; i >= 0; i-- {
		if x := &f.Xids[i]; !x.Sxid && x.Pid == fl.Pid && !x.Before && x.AtNs <= fl.EndNs+clockSlackNs {
			return x, true
		}
	}
	return nil, false
}

// After returns the first fault that a process noticed at or after an Xid at atNs (Unix ns), or
// nil. The faults must be in order of time.
func After(faults []Fault, pid int32, atNs int64) *Fault {
	for i := range faults {
		if f := &faults[i]; f.Pid == pid && f.EndNs >= atNs-clockSlackNs {
			return f
		}
	}
	return nil
}
