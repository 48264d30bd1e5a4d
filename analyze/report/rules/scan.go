package rules

import (
	"cmp"
	"errors"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/hostmem"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	copiespkg "github.com/gpurec/gpurec/analyze/report/copies"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	leakspkg "github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/oom"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/report/waits"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Survey runs the scans of many reports in one replay of memory and one reading of all calls. The
// rules, the summary and the HTML page use it. It is not safe for concurrent use.
type Survey struct {
	t       *timeline.Timeline
	filter  *query.Filter
	Window  query.Window
	Quality report.Quality
	// Consumer, if set, also takes the changes of the program's memory, so that the same replay serves
	// another report.
	Consumer func(*timeline.Program, *livemem.Change)

	// Of the replay: memory as the program sees it.
	Program  *timeline.Program
	Leaks    *leakspkg.Scan
	Findings []leakspkg.Finding // of Leaks, the worst first
	loops    *allocLoops
	host     *hostmem.Blocks
	Failing  *oom.FailureScan
	failures []*oom.Failure // chosen ones
	contexts []*oom.Context // of failures
	causes   []oom.Verdict

	// Of the calls.
	columns format.Columns // of the current row group
	Calls   *calls.Counter
	copies  *copiespkg.Scan
	waits   *waits.Scan
	gaps    *gaps.Scan
	kernels *kernels.Scan
	modules *moduleScan
	errors  *cudaerrors.Scan
	frees   []cudaerrors.InvalidFree // of errors
	hang    *hang.Scan
	states  []hang.ProcessVerdict

	gpu *metric.Devices // samples in the window
	// working are the samples between the first and the last launch of the recorded processes.
	working *metric.Devices
	// devices has the launches of recorded processes by GPU, an NVML index. It is empty if the GPUs of
	// the processes are not known.
	devices map[int32][]gaps.Track
	watched bool // watchGaps has run
}

// NewSurvey returns a survey of what opt.Filter lets through. It returns a *report.GroupError for an
// unknown opt.GroupBy.
func NewSurvey(t *timeline.Timeline, opt *query.Options) (*Survey, error) {
	leaks, err := leakspkg.NewScan(t, opt)
	if err != nil {
		return nil, err
	}
	f := &opt.Filter
	// Copies need to know which host memory is pinned. A search for the segments of allocators finds
	// that before the calls are read. Without such a search it is known after the replay only: copies
	// are read again then.
	kinds := []string{format.KindLaunch, format.KindSync, format.KindMemcpy}
	if len(t.Allocations) == 0 {
		kinds = kinds[:2]
	}
	reader := calls.NewReader(t, f, kinds...)
	copies := reader
	if len(t.Allocations) == 0 {
		copies = calls.NewReader(t, f, format.KindMemcpy)
	}
	s := &Survey{
		t:       t,
		filter:  f,
		Window:  reader.Window,
		Leaks:   leaks,
		loops:   newAllocLoops(t, f),
		host:    hostmem.New(),
		Failing: &oom.FailureScan{T: t},
		Calls: calls.NewCounter(
			t,
			f,
		),
		waits:   waits.NewScan(reader, 1),
		gaps:    gaps.NewScan(reader, gaps.DefaultMinGapNs, gaps.DefaultTop),
		kernels: kernels.NewScan(t, f),
		modules: newModuleScan(t, f),
		errors:  cudaerrors.NewScan(t, f),
		hang:    hang.NewScan(t, &hang.Options{Options: *opt, LongNs: hang.DefaultLongNs}),
	}
	s.copies = copiespkg.NewScan(copies, s.host)
	return s, nil
}

// Run reads the recording. use and watch may be nil; they take all changes of the driver's memory and
// of allocators. Run calls them from one goroutine at a time.
func (s *Survey) Run(use func(*livemem.Change), watch caching.Consumer) error {
	// The functions that run at the same time share no state that changes.
	replay := func() error { return s.replay(use, watch) }
	var err error
	if len(s.t.Allocations) > 0 {
		search := func() error { return s.t.FindSegments(func(c *livemem.Change) { s.host.Note(s.t, c) }) }
		if err = timeline.RunParallel(search, s.scanMemory); err == nil {
			err = timeline.RunParallel(replay, s.scanCalls)
		}
	} else {
		scans := func() error { return inTurn(s.scanCalls, s.scanMemory) }
		if err = timeline.RunParallel(replay, scans); err == nil {
			err = s.copies.Each(s.copies.Add)
		}
	}
	if err != nil {
		return err
	}
	s.gaps.SelectLongest()
	s.sample()
	return inTurn(s.askMemory, s.askFrees, s.askHang)
}

// inTurn runs functions until one fails.
func inTurn(list ...func() error) error {
	for _, f := range list {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// replay runs the scans of memory.
func (s *Survey) replay(use func(*livemem.Change), watch caching.Consumer) (err error) {
	s.Program, err = s.t.ReplayProgram(func(p *timeline.Program, c *livemem.Change) {
		s.Leaks.Consume(p, c)
		s.loops.Consume(p, c)
		if s.Consumer != nil {
			s.Consumer(p, c)
		}
	}, func(c *livemem.Change) {
		if len(s.t.Allocations) == 0 {
			s.host.Note(s.t, c)
		}
		s.Failing.Driver(c)
		if use != nil {
			use(c)
		}
	}, func(a *caching.Allocator, c *caching.Change) {
		s.Failing.Allocator(a, c)
		if watch != nil {
			watch(a, c)
		}
	})
	return err
}

// scanMemory reads the memory calls, in any order.
func (s *Survey) scanMemory() error {
	for _, sp := range s.t.Memory {
		if err := s.scan(sp).Err(); err != nil {
			return s.t.Wrap(err)
		}
	}
	return nil
}

// scanCalls reads all other calls: each row group, and some kinds of calls in order of time.
func (s *Survey) scanCalls() error {
	return s.waits.EachOf(func(sp timeline.Span) *format.Group {
		g := s.scan(sp)
		s.kernels.AddGroup(g)
		s.modules.Group(g)
		return g
	}, s.ordered)
}

// scan reads a row group, and returns it with its columns cached.
func (s *Survey) scan(sp timeline.Span) *format.Group {
	g := s.columns.Of(sp.Group)
	s.Calls.Group(g)
	s.errors.Group(g)
	if sp.FirstNs <= s.hang.EndNs {
		s.hang.AddGroup(
			g,
			int32(slices.IndexFunc(s.hang.Spans, func(o timeline.Span) bool { return o.Group == sp.Group })),
		)
	}
	return g
}

// ordered takes the next call in order of time.
func (s *Survey) ordered(c *calls.Call) error {
	switch s.waits.Kinds[c.Kind] {
	case format.KindLaunch:
		return s.gaps.Add(c)
	case format.KindMemcpy:
		return s.copies.Add(c)
	}
	return s.waits.Add(c)
}

// sample collects the samples, and finds the GPUs of the recorded processes.
func (s *Survey) sample() {
	s.devices = make(map[int32][]gaps.Track)
	work := query.Window{FromNs: 1<<63 - 1, ToNs: 0}
	for track, launches := range s.gaps.Tracks {
		work.FromNs, work.ToNs = min(work.FromNs, launches.FirstNs), max(work.ToNs, launches.UntilNs)
		if index, ok := s.t.Facts.NVMLDevice(track.Pid, track.Device); ok && track.Device != gaps.AllDevices {
			s.devices[index] = append(s.devices[index], track)
		}
	}
	collected := func(w query.Window) *metric.Devices {
		u := &metric.Devices{T: s.t, Window: w, Filter: s.filter, Devices: make(map[int32]map[string]*metric.Series)}
		u.Collect()
		return u
	}
	s.gpu, s.working = collected(s.Window), collected(work)
}

// askMemory judges the memory and the failures that the replay has found.
func (s *Survey) askMemory() error {
	s.Leaks.Finish(s.Program)
	s.Quality = quality.OfProgram(s.t, s.Program)
	s.Findings = s.Leaks.Findings(&s.Quality)
	all, err := s.Failing.Finish()
	if err != nil || len(all) == 0 {
		return err
	}
	s.failures, _, _ = oom.Choose(s.t, all, s.filter)
	if len(s.failures) > 0 {
		if s.contexts, err = oom.Contexts(s.t, s.failures); err != nil {
			return err
		}
		s.causes = oom.Judge(s.contexts, s.Program, &s.Quality)
	}
	return nil
}

// askFrees classifies the failed frees.
func (s *Survey) askFrees() (err error) {
	s.frees, err = cudaerrors.InvalidFrees(s.t, s.errors, &s.Quality)
	return err
}

// askHang judges the state of the processes at the end.
func (s *Survey) askHang() error {
	s.hang.Long = nil // rules do not use long calls
	s.hang.WantAll()
	polls, err := s.hang.ReadPolls()
	if err := errors.Join(err, s.hang.ReadDetails()); err != nil {
		return err
	}
	s.states = s.hang.Judge(polls)
	return nil
}

// watchGaps finds what the CPU did in the longest gaps.
func (s *Survey) watchGaps() error {
	if s.watched {
		return nil
	}
	s.watched = true
	s.gaps.FindGPUActivity()
	return s.gaps.FindCPUActivity()
}

// fromStart reports whether the recording has the first call of all processes.
func (s *Survey) fromStart() bool {
	for pid := range s.hang.Processes {
		if !s.modules.Inits[pid] {
			return false
		}
	}
	return len(s.hang.Processes) > 0
}

// spanNs returns the sum of the times between the first and the last call of each thread, ns.
func (s *Survey) spanNs(threads map[origin.Thread]bool) (ns int64) {
	for th := range threads {
		if life := s.hang.Threads[th]; life != nil {
			ns = units.EndOf(ns, max(0, life.LastNs-life.FirstNs))
		}
	}
	return ns
}

// tracks returns the tracks of launches on a GPU, by process and device.
func (s *Survey) tracks(device int32) []gaps.Track {
	list := slices.Clone(s.devices[device])
	slices.SortFunc(list, func(a, b gaps.Track) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device))
	})
	return list
}
