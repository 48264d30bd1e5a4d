package graphs

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/graph"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// launchStats has the statistics of the launches of an executable graph.
type launchStats struct {
	launches, errors, timed int64
	hostNs                  int64           // duration of timed launches, ns
	lastNs                  int64           // start of the last launch, Unix ns
	sites                   map[int32]int64 // launches by call site
	gpu                     activity.TimeSum
}

// scan collects the launches of graphs. It is not safe for concurrent use.
type scan struct {
	*calls.CallReader
	creation
	contents graph.GraphContents // nil if no graph is launched
	times    *activity.SiteTimes // nil without GPU times
}

// addCall adds a call. It skips those that launch no graph, and launches that were captured. It always returns nil.
func (sc *scan) addCall(c *calls.Call) error {
	if catalog.BaseFunctionName(sc.Names.List[c.Name]) != "cuGraphLaunch" || c.Flags&format.FlagCaptured != 0 {
		return nil
	}
	e := sc.executionAt(c.Pid, c.Device, c.Ptr, c.StartNs)
	if c.HasDuration() {
		e.timed++
		e.hostNs = units.EndOfRange(e.hostNs, c.EndNs-c.StartNs)
		if calls.IsErrorResult(c.Result) {
			e.errors++
			return nil
		}
	}
	if e.sites == nil {
		e.sites = make(map[int32]int64)
	}
	e.launches++
	e.sites[c.Site]++
	e.lastNs = c.StartNs
	if c.Device >= 0 {
		e.device = c.Device
	}
	return nil
}

// shown returns the executable graphs to report: those with launches that pass the filter, and those of the processes
// and devices of the filter that were instantiated in the window. Filters of threads and streams need launches.
func (sc *scan) shown(f *query.Filter) (list []*execution) {
	byLaunch := len(f.Tids)+len(f.Streams) > 0 || f.Kernel != nil
	for _, executions := range sc.executions {
		for _, e := range executions {
			isNew := e.createdNs >= sc.Window.FromNs && e.createdNs <= sc.Window.ToNs
			if e.launches+e.errors > 0 || isNew && !byLaunch && passes(f.Pids, e.pid) && passes(f.Devices, e.device) {
				list = append(list, e)
			}
		}
	}
	return list
}

// passes reports whether a filter selects a number. An empty filter selects all.
func passes(filter []int32, number int32) bool {
	return len(filter) == 0 || slices.Contains(filter, number)
}

// addGPUTimes sets the GPU times of executable graphs. It does nothing without GPU times.
func (sc *scan) addGPUTimes(list []*execution) (sum activity.TimeSum) {
	if sc.times == nil {
		return sum
	}
	for _, e := range list {
		for site, n := range e.sites {
			e.gpu.Add(sc.times.OfGraph(e.pid, e.handle, sc.Names.List[site]), float64(n))
		}
		sum.Merge(&e.gpu)
	}
	return sum
}
