package calls

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// CUDA results with a special meaning: ResultNotReady means that work is not done yet,
// ResultDeinitialized that the process is ending. Neither is a failure.
const (
	ResultOutOfMemory   = 2
	ResultDeinitialized = 4
	ResultNotReady      = 600
)

// IsErrorResult reports whether a CUDA result means that the call failed.
func IsErrorResult(result int32) bool {
	return result != 0 && result != ResultDeinitialized && result != ResultNotReady
}

// CallStats sums up the calls of one kind and name.
type CallStats struct {
	Calls, Errors, Open int64 // all calls, failed calls, and calls that had not returned
	Captured            int64 // launches captured into a graph, not run
	Timed               int64 // calls with a known duration
	HostNs, MaxNs       int64 // sum and maximum of the durations of timed calls
	// calls in thousandths, including an estimate of launches that were not recorded
	Scaled int64
}

func (s *CallStats) addStats(o *CallStats) {
	s.Calls += o.Calls
	s.Errors += o.Errors
	s.Open += o.Open
	s.Captured += o.Captured
	s.Timed += o.Timed
	s.HostNs += o.HostNs
	s.MaxNs = max(s.MaxNs, o.MaxNs)
	s.Scaled += o.Scaled
}

// CallName identifies calls by their kind and function.
type CallName struct{ Kind, Name string }

// CallCounter counts calls and kernels of a recording. Its columns hold the current row group. It
// is not safe for concurrent use.
type CallCounter struct {
	T           *timeline.Timeline
	Filter      *query.Filter
	Window      query.Window
	Calls       map[CallName]*CallStats
	Kernels     map[string]*CallStats
	Work        KernelCounts
	Seen        *query.SeenCallers
	OutOfMemory int64
	Weights     *sampling.LaunchWeights // nil if all launches were recorded

	Start, Dur, Stream, Bytes       []int64
	Context                         []int64
	Pid, Tid, Device, Result, Flags []int32
	Value                           []float64
	Kind, Name, Kernel              format.Strings
}

// NewCallCounter returns a Counter of the calls that pass the filter.
func NewCallCounter(t *timeline.Timeline, f *query.Filter) *CallCounter {
	u := &CallCounter{
		T: t, Filter: f, Seen: query.NewSeenCallers(),
		Calls: make(map[CallName]*CallStats), Kernels: make(map[string]*CallStats),
	}
	u.Window = u.windowOfRecording()
	u.Weights = t.LaunchWeights(u.Window)
	return u
}

// windowOfRecording returns the part of the recording's window that the filter selects.
func (u *CallCounter) windowOfRecording() query.Window {
	return u.Filter.NarrowWindow(u.T.RecordingWindow())
}

// CountRecording counts all calls of the recording. It returns errors of reading the recording.
func (c *CallCounter) CountRecording() error {
	for _, spans := range [][]timeline.Span{c.T.Memory, c.T.Calls} {
		for _, s := range spans {
			c.CountGroup(s.Group)
			if err := s.Group.Err(); err != nil {
				return c.T.WrapReadError(err)
			}
		}
	}
	return nil
}

