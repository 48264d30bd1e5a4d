package rules

import (
	"cmp"
	"errors"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/change"
	"github.com/gpurec/gpurec/analyze/model/idle"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/rankstate"
	"github.com/gpurec/gpurec/analyze/model/survey"
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

// Scan collects the data of many reports in one survey of a recording. The rules, the summary and the HTML page use it.
// Call NewScan, then Read of the survey, then Check. A Scan is not safe for concurrent use.
type Scan struct {
	t      *timeline.Timeline
	filter *query.Filter
	survey *survey.Survey
	// Window is the time range of the report, Unix ns.
	Window query.Window
	// Calls counts calls by function, and kernels by name. It is complete after the survey.
	Calls *calls.CallCounter
	// Leaks groups the program's allocations by call site.
	Leaks *leaks.Scan
	// Quality describes losses and inferred data of the recording. Check sets it.
	Quality report.Quality
	// LeakFindings are the verdicts about the call sites of Leaks, the worst first. Check sets them.
	LeakFindings []leaks.LeakFinding

	memoryScans
	callScans
	results
}

// memoryScans are observers of memory.
type memoryScans struct {
	allocLoops *allocLoopScan
	peaks      *peakScan        // nil without operations of ranks
	failures   *oom.FailureScan // allocations that failed for lack of memory
}

// callScans are observers of calls and host rows.
type callScans struct {
	copies       *copies.Scan
	waits        *waits.Scan
	gaps         *gaps.Scan
	launchCounts *change.Counts
	kernels      *kernels.Scan
	modules      *moduleLoadScan
	objects      *objectreport.Scan // driver objects by call site
	errors       *cudaerrors.Scan
	hang         *hang.Scan
	rankWaits    *rankWaits
	idle         *idle.Result // of all devices with GPU times
}

// results follow from the scans. Check computes all of them before it checks a rule.
type results struct {
	oomFailures     []*oom.Failure        // the failures that the filter selects
	oomContexts     []*oom.FailureContext // state of memory at each of oomFailures
	oomVerdicts     []oom.Verdict         // cause of each of oomFailures
	invalidFrees    []cudaerrors.InvalidFree
	lateHosts       []lateHost
	processVerdicts []hang.ProcessVerdict
	silent          []hang.SilentVerdict // processes without calls that hang or wait
	ranks           *rankstate.State     // nil without several ranks

	series *metric.DeviceMetrics // NVML samples of the window, by GPU
	// workSeries are the samples between the first and the last launch of the recorded processes.
	workSeries *metric.DeviceMetrics
	// tracksByGPU lists, by NVML index, the launch tracks of the recorded processes. It is empty if
	// the recording does not map the processes' devices to NVML indexes.
	tracksByGPU map[int32][]gaps.DeviceTrack
	// gapsExplained reports that explainLaunchGaps has run.
	gapsExplained bool
}

// NewScan returns a Scan of the calls and allocations that opt.Filter selects, and adds its observers to a survey. It
// returns a *report.GroupError for an unknown opt.GroupBy.
func NewScan(sv *survey.Survey, opt *query.Options) (*Scan, error) {
	s, err := NewFaultScan(sv, opt)
	if err != nil {
		return nil, err
	}
	s.observeTimes()
	sv.Add(survey.Observer{Alongside: func() error { return s.readIdleTimes(opt.MaxTimedCalls) }})
	return s, nil
}

// NewFaultScan is NewScan for the rules of FaultRules. It reads less of the recording.
func NewFaultScan(sv *survey.Survey, opt *query.Options) (*Scan, error) {
	t, f := sv.Timeline, &opt.Filter
	leakScan, err := leaks.ScanOf(sv, opt)
	if err != nil {
		return nil, err
	}
	objectScan, err := newObjectScan(t, opt)
	if err != nil {
		return nil, err
	}
	s := &Scan{
		t: t, filter: f, survey: sv, Window: sv.Reader.Window, Leaks: leakScan, Calls: calls.NewCallCounter(t, f),
		memoryScans: memoryScans{
			allocLoops: newAllocLoopScan(t, f),
			peaks:      newPeakScan(t),
			failures:   oom.ScanOf(sv),
		},
		callScans: callScans{
			copies:       copies.NewScan(sv.Reader, sv.HostMemory),
			waits:        waits.NewScan(sv.Reader, 1),
			gaps:         gaps.NewScan(sv.Reader, gaps.DefaultMinGapNs, gaps.DefaultMaxGaps),
			launchCounts: change.NewCounts(sv.Reader.Window, changeParts),
			kernels:      kernels.NewScan(t, f),
			modules:      newModuleLoadScan(t, f),
			objects:      objectScan,
			errors:       cudaerrors.ScanOf(sv),
			hang:         hang.NewScan(t, &hang.Options{Options: *opt, LongNs: hang.DefaultLongCallNs}),
			rankWaits:    newRankWaits(t),
			idle:         new(idle.Result),
		},
	}
	s.observeMemory()
	s.observeCalls()
	return s, nil
}

// observeMemory adds the observers of memory to the survey.
func (s *Scan) observeMemory() {
	s.survey.Add(survey.Observer{
		Driver:  s.allocLoops.OnDriverChange,
		Program: s.peaks.consumeChange,
	})
}

// observeCalls adds the observers of calls that rules for faults need to the survey.
func (s *Scan) observeCalls() {
	s.survey.Add(survey.Observer{MemoryGroup: s.readRowGroup, CallGroup: s.readRowGroup})
}

// observeTimes adds the observers of calls that only rules about lost time need.
func (s *Scan) observeTimes() {
	s.survey.Add(
		survey.Observer{CallGroup: func(_ timeline.Span, g *format.Group) {
			s.kernels.ReadRowGroup(g)
			s.modules.addRowGroup(g)
		}},
		survey.Observer{Kinds: []string{format.KindLaunch}, Call: s.addLaunch},
		survey.Observer{Kinds: []string{format.KindSync}, Call: s.waits.AddWait},
		survey.Observer{Kinds: []string{format.KindMemcpy}, Call: s.copies.AddCopy, NeedsHostMemory: true},
	)
	if len(s.rankWaits.ranks) > 0 {
		s.survey.Add(survey.Observer{Host: s.rankWaits.addRows})
	}
}

// readRowGroup passes a row group to the scans that need no order.
func (s *Scan) readRowGroup(sp timeline.Span, g *format.Group) {
	s.Calls.CountGroup(g)
	s.objects.AddGroup(sp, g)
	s.hang.ReadSpan(sp, g)
}

// addLaunch passes a launch to its scans. Launches arrive in order of time.
func (s *Scan) addLaunch(c *calls.Call) error {
	if c.Flags&format.FlagCaptured == 0 {
		s.launchCounts.Add(c.Pid, c.StartNs)
	}
	return s.gaps.AddLaunch(c)
}

// finish computes the results that follow from the scans. The survey must have been read.
func (s *Scan) finish() error {
	s.objects.Finish()
	s.gaps.SelectLongestGaps()
	s.collectGPUSamples()
	for _, compute := range []func() error{
		s.findMemoryProblems, s.classifyInvalidFrees, s.classifyHangingProcesses, s.readRanks, s.readLateHosts,
	} {
		if err := compute(); err != nil {
			return err
		}
	}
	return nil
}

// collectGPUSamples collects the NVML samples, and maps launch tracks to GPUs.
func (s *Scan) collectGPUSamples() {
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
func (s *Scan) findMemoryProblems() error {
	s.Leaks.Finish(&s.survey.Memory)
	s.Quality = quality.OfProgramReplay(s.t, &s.survey.Memory)
	s.LeakFindings = s.Leaks.ClassifyGroups(&s.Quality)
	all, err := s.failures.Finish()
	if err != nil || len(all) == 0 {
		return err
	}
	s.oomFailures, _, _ = oom.SelectFailures(s.t, all, s.filter)
	if len(s.oomFailures) > 0 {
		if s.oomContexts, err = oom.ExamineFailures(s.t, s.oomFailures); err != nil {
			return err
		}
		s.oomVerdicts = oom.ClassifyFailures(s.oomContexts, &s.survey.Memory, &s.Quality)
	}
	return nil
}

// classifyInvalidFrees finds the cause of each free that failed because of its pointer.
func (s *Scan) classifyInvalidFrees() (err error) {
	s.invalidFrees, err = cudaerrors.FindInvalidFrees(s.t, s.errors, &s.Quality)
	return err
}

// classifyHangingProcesses computes the hang verdict of each process at the end of the recording.
func (s *Scan) classifyHangingProcesses() error {
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
func (s *Scan) explainLaunchGaps() error {
	if s.gapsExplained {
		return nil
	}
	s.gapsExplained = true
	s.gaps.FindGPUActivity()
	return s.gaps.FindCPUActivity()
}

// recordedFromStart reports whether every process was recorded from its first call, cuInit.
func (s *Scan) recordedFromStart() bool {
	for pid := range s.hang.Processes {
		if !s.modules.SeenInit[pid] {
			return false
		}
	}
	return len(s.hang.Processes) > 0
}

// sumThreadSpansNs returns the sum over threads of the time between the first and the last call,
// ns.
func (s *Scan) sumThreadSpansNs(threads map[origin.Thread]bool) (ns int64) {
	for th := range threads {
		if life := s.hang.Threads[th]; life != nil {
			ns = units.EndOfRange(ns, max(0, life.LastNs-life.FirstNs))
		}
	}
	return ns
}

// sortedLaunchTracks returns the launch tracks on a GPU, ordered by process and CUDA device.
func (s *Scan) sortedLaunchTracks(device int32) []gaps.DeviceTrack {
	list := slices.Clone(s.tracksByGPU[device])
	slices.SortFunc(list, func(a, b gaps.DeviceTrack) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device))
	})
	return list
}
