package rules

import (
	"cmp"
	"errors"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/change"
	"github.com/gpurec/gpurec/analyze/model/hostmem"
	"github.com/gpurec/gpurec/analyze/model/idle"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/objects"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/rankstate"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/copies"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	objectreport "github.com/gpurec/gpurec/analyze/report/objects"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/report/waits"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Survey collects the data of many reports in two passes over a recording: one replay of memory
// and one reading of all calls. The rules, the summary and the HTML page use it. Call NewSurvey,
// then ReadRecording, then CheckRules. A Survey is not safe for concurrent use.
type Survey struct {
	t      *timeline.Timeline
	filter *query.Filter
	// maxTimedCalls is query.Options.MaxTimedCalls.
	maxTimedCalls int64
	// Window is the time range of the report, Unix ns.
	Window query.Window
	// Quality describes losses and inferred data of the recording. ReadRecording sets it.
	Quality report.Quality
	// Consumer, if set, receives every change of the program's memory during the replay, in order
	// of time. Set it before ReadRecording.
	Consumer func(*timeline.ProgramMemory, *livemem.Change)

	// Results of the replay of memory.

	// Program is the memory as the program sees it: tensors, and driver memory outside of the
	// segments of caching allocators.
	Program *timeline.ProgramMemory
	// Leaks groups the program's allocations by call site.
	Leaks *leaks.Scan
	// LeakFindings are the verdicts about the call sites of Leaks, the worst first.
	LeakFindings []leaks.LeakFinding
	allocLoops   *allocLoopScan
	peaks        *peakScan // nil without operations of ranks
	hostBlocks   *hostmem.HostBlocks
	// Failures collects the allocations that failed for lack of memory.
	Failures    *oom.FailureScan
	oomFailures []*oom.Failure        // the part of Failures that the filter selects
	oomContexts []*oom.FailureContext // state of memory at each of oomFailures
	oomVerdicts []oom.Verdict         // cause of each of oomFailures

	// Results of the reading of calls.

	cache format.ColumnCache // of the current row group
	// Calls counts calls by function, and kernels by name.
	Calls           *calls.CallCounter
	copies          *copies.Scan
	waits           *waits.Scan
	gaps            *gaps.Scan
	launchCounts    *change.Counts
	gapsExplained   bool // explainLaunchGaps has run
	kernels         *kernels.Scan
	modules         *moduleLoadScan
	objects         *objectreport.Scan // driver objects by call site
	errors          *cudaerrors.Scan
	invalidFrees    []cudaerrors.InvalidFree
	hang            *hang.Scan
	idle            *idle.Result // nil before findIdleTimes
	lateHosts       []lateHost   // nil before findLateHosts
	rankWaits       *rankWaits   // nil before readRankWaits
	processVerdicts []hang.ProcessVerdict
	silent          []hang.SilentVerdict // processes without calls that hang or wait
	ranks           *rankstate.State     // nil before findRanks, and without several ranks
	ranksRead       bool

	series *metric.DeviceMetrics // NVML samples of the window, by GPU
	// workSeries are the samples between the first and the last launch of the recorded processes.
	workSeries *metric.DeviceMetrics
	// tracksByGPU lists, by NVML index, the launch tracks of the recorded processes. It is empty if
	// the recording does not map the processes' devices to NVML indexes.
	tracksByGPU map[int32][]gaps.DeviceTrack
}

// NewSurvey returns a Survey of the calls and allocations that opt.Filter selects. It returns a
// *report.GroupError for an unknown opt.GroupBy.
func NewSurvey(t *timeline.Timeline, opt *query.Options) (*Survey, error) {
	leakScan, err := leaks.NewScan(t, opt)
	if err != nil {
		return nil, err
	}
	objectScan, err := newObjectScan(t, opt)
	if err != nil {
		return nil, err
	}
	f := &opt.Filter
	// The scan of copies needs to know which host memory is pinned. If the recording has a caching
	// allocator, FindSegments collects pinned memory before the calls are read. Otherwise pinned
	// memory is known only after the replay, and ReadRecording reads the copies in an additional
	// pass.
	kinds := []string{format.KindLaunch, format.KindSync, format.KindMemcpy}
	if len(t.Allocations) == 0 {
		kinds = kinds[:2]
	}
	reader := calls.NewCallReader(t, f, kinds...)
	copyReader := reader
	if len(t.Allocations) == 0 {
		copyReader = calls.NewCallReader(t, f, format.KindMemcpy)
	}
	s := &Survey{
		t:      t,
		filter: f,

		maxTimedCalls: opt.MaxTimedCalls,
		Window:        reader.Window,
		Leaks:         leakScan,
		allocLoops:    newAllocLoopScan(t, f),
		peaks:         newPeakScan(t),
		hostBlocks:    hostmem.NewHostBlocks(),
		Failures:      &oom.FailureScan{T: t},
		Calls:         calls.NewCallCounter(t, f),
		waits:         waits.NewScan(reader, 1),
		gaps:          gaps.NewScan(reader, gaps.DefaultMinGapNs, gaps.DefaultMaxGaps),
		launchCounts:  change.NewCounts(reader.Window, changeParts),
		kernels:       kernels.NewScan(t, f),
		modules:       newModuleLoadScan(t, f),
		objects:       objectScan,
		errors:        cudaerrors.NewScan(t, f),
		hang:          hang.NewScan(t, &hang.Options{Options: *opt, LongNs: hang.DefaultLongCallNs}),
	}
	s.copies = copies.NewScan(copyReader, s.hostBlocks)
	return s, nil
}

// ReadRecording reads the recording. onDriverChange receives every change of driver memory,
// onAllocatorChange every change of a caching allocator; both may be nil. ReadRecording calls them
// from one goroutine at a time.
func (s *Survey) ReadRecording(onDriverChange func(*livemem.Change), onAllocatorChange caching.ChangeConsumer) error {
	read := func() error { return s.readCalls(onDriverChange, onAllocatorChange) }
	return timeline.RunParallel(read, func() error {
		_, err := s.findIdleTimes()
		return err
	})
}

// readCalls is ReadRecording without idle times.
func (s *Survey) readCalls(onDriverChange func(*livemem.Change), onAllocatorChange caching.ChangeConsumer) error {
	// Functions that run in parallel share no mutable state.
	replay := func() error { return s.replayMemory(onDriverChange, onAllocatorChange) }
	var err error
	if len(s.t.Allocations) > 0 {
		search := func() error { return s.t.FindSegments(func(c *livemem.Change) { s.hostBlocks.AddChange(s.t, c) }) }
		if err = timeline.RunParallel(search, s.scanMemoryCalls); err == nil {
			err = timeline.RunParallel(replay, s.scanOtherCalls)
		}
	} else {
		scan := func() error { return runUntilError(s.scanOtherCalls, s.scanMemoryCalls) }
		if err = timeline.RunParallel(replay, scan); err == nil {
			err = s.copies.EachCall(s.copies.AddCopy)
		}
	}
	if err != nil {
		return err
	}
	s.objects.Finish()
	s.gaps.SelectLongestGaps()
	s.collectGPUSamples()
	return runUntilError(s.findMemoryProblems, s.classifyInvalidFrees, s.classifyHangingProcesses)
}

// runUntilError runs functions in order until one fails, and returns its error.
func runUntilError(list ...func() error) error {
	for _, f := range list {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// replayMemory replays memory and passes each change to the scans and to the consumers of
// ReadRecording.
func (s *Survey) replayMemory(
	onDriverChange func(*livemem.Change),
	onAllocatorChange caching.ChangeConsumer,
) (err error) {
	s.Program, err = s.t.ReplayProgram(func(p *timeline.ProgramMemory, c *livemem.Change) {
		s.Leaks.OnDriverChange(p, c)
		s.peaks.consumeChange(p, c)
		if s.Consumer != nil {
			s.Consumer(p, c)
		}
	}, func(c *livemem.Change) {
		if len(s.t.Allocations) == 0 {
			s.hostBlocks.AddChange(s.t, c)
		}
		s.allocLoops.OnDriverChange(c)
		s.Failures.OnDriverChange(c)
		if onDriverChange != nil {
			onDriverChange(c)
		}
	}, func(a *caching.Allocator, c *caching.AllocatorChange) {
		s.Leaks.OnAllocatorChange(a, c)
		s.Failures.OnAllocatorChange(a, c)
		if onAllocatorChange != nil {
			onAllocatorChange(a, c)
		}
	})
	return err
}

// scanMemoryCalls reads the calls that allocate or free memory.
func (s *Survey) scanMemoryCalls() error {
	for _, sp := range objects.SpansInOrder(s.t.Memory) {
		if err := s.scanRowGroup(sp).Err(); err != nil {
			return s.t.WrapReadError(err)
		}
	}
	return nil
}

// scanOtherCalls reads all other calls by row group, and launches, waits and copies in order of
// time.
func (s *Survey) scanOtherCalls() error {
	return s.waits.EachCallFrom(func(sp timeline.Span) *format.Group {
		g := s.scanRowGroup(sp)
		s.kernels.ReadRowGroup(g)
		s.modules.addRowGroup(g)
		return g
	}, s.addTimeOrderedCall)
}

// scanRowGroup passes a row group to the scans that need no order, and returns it with cached
// columns.
func (s *Survey) scanRowGroup(sp timeline.Span) *format.Group {
	g := s.cache.Wrap(sp.Group)
	s.Calls.CountGroup(g)
	s.errors.ReadRowGroup(g)
	s.objects.AddGroup(sp, g)
	if sp.FirstNs <= s.hang.EndNs {
		s.hang.ReadRowGroup(
			g,
			int32(slices.IndexFunc(s.hang.Spans, func(o timeline.Span) bool { return o.Group == sp.Group })),
		)
	}
	return g
}

// addTimeOrderedCall passes a launch, wait or copy to its scan. Calls arrive in order of time.
func (s *Survey) addTimeOrderedCall(c *calls.Call) error {
	switch s.waits.Kinds[c.Kind] {
	case format.KindLaunch:
		if c.Flags&format.FlagCaptured == 0 {
			s.launchCounts.Add(c.Pid, c.StartNs)
		}
		return s.gaps.AddLaunch(c)
	case format.KindMemcpy:
		return s.copies.AddCopy(c)
	}
	return s.waits.AddWait(c)
}

// collectGPUSamples collects the NVML samples, and maps launch tracks to GPUs.
func (s *Survey) collectGPUSamples() {
	s.tracksByGPU = make(map[int32][]gaps.DeviceTrack)
	work := query.Window{FromNs: 1<<63 - 1, ToNs: 0}
	for track, launches := range s.gaps.Tracks {
		work.FromNs, work.ToNs = min(work.FromNs, launches.FirstNs), max(work.ToNs, launches.UntilNs)
		if index, ok := s.t.Facts.NVMLIndexOf(track.Pid, track.Device); ok && track.Device != gaps.AllDevicesOfProcess {
			s.tracksByGPU[index] = append(s.tracksByGPU[index], track)
		}
	}
	samplesIn := func(w query.Window) *metric.DeviceMetrics {
		u := &metric.DeviceMetrics{
			T:       s.t,
			Window:  w,
			Filter:  s.filter,
			Devices: make(map[int32]map[string]*metric.Series),
		}
		u.CollectSamples()
		return u
	}
	s.series, s.workSeries = samplesIn(s.Window), samplesIn(work)
}

// findMemoryProblems computes the verdicts about leaks and failed allocations after the replay.
func (s *Survey) findMemoryProblems() error {
	s.Leaks.Finish(s.Program)
	s.Quality = quality.OfProgramReplay(s.t, s.Program)
	s.LeakFindings = s.Leaks.ClassifyGroups(&s.Quality)
	all, err := s.Failures.Finish()
	if err != nil || len(all) == 0 {
		return err
	}
	s.oomFailures, _, _ = oom.SelectFailures(s.t, all, s.filter)
	if len(s.oomFailures) > 0 {
		if s.oomContexts, err = oom.ExamineFailures(s.t, s.oomFailures); err != nil {
			return err
		}
		s.oomVerdicts = oom.ClassifyFailures(s.oomContexts, s.Program, &s.Quality)
	}
	return nil
}

// classifyInvalidFrees finds the cause of each free that failed because of its pointer.
func (s *Survey) classifyInvalidFrees() (err error) {
	s.invalidFrees, err = cudaerrors.FindInvalidFrees(s.t, s.errors, &s.Quality)
	return err
}

// classifyHangingProcesses computes the hang verdict of each process at the end of the recording.
func (s *Survey) classifyHangingProcesses() error {
	s.hang.Long = nil // no rule uses the list of long calls
	s.hang.RequestAllDetails()
	polls, err := s.hang.ReadPolls()
	if err := errors.Join(err, s.hang.ReadDetails()); err != nil {
		return err
	}
	s.processVerdicts = s.hang.Classify(polls)
	s.silent, err = s.hang.ClassifySilent(s.processVerdicts)
	return err
}

// explainLaunchGaps finds GPU and CPU activity in the longest gaps between launches. It does so
// only once.
func (s *Survey) explainLaunchGaps() error {
	if s.gapsExplained {
		return nil
	}
	s.gapsExplained = true
	s.gaps.FindGPUActivity()
	return s.gaps.FindCPUActivity()
}

// recordedFromStart reports whether every process was recorded from its first call, cuInit.
func (s *Survey) recordedFromStart() bool {
	for pid := range s.hang.Processes {
		if !s.modules.SeenInit[pid] {
			return false
		}
	}
	return len(s.hang.Processes) > 0
}

// sumThreadSpansNs returns the sum over threads of the time between the first and the last call,
// ns.
func (s *Survey) sumThreadSpansNs(threads map[origin.Thread]bool) (ns int64) {
	for th := range threads {
		if life := s.hang.Threads[th]; life != nil {
			ns = units.EndOfRange(ns, max(0, life.LastNs-life.FirstNs))
		}
	}
	return ns
}

// sortedLaunchTracks returns the launch tracks on a GPU, ordered by process and CUDA device.
func (s *Survey) sortedLaunchTracks(device int32) []gaps.DeviceTrack {
	list := slices.Clone(s.tracksByGPU[device])
	slices.SortFunc(list, func(a, b gaps.DeviceTrack) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device))
	})
	return list
}