// CountGroup counts the calls of one row group.
func (c *CallCounter) CountGroup(g *format.Group) {
	c.Kind, c.Name, c.Kernel = g.StringsInto(
		"kind",
		c.Kind,
	), g.StringsInto(
		"name",
		c.Name,
	), g.StringsInto(
		"kernel",
		c.Kernel,
	)
	kind, name, kernel := c.Kind, c.Name, c.Kernel
	launch, graph := c.FindLaunches(g)
	c.Start, c.Dur = g.Int64("start_ns", c.Start), g.Int64("dur_ns", c.Dur)
	c.Result, c.Flags = g.Int32("result", c.Result), g.Int32("flags", c.Flags)
	pass := c.NewRowFilter(g, kind, kernel)
	byName := make([]CallStats, len(kind.Dict)*len(name.Dict))
	byKernel, isKernel := make([]CallStats, len(kernel.Dict)), make([]bool, len(kernel.Dict))
	for i, name := range kernel.Dict {
		isKernel[i] = name != ""
	}
	for i, start := range c.Start {
		if start < c.Window.FromNs || start > c.Window.ToNs || !pass(i) {
			continue
		}
		call := CallStats{Calls: 1, Scaled: sampling.LaunchWeightUnit}
		if c.Flags[i]&(format.FlagOpen|format.FlagAbandoned) != 0 {
			call.Open = 1
		} else if IsErrorResult(c.Result[i]) {
			call.Errors = 1
			if c.Result[i] == ResultOutOfMemory {
				c.OutOfMemory++
			}
		}
		if launch[kind.Index[i]] {
			if c.Flags[i]&format.FlagCaptured != 0 {
				call.Captured = 1
			}
			if graph[name.Index[i]] {
				c.Work.AddLaunch(true, c.Value[i], c.Result[i], c.Flags[i])
			} else {
				c.Work.AddLaunch(false, 0, c.Result[i], c.Flags[i])
				if c.Weights != nil && call.Captured == 0 {
					call.Scaled = c.Weights.WeightAt(start)
				}
			}
		}
		if c.Flags[i]&(format.FlagAbandoned|format.FlagNoReturn) == 0 {
			call.Timed = 1
			call.HostNs = max(0, c.Dur[i])
			call.MaxNs = call.HostNs
		}
		byName[int(kind.Index[i])*len(name.Dict)+int(name.Index[i])].addStats(&call)
		if k := kernel.Index[i]; isKernel[k] {
			byKernel[k].addStats(&call)
		}
	}
	for i := range byName {
		mergeStats(c.Calls, CallName{kind.Dict[i/len(name.Dict)], name.Dict[i%len(name.Dict)]}, &byName[i])
	}
	for i := range byKernel {
		if isKernel[i] {
			mergeStats(c.Kernels, kernel.Dict[i], &byKernel[i])
		}
	}
}

// FindLaunches reports, for each kind and each function of the row group, whether it is a launch
// and a graph launch.
func (c *CallCounter) FindLaunches(g *format.Group) (kinds, graphs []bool) {
	for _, k := range c.Kind.Dict {
		kinds = append(kinds, k == format.KindLaunch)
	}
	for _, n := range c.Name.Dict {
		graphs = append(graphs, catalog.BaseFunctionName(n) == "cuGraphLaunch")
	}
	if slices.Contains(graphs, true) {
		c.Value = g.Float64("value", c.Value)
	}
	return kinds, graphs
}

func mergeStats[K comparable](into map[K]*CallStats, key K, s *CallStats) {
	if s.Calls == 0 {
		return
	}
	if into[key] == nil {
		into[key] = new(CallStats)
	}
	into[key].addStats(s)
}

// NewRowFilter returns a function that reports whether row i of the row group passes the filter. It
// reads only the columns that the filter needs; kernel may be empty without a filter by kernel.
func (c *CallCounter) NewRowFilter(g *format.Group, kind, kernel format.Strings) func(i int) bool {
	f := c.Filter
	byCaller := f.SelectsCallers()
	if !byCaller && f.Kernel == nil && f.MinBytes == 0 {
		return func(int) bool { return true }
	}
	kernels := make([]bool, len(kind.Dict)*len(kernel.Dict))
	for i := range kernels {
		kernels[i] = f.PassesKernel(kind.Dict[i/len(kernel.Dict)], kernel.Dict[i%len(kernel.Dict)])
	}
	if f.MinBytes > 0 {
		c.Bytes = g.Int64("bytes", c.Bytes)
	}
	if byCaller {
		c.Pid, c.Tid = g.Int32("pid", c.Pid), g.Int32("tid", c.Tid)
		c.Device, c.Stream = g.Int32("device", c.Device), g.Int64("stream", c.Stream)
		c.Context = g.Int64("context", c.Context)
	}
	return func(i int) bool {
		if byCaller {
			device := c.T.DeviceOfCall(c.Pid[i], c.Context[i], c.Device[i])
			c.Seen.AddCaller(c.Pid[i], c.Tid[i], device, c.Stream[i])
			if !f.PassesCaller(c.Pid[i], c.Tid[i], device, c.Stream[i]) {
				return false
			}
		}
		return (f.Kernel == nil || kernels[int(kind.Index[i])*len(kernel.Dict)+int(kernel.Index[i])]) &&
			(f.MinBytes == 0 || f.PassesSize(kind.At(i), c.Bytes[i]))
	}
}

// TotalStats returns the sum of all calls that passed the filter.
func (c *CallCounter) TotalStats() CallStats {
	var sum CallStats
	for _, s := range c.Calls {
		sum.addStats(s)
	}
	return sum
}
