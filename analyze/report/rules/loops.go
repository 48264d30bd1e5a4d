package rules

import (
	"strings"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// moduleLoadScan counts the calls that load code by call site. It also finds the processes that
// were recorded from their first call.
type moduleLoadScan struct {
	*calls.CallCounter
	Names    origin.StringNumbers
	sites    calls.CallSiteReader
	Sites    map[int32]*moduleLoadSite // by site
	SeenInit map[int32]bool            // processes that were recorded from their first call
	middleNs int64                     // middle of the time in which the program was active, Unix ns
}

// moduleLoadSite counts the calls of one call site that load code.
type moduleLoadSite struct {
	Loads           int64 // all calls
	Late            int64 // calls in the second half of the time
	FirstNs, LastNs int64 // start of the first and of the last call, Unix ns
	TookNs          int64 // sum of the durations of the calls that returned
	Stack           int32 // stack id of the first call
	Name            int32 // number of the function's name in moduleLoadScan.Names
}

// newModuleLoadScan returns a scan of the calls that pass the filter.
func newModuleLoadScan(t *timeline.Timeline, f *query.Filter) *moduleLoadScan {
	w := t.ActivityWindow(f)
	u := &moduleLoadScan{
		CallCounter: calls.NewCallCounter(t, f),
		Sites:       make(map[int32]*moduleLoadSite),
		SeenInit:    make(map[int32]bool),
		middleNs:    w.FromNs + w.DurNs()/2,
	}
	u.sites = calls.CallSiteReader{T: t, Names: &u.Names}
	return u
}

// loadsModule reports whether a CUDA driver function loads code into a context.
func loadsModule(name string) bool {
	return strings.HasPrefix(name, "cuModuleLoad") || strings.HasPrefix(name, "cuLibraryLoad")
}

// addRowGroup reads a row group. It returns early if the group's dictionary of names has no
// function that loads code and no cuInit, which is the usual case.
func (s *moduleLoadScan) addRowGroup(g *format.Group) {
	s.Name = g.StringsInto("name", s.Name)
	load, init, any := make([]bool, len(s.Name.Dict)), make([]bool, len(s.Name.Dict)), false
	for i, name := range s.Name.Dict {
		load[i], init[i] = loadsModule(name), name == "cuInit"
		any = any || load[i] || init[i]
	}
	if !any {
		return
	}
	s.Kind, s.Kernel = g.StringsInto("kind", s.Kind), format.Strings{}
	s.Start, s.Dur, s.Flags = g.Int64("start_ns", s.Start), g.Int64("dur_ns", s.Dur), g.Int32("flags", s.Flags)
	s.Pid = g.Int32("pid", s.Pid)
	if s.Filter.Kernel != nil {
		s.Kernel = g.StringsInto("kernel", s.Kernel)
	}
	s.sites.ReadGroup(g)
	pass := s.NewRowFilter(g, s.Kind, s.Kernel)
	if g.Err() != nil {
		return
	}
	names := s.Names.NumbersOf(s.Name.Dict)
	for i, start := range s.Start {
		name := s.Name.Index[i]
		if init[name] {
			s.SeenInit[s.Pid[i]] = true
		}
		if !load[name] || start < s.Window.FromNs || start > s.Window.ToNs || !pass(i) {
			continue
		}
		p := s.Sites[s.sites.SiteOfRow(i)]
		if p == nil {
			p = &moduleLoadSite{FirstNs: start, LastNs: start, Stack: s.sites.Stack[i], Name: names[name]}
			s.Sites[s.sites.SiteOfRow(i)] = p
		}
		p.Loads++
		if start >= s.middleNs {
			p.Late++
		}
		p.FirstNs, p.LastNs = min(p.FirstNs, start), max(p.LastNs, start)
		if s.Flags[i]&timeline.NoResultFlags == 0 {
			p.TookNs = units.EndOfRange(p.TookNs, s.Dur[i])
		}
	}
}
