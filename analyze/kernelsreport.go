package analyze

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// tinyThreads is below how many threads a launch is tiny: a GPU of 100 SMs and more has room for 200,000 at a time, so that such a
// kernel fills less than 4 % of it and costs about as much to launch as to run.
const tinyThreads = 8192

// maxShapes bounds the shapes that are told apart: programs with sizes that change all the time have any number of them.
const maxShapes = 100_000

// kernelsUse sums up launches by kernel, shape, place and stream.
type kernelsUse struct {
	*calls.Counter
	names   origin.Names
	sites   calls.SiteReader
	counts  map[launchKey]*launchStats
	recent  [1 << 12]recentLaunch // a cache in front of counts that most launches hit
	graphs  map[launchGraph]*launchStats
	seconds map[int64]int64 // launches that ran, by second of the recording
	untimed bool

	grid, block [3][]int32
	shared      []int32
	ptr         []int64
}

// launchKey is what launches of kernels have in common.
type launchKey struct {
	launchStream
	launchShape
	site int32
}

// recentLaunch is an entry of kernelsUse.counts.
type recentLaunch struct {
	key   launchKey
	stats *launchStats
}

// launchShape is a kernel with the size it is launched in.
type launchShape struct {
	kernel, shared int32
	grid, block    [3]int32
}

// manySizes stands in a grid for those beyond maxShapes.
const manySizes = -1

type launchStream struct {
	pid, device int32
	stream      int64
}

// launchGraph is a graph that is launched.
type launchGraph struct {
	launchStream
	graph int64
	site  int32
}

// launchStats is what was counted of launches.
type launchStats struct {
	launches, captured, errors int64 // launches: that ran, as far as is known
	sized, tiny, threads       int64 // of launches: whose size is known, that are tiny; threads of all of them
	scaled                     int64 // launches in thousandths, with those that were not recorded
	graphKernels               int64
	timed, hostNs              int64 // time in those whose duration is known
}

func (s *launchStats) merge(o *launchStats) {
	s.launches += o.launches
	s.scaled += o.scaled
	s.captured += o.captured
	s.errors += o.errors
	s.sized += o.sized
	s.tiny += o.tiny
	s.threads = units.EndOf(s.threads, o.threads)
	s.graphKernels += o.graphKernels
	s.timed += o.timed
	s.hostNs = units.EndOf(s.hostNs, o.hostNs)
}

// total and avg are nil where no duration is known.
func (s *launchStats) total() any {
	if s.timed == 0 {
		return nil
	}
	return s.hostNs
}

func (s *launchStats) avg() any {
	if s.timed == 0 {
		return nil
	}
	return s.hostNs / s.timed
}

// estimated is what total would be if the other launches had taken as long.
func (s *launchStats) estimated() any {
	if s.timed == 0 {
		return nil
	}
	return units.RoundInt(float64(s.hostNs) / float64(s.timed) * float64(sampling.Whole(s.scaled)+s.captured+s.errors))
}

// known reports whether the size of the launch could be read.
func (s *launchShape) known() bool { return s.grid[0] > 0 && s.block[0] > 0 }

// tiny reports whether the launch is too small for a GPU.
func (s *launchShape) tiny() bool { return s.known() && s.threads() < tinyThreads }

// threads is how many threads the launch has, at least one.
func (s *launchShape) threads() int64 {
	n := int64(1)
	for _, v := range [6]int32{s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1], s.block[2]} {
		if n *= int64(max(1, v)); n > 1<<31 { // enough: the product of crafted numbers would not fit
			return 1 << 31
		}
	}
	return n
}

