package kernels

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

// TinyThreads bounds tiny launches: they have fewer threads. A GPU of 100 SMs and more runs
// 200,000 threads at a time. A tiny launch fills less than 4 % of it, and costs about as much to
// launch as to run.
const TinyThreads = 8192

// maxShapes bounds the keys of Scan.Counts: a program may launch each kernel in ever new sizes.
const maxShapes = 100_000

// Scan sums up launches by kernel, shape, call site and stream, in one pass over them.
type Scan struct {
	*calls.Counter
	Names   origin.Names
	sites   calls.SiteReader
	Counts  map[launchKey]*LaunchStats
	recent  [1 << 12]recentLaunch // a cache in front of counts that most launches hit
	graphs  map[launchGraph]*LaunchStats
	seconds map[int64]int64 // launches that ran, by second of the recording
	untimed bool

	grid, block [3][]int32
	shared      []int32
	ptr         []int64
}

// launchKey is what launches of kernels that are counted together have in common. Site is an
// index of Scan.Names.
type launchKey struct {
	launchStream
	launchShape
	Site int32
}

// recentLaunch is a cached entry of Scan.Counts.
type recentLaunch struct {
	key   launchKey
	stats *LaunchStats
}

// launchShape is a kernel, an index of Scan.Names, with the size of its launch.
type launchShape struct {
	Kernel, shared int32
	grid, block    [3]int32
}

// manySizes in a grid marks the common entry of all shapes beyond maxShapes.
const manySizes = -1

// launchStream is a stream of a process on one of its devices.
type launchStream struct {
	Pid, Device int32
	stream      int64
}

// launchGraph is a graph with the stream and the call site that launch it.
type launchGraph struct {
	launchStream
	graph int64
	site  int32
}

// NewScan returns a Scan of the launches that pass the filter.
func NewScan(t *timeline.Timeline, f *query.Filter) *Scan {
	sc := &Scan{
		Counter: calls.NewCounter(t, f),
		Counts:  make(map[launchKey]*LaunchStats),
		graphs:  make(map[launchGraph]*LaunchStats),
		seconds: make(map[int64]int64),
	}
	sc.sites = calls.SiteReader{T: t, Names: &sc.Names}
	return sc
}

// AddGroup counts the launches of a row group. If the group cannot be read, its Err says why.
func (sc *Scan) AddGroup(g *format.Group) {
	if !slices.Contains(g.Kinds(), format.KindLaunch) {
		return
	}
	sc.read(g)
	if g.Err() != nil {
		return
	}
	launch, graph := sc.Launches(g)
	pass := sc.Passes(g, sc.Kind, sc.Kernel)
	kernels, began := sc.Names.All(sc.Kernel.Dict), sc.T.Recording().FromNs
	var second, ran int64 // ran: launches so far in the second of the last launch
	for i, start := range sc.Start {
		if !launch[sc.Kind.Index[i]] || start < sc.Window.FromNs || start > sc.Window.ToNs || !pass(i) {
			continue
		}
		site := sc.sites.At(i)
		stream := launchStream{sc.Pid[i], sc.T.DeviceOf(sc.Pid[i], sc.Context[i], sc.Device[i]), sc.Stream[i]}
		if graph[sc.Name.Index[i]] {
			before := sc.Work.GraphKernels
			sc.Work.Add(true, sc.Value[i], sc.Result[i], sc.Flags[i])
			s := Entry(sc.graphs, launchGraph{stream, sc.ptr[i], site})
			sc.count(s, i, nil)
			s.graphKernels += sc.Work.GraphKernels - before
			continue
		}
		sc.Work.Add(false, 0, sc.Result[i], sc.Flags[i])
		shape := launchShape{
			Kernel: kernels[sc.Kernel.Index[i]],
			shared: sc.shared[i],
			grid:   [3]int32{sc.grid[0][i], sc.grid[1][i], sc.grid[2][i]},
			block:  [3]int32{sc.block[0][i], sc.block[1][i], sc.block[2][i]},
		}
		if sc.count(sc.stats(&launchKey{stream, shape, site}), i, &shape) {
			if now := (start - began) / 1e9; now != second {
				sc.ranIn(second, ran)
				second, ran = now, 0
			}
			ran++
		}
	}
	sc.ranIn(second, ran)
}

