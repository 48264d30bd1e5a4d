package cudaerrors

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// Scan counts calls that returned an error, by function, result and call site. It is not safe for
// concurrent use.
type Scan struct {
	*calls.CallCounter
	Groups    map[ErrorKey]*ErrorGroup
	nonErrors map[ErrorKey]*ErrorGroup // results that are no errors, such as CUDA_ERROR_NOT_READY; Key.Site is 0
	Names     origin.StringNumbers     // names of functions and call sites
	frees     fault.FailedFrees

	stack []int32
	site  format.Strings
}

// ErrorKey identifies a group of calls with the same function, call site and result.
type ErrorKey struct {
	Name, Site int32 // function and call site, indexes of Scan.Names
	Result     int32 // CUresult
}

// ErrorGroup has the statistics of the calls with the same Key.
type ErrorGroup struct {
	Calls           int64
	nested          int64 // part of Calls that was made inside another recorded call
	FirstNs, LastNs int64 // start of the first and of the last call, Unix ns
	Stack           int32 // stack id of the first call
	Threads         map[origin.Thread]int64
}

// NewScan returns a scan of the calls that pass the filter.
func NewScan(t *timeline.Timeline, f *query.Filter) *Scan {
	return &Scan{
		CallCounter: calls.NewCallCounter(t, f),
		Groups:      make(map[ErrorKey]*ErrorGroup),
		nonErrors:   make(map[ErrorKey]*ErrorGroup),
	}
}

// hasMatchingCall reports whether any call passed the filter, with or without an error.
func (s *Scan) hasMatchingCall() bool {
	n := s.Seen.ExplainNoMatch(s.Filter)
	return n.Filter == ""
}

// scanKey is the key of the Scan that reports share.
type scanKey struct{}

// ScanOf returns the Scan of a survey.
func ScanOf(sv *survey.Survey) *Scan {
	return survey.Share(sv, scanKey{}, func() *Scan {
		s := NewScan(sv.Timeline, sv.Filter)
		read := func(_ timeline.Span, g *format.Group) { s.ReadRowGroup(g) }
		sv.Add(survey.Observer{CallGroup: read, MemoryGroup: read})
		return s
	})
}

// ReadRowGroup processes a row group. If all of its calls succeeded, it reads only their results.
func (s *Scan) ReadRowGroup(g *format.Group) {
	s.Result, s.Flags = g.Int32("result", s.Result), g.Int32("flags", s.Flags)
	if !s.Filter.SelectsCallers() && !slices.ContainsFunc(s.Result, func(r int32) bool { return r != 0 }) {
		return
	}
	s.Kind, s.Name, s.Kernel = g.StringsInto(
		"kind",
		s.Kind,
	), g.StringsInto(
		"name",
		s.Name,
	), g.StringsInto(
		"kernel",
		s.Kernel,
	)
	s.site = g.StringsInto("site", s.site)
	s.Start, s.stack = g.Int64("start_ns", s.Start), g.Int32("stack_id", s.stack)
	s.Pid, s.Tid = g.Int32("pid", s.Pid), g.Int32("tid", s.Tid)
	parent := s.T.DriverParents(g.Int64("parent_start_ns", nil))
	pass := s.NewRowFilter(g, s.Kind, s.Kernel)
	names := s.Names.NumbersOf(s.Name.Dict)
	s.frees.StartRowGroup()
	for i, start := range s.Start {
		if start < s.Window.FromNs || start > s.Window.ToNs || !pass(i) || s.Result[i] == 0 ||
			s.Flags[i]&timeline.NoResultFlags != 0 {
			continue
		}
		key := ErrorKey{Name: names[s.Name.Index[i]], Result: s.Result[i]}
		groups := s.nonErrors
		if calls.IsErrorResult(s.Result[i]) {
			groups = s.Groups
			key.Site = s.Names.NumberOf(s.T.SiteOfCall(s.stack[i], s.site.At(i)))
			s.frees.AddFailedFree(g, i, s.Kind.At(i), fault.FailedFree{
				StartNs: start, Pid: s.Pid[i], Tid: s.Tid[i], Stack: s.stack[i],
				Result: s.Result[i], Name: key.Name, Site: key.Site,
			})
		}
		e := groups[key]
		if e == nil {
			e = &ErrorGroup{FirstNs: start, LastNs: start, Stack: s.stack[i], Threads: make(map[origin.Thread]int64)}
			groups[key] = e
		}
		e.addCall(start, s.stack[i], origin.Thread{Pid: s.Pid[i], Tid: s.Tid[i]}, parent[i] != 0)
	}
}

// addCall adds a call to the group.
func (e *ErrorGroup) addCall(startNs int64, stack int32, th origin.Thread, nested bool) {
	e.Calls++
	if nested {
		e.nested++
	}
	e.Threads[th]++
	e.LastNs = max(e.LastNs, startNs)
	if startNs < e.FirstNs {
		e.FirstNs, e.Stack = startNs, stack
	}
}

// ProcessesRecordedFromStart returns the processes whose first CUDA call, cuInit, is in the
// recording.
func ProcessesRecordedFromStart(t *timeline.Timeline) (map[int32]bool, error) {
	started := make(map[int32]bool)
	var name format.Strings
	var pid []int32
	for _, s := range t.Calls {
		name = s.Group.StringsInto("name", name)
		if first := slices.Index(name.Dict, "cuInit"); first >= 0 {
			pid = s.Group.Int32("pid", pid)
			for i := range pid {
				if int(name.Index[i]) == first {
					started[pid[i]] = true
				}
			}
		}
		if err := s.Group.Err(); err != nil {
			return nil, t.WrapReadError(err)
		}
	}
	return started, nil
}

// findFaults returns the asynchronous errors that pass the filter.
func (s *Scan) findFaults() ([]fault.GPUFault, error) {
	faults, err := fault.FindFaults(s.T)
	return slices.DeleteFunc(faults, func(f fault.GPUFault) bool {
		return f.StartNs < s.Window.FromNs || f.StartNs > s.Window.ToNs ||
			!s.Filter.PassesCaller(f.Pid, f.Tid, f.Device, f.Stream)
	}), err
}

// launchesBeforeFaults returns the launches before each asynchronous error.
func launchesBeforeFaults(t *timeline.Timeline, faults []fault.GPUFault, f *query.Filter) ([][]fault.Launch, error) {
	moments := make([]fault.ContextMoment, len(faults))
	for i, f := range faults {
		moments[i] = fault.ContextMoment{AtNs: f.EndNs, Pid: f.Pid, Context: f.Context}
	}
	return fault.FindLaunchesBefore(t, moments, f)
}