// Kernels reports which kernels were launched, how often, in which sizes and from where. How long they ran on the GPU a recording
// does not say. It returns a *SortError for a column that there is not.
func Kernels(t *timeline.Timeline, opt query.Options) (*Report, error) {
	if err := needClasses(t, "kernels"); err != nil {
		return nil, err
	}
	u := newKernelsUse(t, &opt.Filter)
	counts, err := calls.CountsWhile(t, func() error {
		for _, s := range t.Calls {
			u.group(s.Group)
			if err := s.Group.Err(); err != nil {
				return t.Wrap(err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r := &Report{Command: "kernels", Window: u.Window, Quality: qualityOf(t, counts), Notes: t.Facts.Notes}
	result := ""
	if len(u.counts)+len(u.graphs) == 0 {
		result = "no launches in the window"
		if len(u.Seen.Pids) > 0 {
			r.NoMatch = u.Seen.Explain(&opt.Filter)
		}
	}
	r.Facts = fill(kernelsFacts, result, u.Work.String())
	table := u.table()
	if err := table.arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	r.Totals = u.totals()
	r.Tables = []Table{table, u.shapeTable(), u.streamTable(), u.graphTable()}
	for i := range r.Tables[1:] {
		if err := r.Tables[1+i].arrange("", opt.Top); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func newKernelsUse(t *timeline.Timeline, f *query.Filter) *kernelsUse {
	u := &kernelsUse{Counter: calls.NewCounter(t, f), counts: make(map[launchKey]*launchStats), graphs: make(map[launchGraph]*launchStats), seconds: make(map[int64]int64)}
	u.sites = calls.SiteReader{T: t, Names: &u.names}
	return u
}

func (u *kernelsUse) group(g *format.Group) {
	if !slices.Contains(g.Kinds(), format.KindLaunch) {
		return
	}
	u.read(g)
	if g.Err() != nil {
		return
	}
	launch, graph := u.Launches(g)
	pass := u.Passes(g, u.Kind, u.Kernel)
	kernels, began := u.names.All(u.Kernel.Dict), u.T.Recording().FromNs
	var second, ran int64 // launches in the second of the last one
	for i, start := range u.Start {
		if !launch[u.Kind.Index[i]] || start < u.Window.FromNs || start > u.Window.ToNs || !pass(i) {
			continue
		}
		site := u.sites.At(i)
		stream := launchStream{u.Pid[i], u.T.DeviceOf(u.Pid[i], u.Context[i], u.Device[i]), u.Stream[i]}
		if graph[u.Name.Index[i]] {
			before := u.Work.GraphKernels
			u.Work.Add(true, u.Value[i], u.Result[i], u.Flags[i])
			s := entry(u.graphs, launchGraph{stream, u.ptr[i], site})
			u.count(s, i, nil)
			s.graphKernels += u.Work.GraphKernels - before
			continue
		}
		u.Work.Add(false, 0, u.Result[i], u.Flags[i])
		shape := launchShape{kernels[u.Kernel.Index[i]], u.shared[i], [3]int32{u.grid[0][i], u.grid[1][i], u.grid[2][i]}, [3]int32{u.block[0][i], u.block[1][i], u.block[2][i]}}
		if u.count(u.stats(&launchKey{stream, shape, site}), i, &shape) {
			if now := (start - began) / 1e9; now != second {
				u.ranIn(second, ran)
				second, ran = now, 0
			}
			ran++
		}
	}
	u.ranIn(second, ran)
}

func (u *kernelsUse) ranIn(second, launches int64) {
	if launches > 0 {
		u.seconds[second] += launches
	}
}

// stats finds where launches are counted.
func (u *kernelsUse) stats(key *launchKey) *launchStats {
	mixed := uint32(key.kernel)*0x9e3779b1 ^ uint32(key.site)*0x85ebca6b ^ uint32(key.grid[0]+key.grid[1]<<10+key.block[0]<<20)*0xc2b2ae35 ^ uint32(key.stream)*0x27d4eb2f
	slot := &u.recent[mixed>>20]
	if slot.stats != nil && slot.key == *key {
		return slot.stats
	}
	s := u.counts[*key]
	if s == nil {
		counted := *key
		if len(u.counts) >= maxShapes {
			counted.launchShape = launchShape{kernel: key.kernel, grid: [3]int32{manySizes}}
		}
		s = entry(u.counts, counted)
	}
	*slot = recentLaunch{*key, s}
	return s
}

func (u *kernelsUse) read(g *format.Group) {
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

func entry[K comparable](of map[K]*launchStats, key K) *launchStats {
	s := of[key]
	if s == nil {
		s = new(launchStats)
		of[key] = s
	}
	return s
}

// count adds row i, a launch of a shape or, without one, of a graph. It reports whether the launch ran, as far as is known.
func (u *kernelsUse) count(s *launchStats, i int, shape *launchShape) bool {
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
	s.launches++
	if shape == nil {
		s.scaled += sampling.Thousandth
	} else {
		s.scaled += u.Weights.At(u.Start[i])
	}
	if shape != nil && shape.known() {
		s.sized++
		s.threads = units.EndOf(s.threads, shape.threads())
		if shape.tiny() {
			s.tiny++
		}
	}
	return true
}

var kernelsFacts = []Column{
	{"result", "result", UnitText, "set if there is nothing to tell"},
	{"kernels_text", "kernels", UnitText, "kernels that ran by launches and by graphs, and that were only captured; of launches known to have worked"},
}

var kernelsTotals = []Column{
	{"launches", "launches", UnitCount, "kernel launches in the window that ran: neither failed nor captured; those whose result is not known are in it"},
	{"kernels", "kernels", UnitCount, "different kernels, by name"},
	{"tiny_launches", "tiny", UnitCount, "launches of less than 8,192 threads"},
	{"tiny_pct", "% tiny", UnitPercent, "share of these in launches"},
	{"captured_launches", "captured", UnitCount, "launches that stream capture put into a graph instead of running them"},
	{"graph_launches", "graph launches", UnitCount, "graphs run"},
	{"graph_kernels", "kernels by graphs", UnitCount, "kernels in those, as far as the making of the graphs was recorded"},
	{"errors", "errors", UnitCount, "launches that returned an error"},
	{"launches_per_second", "launches/s", UnitRatio, "launches (estimated_launches, where some were left out) by the length of the window"},
	{"peak_launches_per_second", "launches in the busiest second", UnitCount, "most launches in one second of the recording"},
	{"timed_launches", "timed", UnitCount, "launches, graphs too, whose host time is known"},
	{"host_sum_ns", "host time of these", UnitNs, "time that threads spent in timed launches; CPU time, not GPU time"},
}
