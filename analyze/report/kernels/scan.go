package kernels

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/graph"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// TinyLaunchThreads is the number of threads below which a launch is tiny. A GPU with 100 or more
// SMs runs 200,000 threads at a time. A tiny launch fills less than 4 % of it, and launching takes
// about as long as running.
const TinyLaunchThreads = 8192

// maxLaunchKeys is the maximum number of keys of Scan.Counts, because a program may launch each
// kernel in many sizes.
const maxLaunchKeys = 100_000

// Scan collects statistics of launches by kernel, shape, call site and stream, in one pass. It is
// not safe for concurrent use.
type Scan struct {
	*calls.CallCounter
	Names   origin.StringNumbers
	sites   calls.CallSiteReader
	groupBy string // one of GroupNames
	Counts  map[launchKey]*LaunchStats
	recent  [1 << 12]cachedLaunchStats // cache of Counts, hit by most launches
	graphs  map[launchGraph]*LaunchStats
	built   graph.GraphContents // with groupBy: the nodes of graphs
	parts   map[int32]int64     // with groupBy: kernels that graphs ran, by part
	seconds map[int64]int64     // number of launches by second of the recording
	triton  map[int32]int32     // by kernel: the operator of a Triton kernel, indexes of Names
	untimed bool                // a launch without a recorded return was counted
	times   *activity.SiteTimes // nil without GPU times

	grid, block [3][]int32
	shared      []int32
	ptr         []int64
}

// launchKey identifies a group of kernel launches. Site is an index of Scan.Names, and so is part: the part of the
// program by Scan.groupBy, 0 if launches are not grouped. via is 1 + the index of the line for which an autograd thread
// launched, or 0.
type launchKey struct {
	launchStream
	launchShape
	Site, part, via int32
}

// cachedLaunchStats is a cached entry of Scan.Counts.
type cachedLaunchStats struct {
	key   launchKey
	stats *LaunchStats
}

// launchShape is a kernel with the grid, block and shared memory sizes of a launch. Kernel is an
// index of Scan.Names.
type launchShape struct {
	Kernel, shared int32
	grid, block    [3]int32
}

// otherShapesMark, in grid[0], marks the common entry of all shapes beyond maxLaunchKeys.
const otherShapesMark = -1

// launchStream is a stream of a process on one of its devices.
type launchStream struct {
	Pid, Device int32
	stream      int64
}

// launchGraph is a CUDA graph with the stream and the call site of its launches.
type launchGraph struct {
	launchStream
	graph int64
	site  int32
}

// NewScan returns a Scan of the launches that pass the filter.
func NewScan(t *timeline.Timeline, f *query.Filter) *Scan {
	sc := &Scan{
		CallCounter: calls.NewCallCounter(t, f),
		Counts:      make(map[launchKey]*LaunchStats),
		graphs:      make(map[launchGraph]*LaunchStats),
		seconds:     make(map[int64]int64),
	}
	sc.sites = calls.CallSiteReader{T: t, Names: &sc.Names}
	return sc
}

// ReadRowGroup counts the launches of a row group. A read error is available as g.Err.
func (sc *Scan) ReadRowGroup(g *format.Group) {
	if !slices.Contains(g.Kinds(), format.KindLaunch) {
		return
	}
	sc.readColumns(g)
	if g.Err() != nil {
		return
	}
	launch, isGraph := sc.FindLaunches(g)
	pass := sc.NewRowFilter(g, sc.Kind, sc.Kernel)
	kernels, began := sc.Names.NumbersOf(sc.Kernel.Dict), sc.T.RecordingWindow().FromNs
	var second, ran int64 // ran is the number of launches so far in this second of the recording
	for i, start := range sc.Start {
		if !launch[sc.Kind.Index[i]] || start < sc.Window.FromNs || start > sc.Window.ToNs || !pass(i) {
			continue
		}
		site := sc.sites.SiteOfRow(i)
		stream := launchStream{sc.Pid[i], sc.T.DeviceOfCall(sc.Pid[i], sc.Context[i], sc.Device[i]), sc.Stream[i]}
		if isGraph[sc.Name.Index[i]] {
			before := sc.Work.GraphKernels
			sc.Work.AddLaunch(true, sc.Value[i], sc.Result[i], sc.Flags[i])
			s := StatsEntry(sc.graphs, launchGraph{stream, sc.ptr[i], site})
			sc.addLaunch(s, i, nil)
			s.graphKernels += sc.Work.GraphKernels - before
			sc.addGraphParts(i, start, sc.Work.GraphKernels-before)
			continue
		}
		var part, via int32
		if line, ok := sc.sites.ViaOfRow(i); ok {
			via = line + 1
		}
		if sc.groupBy != "" {
			part = sc.partOfRow(i, kernels[sc.Kernel.Index[i]])
		}
		sc.Work.AddLaunch(false, 0, sc.Result[i], sc.Flags[i])
		shape := launchShape{
			Kernel: kernels[sc.Kernel.Index[i]],
			shared: sc.shared[i],
			grid:   [3]int32{sc.grid[0][i], sc.grid[1][i], sc.grid[2][i]},
			block:  [3]int32{sc.block[0][i], sc.block[1][i], sc.block[2][i]},
		}
		if sc.addLaunch(sc.statsOfKey(&launchKey{stream, shape, site, part, via}), i, &shape) {
			if now := (start - began) / 1e9; now != second {
				sc.addLaunchesToSecond(second, ran)
				second, ran = now, 0
			}
			ran++
		}
	}
	sc.addLaunchesToSecond(second, ran)
}

