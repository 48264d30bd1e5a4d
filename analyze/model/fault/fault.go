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

// GPUFault is the first call in a context that returned an asynchronous error. Times are Unix ns.
type GPUFault struct {
	StartNs, EndNs int64
	Pid, Tid       int32
	Device         int32
	Context        int64
	Stream         int64
	Result         int32
	stack          int32
	Name, site     string
}

func (f *GPUFault) compareByEnd(o *GPUFault) int {
	return cmp.Or(
		cmp.Compare(f.EndNs, o.EndNs),
		cmp.Compare(f.StartNs, o.StartNs),
		cmp.Compare(f.Pid, o.Pid),
		cmp.Compare(f.Tid, o.Tid),
	)
}

// FormatLabel returns a short name of the fault for tables: its result and the time since the start
// of the recording.
func (f *GPUFault) FormatLabel(t *timeline.Timeline) string {
	return fmt.Sprintf("%d at %s", f.Result, units.FormatDuration(f.EndNs-t.RecordingWindow().FromNs))
}

// faultyContextKey identifies a context that can fail once. ends counts the contexts that the
// process destroyed or reset before.
type faultyContextKey struct {
	pid     int32
	context int64
	ends    int
}

// faultScan finds the first fault of each context.
type faultScan struct {
	t     *timeline.Timeline
	first map[faultyContextKey]*GPUFault
	ends  map[int32][]int64 // by pid: when contexts of the process ended, Unix ns

	start, dur, context, stream            []int64
	pid, tid, device, result, flags, stack []int32
	name, site                             format.Strings
}

// FindFaults returns the first asynchronous error of each context, in order of time. Every later
// call in a broken context returns the same error.
func FindFaults(t *timeline.Timeline) ([]GPUFault, error) {
	s := faultScan{t: t, first: make(map[faultyContextKey]*GPUFault), ends: make(map[int32][]int64)}
	for i := range t.API.Calls {
		if c := &t.API.Calls[i]; c.Kind == timeline.APIDestroyContext || c.Kind == timeline.APIResetPrimary {
			s.ends[c.Pid] = append(s.ends[c.Pid], c.StartNs)
		}
	}
	for _, spans := range [][]timeline.Span{t.Memory, t.Calls} {
		for _, sp := range spans {
			s.scanGroup(sp.Group)
			if err := sp.Group.Err(); err != nil {
				return nil, t.WrapReadError(err)
			}
		}
	}
	list := make([]GPUFault, 0, len(s.first))
	for _, f := range s.first {
		list = append(list, *f)
	}
	slices.SortFunc(list, func(a, b GPUFault) int { return a.compareByEnd(&b) })
	return list, nil
}

func (s *faultScan) scanGroup(g *format.Group) {
	s.result = g.Int32("result", s.result)
	if !slices.ContainsFunc(s.result, catalog.IsAsynchronousError) {
		return
	}
	s.start, s.dur = g.Int64("start_ns", s.start), g.Int64("dur_ns", s.dur)
	s.context, s.stream = g.Int64("context", s.context), g.Int64("stream", s.stream)
	s.pid, s.tid, s.device = g.Int32("pid", s.pid), g.Int32("tid", s.tid), g.Int32("device", s.device)
	s.flags, s.stack = g.Int32("flags", s.flags), g.Int32("stack_id", s.stack)
	s.name, s.site = g.StringsInto("name", s.name), g.StringsInto("site", s.site)
	for i, result := range s.result {
		if !catalog.IsAsynchronousError(result) || s.flags[i]&timeline.NoResultFlags != 0 {
			continue
		}
		f := GPUFault{
			StartNs: s.start[i],
			EndNs:   units.EndOfRange(s.start[i], s.dur[i]),
			Pid:     s.pid[i],
			Tid:     s.tid[i],
			Device:  s.t.DeviceOfCall(s.pid[i], s.context[i], s.device[i]),
			Context: s.context[i],
			Stream:  s.stream[i],
			Result:  result,
			stack:   s.stack[i],
			Name:    s.name.At(i),
			site:    s.site.At(i),
		}
		ends, _ := slices.BinarySearch(s.ends[f.Pid], f.EndNs)
		key := faultyContextKey{f.Pid, f.Context, ends}
		if old := s.first[key]; old == nil || f.compareByEnd(old) < 0 {
			s.first[key] = &f
		}
	}
}

// maxXidClockErrorNs is the maximum error between the time of an Xid and that of a call. The kernel
// log has its own clock, and the driver logs an Xid with a delay.
const maxXidClockErrorNs = 100_000_000

// FindXidOfFault returns the last Xid that the driver logged for the fault's process before the
// process noticed the fault. It returns false if there is none.
func FindXidOfFault(f *facts.Facts, fl *GPUFault) (*facts.Xid, bool) {
	for i := len(f.Xids) - 1; i >= 0; i-- {
		if x := &f.Xids[i]; !x.Sxid && x.Pid == fl.Pid && !x.Before && x.AtNs <= fl.EndNs+maxXidClockErrorNs {
			return x, true
		}
	}
	return nil, false
}

// FindFaultAfter returns the first fault that a process noticed at or after an Xid at atNs (Unix
// ns), or nil. The faults must be in order of time.
func FindFaultAfter(faults []GPUFault, pid int32, atNs int64) *GPUFault {
	for i := range faults {
		if f := &faults[i]; f.Pid == pid && f.EndNs >= atNs-maxXidClockErrorNs {
			return f
		}
	}
	return nil
}