// ranIn counts launches that ran in a second of the recording.
func (sc *Scan) ranIn(second, launches int64) {
	if launches > 0 {
		sc.seconds[second] += launches
	}
}

// stats returns the entry of Counts for a key, or that of its kernel's other shapes.
func (sc *Scan) stats(key *launchKey) *LaunchStats {
	mixed := uint32(key.Kernel)*0x9e3779b1 ^ uint32(key.Site)*0x85ebca6b ^
		uint32(key.grid[0]+key.grid[1]<<10+key.block[0]<<20)*0xc2b2ae35 ^ uint32(key.stream)*0x27d4eb2f
	slot := &sc.recent[mixed>>20]
	if slot.stats != nil && slot.key == *key {
		return slot.stats
	}
	s := sc.Counts[*key]
	if s == nil {
		counted := *key
		if len(sc.Counts) >= maxShapes {
			counted.launchShape = launchShape{Kernel: key.Kernel, grid: [3]int32{manySizes}}
		}
		s = Entry(sc.Counts, counted)
	}
	*slot = recentLaunch{*key, s}
	return s
}

// read reads the columns of a row group.
func (sc *Scan) read(g *format.Group) {
	sc.Kind, sc.Name, sc.Kernel = g.StringsInto(
		"kind",
		sc.Kind,
	), g.StringsInto(
		"name",
		sc.Name,
	), g.StringsInto(
		"kernel",
		sc.Kernel,
	)
	sc.Start, sc.Dur = g.Int64("start_ns", sc.Start), g.Int64("dur_ns", sc.Dur)
	sc.Result, sc.Flags = g.Int32("result", sc.Result), g.Int32("flags", sc.Flags)
	sc.Pid, sc.Device = g.Int32("pid", sc.Pid), g.Int32("device", sc.Device)
	sc.Context, sc.Stream, sc.ptr = g.Int64("context", sc.Context), g.Int64("stream", sc.Stream), g.Int64("ptr", sc.ptr)
	for i, axis := range []string{"x", "y", "z"} {
		sc.grid[i], sc.block[i] = g.Int32("grid_"+axis, sc.grid[i]), g.Int32("block_"+axis, sc.block[i])
	}
	sc.shared = g.Int32("shared_bytes", sc.shared)
	sc.sites.Read(g)
}

// count adds row i: a launch of a kernel, or of a graph if shape is nil. It reports whether the
// launch ran, as far as is known.
func (sc *Scan) count(s *LaunchStats, i int, shape *launchShape) bool {
	flags := sc.Flags[i]
	if flags&timeline.NoResult == 0 {
		s.timed++
		s.hostNs = units.EndOf(s.hostNs, sc.Dur[i])
		if calls.IsError(sc.Result[i]) {
			s.errors++
			return false
		}
	} else if flags&format.FlagNoReturn != 0 {
		sc.untimed = true
	}
	if flags&format.FlagCaptured != 0 {
		s.captured++
		return false
	}
	s.Launches++
	if shape == nil {
		s.scaled += sampling.Thousandth
	} else {
		s.scaled += sc.Weights.At(sc.Start[i])
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

// known reports whether the size of the launch could be read.
func (s *launchShape) known() bool { return s.grid[0] > 0 && s.block[0] > 0 }

// tiny reports whether the launch has fewer than TinyThreads threads.
func (s *launchShape) tiny() bool { return s.known() && s.threads() < TinyThreads }

// threads returns the number of threads of the launch, at least 1.
func (s *launchShape) threads() int64 {
	n := int64(1)
	for _, v := range [6]int32{s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1], s.block[2]} {
		if n *= int64(max(1, v)); n > 1<<31 { // enough: the product of crafted numbers would not fit
			return 1 << 31
		}
	}
	return n
}