// addLaunchesToSecond adds launches to a second of the recording.
func (sc *Scan) addLaunchesToSecond(second, launches int64) {
	if launches > 0 {
		sc.seconds[second] += launches
	}
}

// statsOfKey returns the statistics of a key. Beyond maxLaunchKeys, all further shapes of a kernel
// share one entry.
func (sc *Scan) statsOfKey(key *launchKey) *LaunchStats {
	mixed := uint32(key.Kernel)*0x9e3779b1 ^ uint32(key.Site)*0x85ebca6b ^
		uint32(
			key.grid[0]+key.grid[1]<<10+key.block[0]<<20,
		)*0xc2b2ae35 ^ uint32(key.stream)*0x27d4eb2f ^ uint32(key.part)*0x165667b1 ^ uint32(key.via)*0x9e3779b1
	slot := &sc.recent[mixed>>20]
	if slot.stats != nil && slot.key == *key {
		return slot.stats
	}
	s := sc.Counts[*key]
	if s == nil {
		counted := *key
		if len(sc.Counts) >= maxLaunchKeys {
			counted.launchShape = launchShape{Kernel: key.Kernel, grid: [3]int32{otherShapesMark}}
		}
		s = StatsEntry(sc.Counts, counted)
	}
	*slot = cachedLaunchStats{*key, s}
	return s
}

// readColumns reads the columns of a row group.
func (sc *Scan) readColumns(g *format.Group) {
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
	sc.sites.ReadGroup(g)
	sc.sites.ReadVias(g)
}

// addLaunch adds row i to the statistics s. It is a kernel launch, or a graph launch if shape is
// nil. addLaunch reports whether the launch ran: it neither failed nor was captured.
func (sc *Scan) addLaunch(s *LaunchStats, i int, shape *launchShape) bool {
	flags := sc.Flags[i]
	if flags&timeline.NoResultFlags == 0 {
		s.timed++
		s.hostNs = units.EndOfRange(s.hostNs, sc.Dur[i])
		if calls.IsErrorResult(sc.Result[i]) {
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
		s.scaled += sampling.LaunchWeightUnit
	} else {
		s.scaled += sc.Weights.WeightAt(sc.Start[i])
	}
	if shape != nil && shape.hasSize() {
		s.Sized++
		s.Threads = units.EndOfRange(s.Threads, shape.threadCount())
		if shape.isTiny() {
			s.Tiny++
		}
	}
	return true
}

// hasSize reports whether the size of the launch is known.
func (s *launchShape) hasSize() bool { return s.grid[0] > 0 && s.block[0] > 0 }

// BlockCount returns the number of blocks of the launch; 0: unknown.
func (s *launchShape) BlockCount() int64 {
	if !s.hasSize() {
		return 0
	}
	return product(s.grid[:]...)
}

// isTiny reports whether the launch has fewer than TinyLaunchThreads threads.
func (s *launchShape) isTiny() bool { return s.hasSize() && s.threadCount() < TinyLaunchThreads }

// threadCount returns the number of threads of the launch, at least 1.
func (s *launchShape) threadCount() int64 {
	return product(s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1], s.block[2])
}

// product returns the product of sizes, each at least 1. It is at most 1<<31, because corrupt recordings would make it
// overflow.
func product(sizes ...int32) int64 {
	n := int64(1)
	for _, v := range sizes {
		if n *= int64(max(1, v)); n > 1<<31 {
			return 1 << 31
		}
	}
	return n
}
