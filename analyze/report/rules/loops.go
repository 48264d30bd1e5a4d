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
func (u *moduleLoadScan) addRowGroup(g *format.Group) {
	u.Name = g.StringsInto("name", u.Name)
	load, init, any := make([]bool, len(u.Name.Dict)), make([]bool, len(u.Name.Dict)), false
	for i, name := range u.Name.Dict {
		load[i], init[i] = loadsModule(name), name == "cuInit"
		any = any || load[i] || init[i]
	}
	if !any {
		return
	}
	u.Kind, u.Kernel = g.StringsInto("kind", u.Kind), format.Strings{}
	u.Start, u.Dur, u.Flags = g.Int64("start_ns", u.Start), g.Int64("dur_ns", u.Dur), g.Int32("flags", u.Flags)
	u.Pid = g.Int32("pid", u.Pid)
	if u.Filter.Kernel != nil {
		u.Kernel = g.StringsInto("kernel", u.Kernel)
	}
	u.sites.ReadGroup(g)
	pass := u.NewRowFilter(g, u.Kind, u.Kernel)
	if g.Err() != nil {
		return
	}
	names := u.Names.NumbersOf(u.Name.Dict)
	for i, start := range u.Start {
		name := u.Name.Index[i]
		if init[name] {
			u.SeenInit[u.Pid[i]] = true
		}
		if !load[name] || start < u.Window.FromNs || start > u.Window.ToNs || !pass(i) {
			continue
		}
		p := u.Sites[u.sites.SiteOfRow(i)]
		if p == nil {
			p = &moduleLoadSite{FirstNs: start, LastNs: start, Stack: u.sites.Stack[i], Name: names[name]}
			u.Sites[u.sites.SiteOfRow(i)] = p
		}
		p.Loads++
		if start >= u.middleNs {
			p.Late++
		}
		p.FirstNs, p.LastNs = min(p.FirstNs, start), max(p.LastNs, start)
		if u.Flags[i]&timeline.NoResultFlags == 0 {
			p.TookNs = units.EndOfRange(p.TookNs, u.Dur[i])
		}
	}
}
