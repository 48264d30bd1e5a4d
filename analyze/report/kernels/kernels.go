package kernels

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// TinyThreads is below how many threads a launch is tiny: a GPU of 100 SMs and more has room for 200,000 at a time, so that such a
// kernel fills less than 4 % of it and costs about as much to launch as to run.
const TinyThreads = 8192

// maxShapes bounds the shapes that are told apart: programs with sizes that change all the time have any number of them.
const maxShapes = 100_000

// KernelsUse sums up launches by kernel, shape, place and stream.
type KernelsUse struct {
	*calls.Counter
	Names   origin.Names
	sites   calls.SiteReader
	Counts  map[LaunchKey]*LaunchStats
	recent  [1 << 12]recentLaunch // a cache in front of counts that most launches hit
	graphs  map[launchGraph]*LaunchStats
	seconds map[int64]int64 // launches that ran, by second of the recording
	untimed bool

	grid, block [3][]int32
	shared      []int32
	ptr         []int64
}

// LaunchKey is what launches of kernels have in common.
type LaunchKey struct {
	LaunchStream
	LaunchShape
	Site int32
}

// recentLaunch is an entry of KernelsUse.Counts.
type recentLaunch struct {
	key   LaunchKey
	stats *LaunchStats
}

// LaunchShape is a kernel with the size it is launched in.
type LaunchShape struct {
	Kernel, shared int32
	grid, block    [3]int32
}

// manySizes stands in a grid for those beyond maxShapes.
const manySizes = -1

type LaunchStream struct {
	Pid, Device int32
	stream      int64
}

// launchGraph is a graph that is launched.
type launchGraph struct {
	LaunchStream
	graph int64
	site  int32
}

// LaunchStats is what was counted of launches.
type LaunchStats struct {
	Launches, captured, errors int64 // launches: that ran, as far as is known
	Sized, Tiny, Threads       int64 // of launches: whose size is known, that are tiny; threads of all of them
	scaled                     int64 // launches in thousandths, with those that were not recorded
	graphKernels               int64
	timed, hostNs              int64 // time in those whose duration is known
}

func (s *LaunchStats) Merge(o *LaunchStats) {
	s.Launches += o.Launches
	s.scaled += o.scaled
	s.captured += o.captured
	s.errors += o.errors
	s.Sized += o.Sized
	s.Tiny += o.Tiny
	s.Threads = units.EndOf(s.Threads, o.Threads)
	s.graphKernels += o.graphKernels
	s.timed += o.timed
	s.hostNs = units.EndOf(s.hostNs, o.hostNs)
}

// Total and avg are nil where no duration is known.
func (s *LaunchStats) Total() any {
	if s.timed == 0 {
		return nil
	}
	return s.hostNs
}

func (s *LaunchStats) avg() any {
	if s.timed == 0 {
		return nil
	}
	return s.hostNs / s.timed
}

// estimated is what total would be if the other launches had taken as long.
func (s *LaunchStats) estimated() any {
	if s.timed == 0 {
		return nil
	}
	return units.RoundInt(float64(s.hostNs) / float64(s.timed) * float64(sampling.Whole(s.scaled)+s.captured+s.errors))
}

// known reports whether the size of the launch could be read.
func (s *LaunchShape) known() bool { return s.grid[0] > 0 && s.block[0] > 0 }

// tiny reports whether the launch is too small for a GPU.
func (s *LaunchShape) tiny() bool { return s.known() && s.threads() < TinyThreads }

// threads is how many threads the launch has, at least one.
func (s *LaunchShape) threads() int64 {
	n := int64(1)
	for _, v := range [6]int32{s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1], s.block[2]} {
		if n *= int64(max(1, v)); n > 1<<31 { // enough: the product of crafted numbers would not fit
			return 1 << 31
		}
	}
	return n
}

// Run reports which kernels were launched, how often, in which sizes and from where. How long they ran on the GPU a recording
// does not say. It returns a *SortError for a column that there is not.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.View()
	if err := quality.Needs(t, "kernels"); err != nil {
		return nil, err
	}
	u := NewKernelsUse(t, &opt.Filter)
	counts, err := calls.CountsWhile(t, func() error {
		for _, s := range t.Calls {
			u.Group(s.Group)
			if err := s.Group.Err(); err != nil {
				return t.Wrap(err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r := &report.Report{Command: "kernels", Window: u.Window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes}
	result := ""
	if len(u.Counts)+len(u.graphs) == 0 {
		result = "no launches in the window"
		if len(u.Seen.Pids) > 0 {
			r.NoMatch = u.Seen.Explain(&opt.Filter)
		}
	}
	r.Facts = report.Fill(KernelsFacts, result, u.Work.String())
	table := u.table()
	if err := table.Arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	r.Totals = u.totals()
	r.Tables = []report.Table{table, u.shapeTable(), u.streamTable(), u.graphTable()}
	for i := range r.Tables[1:] {
		if err := r.Tables[1+i].Arrange("", opt.Top); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func NewKernelsUse(t *timeline.Timeline, f *query.Filter) *KernelsUse {
	u := &KernelsUse{Counter: calls.NewCounter(t, f), Counts: make(map[LaunchKey]*LaunchStats), graphs: make(map[launchGraph]*LaunchStats), seconds: make(map[int64]int64)}
	u.sites = calls.SiteReader{T: t, Names: &u.Names}
	return u
}

func (u *KernelsUse) Group(g *format.Group) {
	if !slices.Contains(g.Kinds(), format.KindLaunch) {
		return
	}
	u.read(g)
	if g.Err() != nil {
		return
	}
	launch, graph := u.Launches(g)
	pass := u.Passes(g, u.Kind, u.Kernel)
	kernels, began := u.Names.All(u.Kernel.Dict), u.T.Recording().FromNs
	var second, ran int64 // launches in the second of the last one
	for i, start := range u.Start {
		if !launch[u.Kind.Index[i]] || start < u.Window.FromNs || start > u.Window.ToNs || !pass(i) {
			continue
		}
		site := u.sites.At(i)
		stream := LaunchStream{u.Pid[i], u.T.DeviceOf(u.Pid[i], u.Context[i], u.Device[i]), u.Stream[i]}
		if graph[u.Name.Index[i]] {
			before := u.Work.GraphKernels
			u.Work.Add(true, u.Value[i], u.Result[i], u.Flags[i])
			s := Entry(u.graphs, launchGraph{stream, u.ptr[i], site})
			u.count(s, i, nil)
			s.graphKernels += u.Work.GraphKernels - before
			continue
		}
		u.Work.Add(false, 0, u.Result[i], u.Flags[i])
		shape := LaunchShape{kernels[u.Kernel.Index[i]], u.shared[i], [3]int32{u.grid[0][i], u.grid[1][i], u.grid[2][i]}, [3]int32{u.block[0][i], u.block[1][i], u.block[2][i]}}
		if u.count(u.stats(&LaunchKey{stream, shape, site}), i, &shape) {
			if now := (start - began) / 1e9; now != second {
				u.ranIn(second, ran)
				second, ran = now, 0
			}
			ran++
		}
	}
	u.ranIn(second, ran)
}

func (u *KernelsUse) ranIn(second, launches int64) {
	if launches > 0 {
		u.seconds[second] += launches
	}
}

// stats finds where launches are counted.
func (u *KernelsUse) stats(key *LaunchKey) *LaunchStats {
	mixed := uint32(key.Kernel)*0x9e3779b1 ^ uint32(key.Site)*0x85ebca6b ^ uint32(key.grid[0]+key.grid[1]<<10+key.block[0]<<20)*0xc2b2ae35 ^ uint32(key.stream)*0x27d4eb2f
	slot := &u.recent[mixed>>20]
	if slot.stats != nil && slot.key == *key {
		return slot.stats
	}
	s := u.Counts[*key]
	if s == nil {
		counted := *key
		if len(u.Counts) >= maxShapes {
			counted.LaunchShape = LaunchShape{Kernel: key.Kernel, grid: [3]int32{manySizes}}
		}
		s = Entry(u.Counts, counted)
	}
	*slot = recentLaunch{*key, s}
	return s
}

func (u *KernelsUse) read(g *format.Group) {
	u.Kind, u.Name, u.Kernel = g.StringsInto("kind", u.Kind), g.StringsInto("name", u.Name), g.StringsInto("kernel", u.Kernel)
	u.Start, u.Dur = g.Int64("start_ns", u.Start), g.Int64("dur_ns", u.Dur)
	u.Result, u.Flags = g.Int32("result", u.Result), g.Int32("flags", u.Flags)
	u.Pid, u.Device = g.Int32("pid", u.Pid), g.Int32("device", u.Device)
	u.Context, u.Stream, u.ptr = g.Int64("context", u.Context), g.Int64("stream", u.Stream), g.Int64("ptr", u.ptr)
	for i, axis := range []string{"x", "y", "z"} {
		u.grid[i], u.block[i] = g.Int32("grid_"+axis, u.grid[i]), g.Int32("block_"+axis, u.block[i])
	}
	u.shared = g.Int32("shared_bytes", u.shared)
	u.sites.Read(g)
}

func Entry[K comparable](of map[K]*LaunchStats, key K) *LaunchStats {
	s := of[key]
	if s == nil {
		s = new(LaunchStats)
		of[key] = s
	}
	return s
}

// count adds row i, a launch of a shape or, without one, of a graph. It reports whether the launch ran, as far as is known.
func (u *KernelsUse) count(s *LaunchStats, i int, shape *LaunchShape) bool {
	flags := u.Flags[i]
	if flags&timeline.NoResult == 0 {
		s.timed++
		s.hostNs = units.EndOf(s.hostNs, u.Dur[i])
		if calls.IsError(u.Result[i]) {
			s.errors++
			return false
		}
	} else if flags&format.FlagNoReturn != 0 {
		u.untimed = true
	}
	if flags&format.FlagCaptured != 0 {
		s.captured++
		return false
	}
	s.Launches++
	if shape == nil {
		s.scaled += sampling.Thousandth
	} else {
		s.scaled += u.Weights.At(u.Start[i])
	}
	if shape != nil && shape.known() {
		s.Sized++
		s.Threads = units.EndOf(s.Threads, shape.threads())
		if shape.tiny() {
			s.Tiny++
		}
	}
	return true
}

var KernelsFacts = []report.Column{
	{Key: "result", Title: "result", Unit: report.UnitText, About: "set if there is nothing to tell"},
	{Key: "kernels_text", Title: "kernels", Unit: report.UnitText, About: "kernels that ran by launches and by graphs, and that were only captured; of launches known to have worked"},
}

var KernelsTotals = []report.Column{
	{Key: "launches", Title: "launches", Unit: report.UnitCount, About: "kernel launches in the window that ran: neither failed nor captured; those whose result is not known are in it"},
	{Key: "kernels", Title: "kernels", Unit: report.UnitCount, About: "different kernels, by name"},
	{Key: "tiny_launches", Title: "tiny", Unit: report.UnitCount, About: "launches of less than 8,192 threads"},
	{Key: "tiny_pct", Title: "% tiny", Unit: report.UnitPercent, About: "share of these in launches"},
	{Key: "captured_launches", Title: "captured", Unit: report.UnitCount, About: "launches that stream capture put into a graph instead of running them"},
	{Key: "graph_launches", Title: "graph launches", Unit: report.UnitCount, About: "graphs run"},
	{Key: "graph_kernels", Title: "kernels by graphs", Unit: report.UnitCount, About: "kernels in those, as far as the making of the graphs was recorded"},
	{Key: "errors", Title: "errors", Unit: report.UnitCount, About: "launches that returned an error"},
	{Key: "launches_per_second", Title: "launches/s", Unit: report.UnitRatio, About: "launches (estimated_launches, where some were left out) by the length of the window"},
	{Key: "peak_launches_per_second", Title: "launches in the busiest second", Unit: report.UnitCount, About: "most launches in one second of the recording"},
	{Key: "timed_launches", Title: "timed", Unit: report.UnitCount, About: "launches, graphs too, whose host time is known"},
	{Key: "host_sum_ns", Title: "host time of these", Unit: report.UnitNs, About: "time that threads spent in timed launches; CPU time, not GPU time"},
}
