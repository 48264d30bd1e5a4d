package analyze

import (
	"cmp"
	"errors"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/hostmem"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// survey is a recording looked at for everything at once: what the other reports are made of, gathered in one replay of memory and
// one reading of all calls beside it. Rules and Summary are made of it.
type survey struct {
	t       *timeline.Timeline
	filter  *query.Filter
	window  query.Window
	quality Quality
	// consumer, if it is set, gets the changes of the program's memory too, so that who needs the same replay need not run another.
	consumer func(*timeline.Program, *ledger.Change)

	// Of the replay: memory as the program sees it.
	program  *timeline.Program
	leaks    *leakScan
	verdicts []judged // of leaks, the worst first
	loops    *allocLoops
	host     *hostmem.Blocks
	failing  *failureScan
	failures []*failure // that are looked at
	scenes   []*scene   // of failures
	causes   []oomVerdict

	// Of the calls.
	columns format.Columns // of the row group that is looked at
	calls   *calls.Counter
	copies  *copyUse
	waits   *waitUse
	gaps    *gapUse
	kernels *kernelsUse
	modules *moduleUse
	errors  *errorUse
	frees   []invalidFree // of errors
	hang    *hangScan
	states  []processState

	gpu *metric.Devices // samples in the window
	// working are the samples while the recorded processes launched, for what is no use to know of other times.
	working *metric.Devices
	// devices are the GPUs, as NVML counts, that recorded processes launched on; empty if that is not known.
	devices map[int32][]gapTrack
	watched bool // gaps know what was done in them
}

func newSurvey(t *timeline.Timeline, opt *query.Options) (*survey, error) {
	leaks, err := newLeakScan(t, opt)
	if err != nil {
		return nil, err
	}
	f := &opt.Filter
	// Copies want to know which host memory is pinned. That is known early if allocators' segments are looked for first, and only after
	// the replay if they are not: then copies are read apart.
	kinds := []string{format.KindLaunch, format.KindSync, format.KindMemcpy}
	if len(t.Allocations) == 0 {
		kinds = kinds[:2]
	}
	reader := calls.NewReader(t, f, kinds...)
	copies := reader
	if len(t.Allocations) == 0 {
		copies = calls.NewReader(t, f, format.KindMemcpy)
	}
	s := &survey{t: t, filter: f, window: reader.Window, leaks: leaks, loops: newAllocLoops(t, f), host: hostmem.New(), failing: &failureScan{t: t},
		calls: calls.NewCounter(t, f), waits: newWaitUse(reader, 1), gaps: newGapUse(reader, DefaultMinGapNs, mostGaps),
		kernels: newKernelsUse(t, f), modules: newModuleUse(t, f), errors: newErrorUse(t, f),
		hang: newHangScan(t, &HangOptions{Options: *opt, LongNs: DefaultLongNs})}
	s.copies = newCopyUse(copies, s.host)
	return s, nil
}

// run reads the recording. use and watch, if they are set, get all changes of the driver's memory and of allocators.
func (s *survey) run(use func(*ledger.Change), watch caching.Consumer) error {
	// What runs at a time, on two cores, shares nothing that changes.
	replay := func() error { return s.replay(use, watch) }
	var err error
	if len(s.t.Allocations) > 0 {
		search := func() error { return s.t.FindSegments(func(c *ledger.Change) { s.host.Note(s.t, c) }) }
		if err = timeline.Both(search, s.scanMemory); err == nil {
			err = timeline.Both(replay, s.scanCalls)
		}
	} else if err = timeline.Both(replay, func() error { return inTurn(s.scanCalls, s.scanMemory) }); err == nil {
		err = s.copies.Each(s.copies.add)
	}
	if err != nil {
		return err
	}
	s.gaps.finish()
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

func (s *survey) replay(use func(*ledger.Change), watch caching.Consumer) (err error) {
	s.program, err = s.t.ReplayProgram(func(p *timeline.Program, c *ledger.Change) {
		s.leaks.consume(p, c)
		s.loops.consume(p, c)
		if s.consumer != nil {
			s.consumer(p, c)
		}
	}, func(c *ledger.Change) {
		if len(s.t.Allocations) == 0 {
			s.host.Note(s.t, c)
		}
		s.failing.driver(c)
		if use != nil {
			use(c)
		}
	}, func(a *caching.Allocator, c *caching.Change) {
		s.failing.allocator(a, c)
		if watch != nil {
			watch(a, c)
		}
	})
	return err
}

// scanMemory looks through memory calls as calls, in any order.
func (s *survey) scanMemory() error {
	for _, sp := range s.t.Memory {
		if err := s.scan(sp).Err(); err != nil {
			return s.t.Wrap(err)
		}
	}
	return nil
}

// scanCalls looks through all other calls: through each row group, and through some calls in order of time.
func (s *survey) scanCalls() error {
	return s.waits.EachOf(func(sp timeline.Span) *format.Group {
		g := s.scan(sp)
		s.kernels.group(g)
		s.modules.group(g)
		return g
	}, s.ordered)
}

// scan looks through a row group, and returns it for others who want the same columns.
func (s *survey) scan(sp timeline.Span) *format.Group {
	g := s.columns.Of(sp.Group)
	s.calls.Group(g)
	s.errors.group(g)
	if sp.FirstNs <= s.hang.endNs {
		s.hang.group(g, int32(slices.IndexFunc(s.hang.spans, func(o timeline.Span) bool { return o.Group == sp.Group })))
	}
	return g
}

// ordered takes a call in its turn.
func (s *survey) ordered(c *calls.Call) error {
	switch s.waits.Of[c.Kind] {
	case format.KindLaunch:
		return s.gaps.add(c)
	case format.KindMemcpy:
		return s.copies.add(c)
	}
	return s.waits.add(c)
}

// sample sorts the samples, and finds the GPUs of the recorded processes.
func (s *survey) sample() {
	s.devices = make(map[int32][]gapTrack)
	work := query.Window{FromNs: 1<<63 - 1, ToNs: 0}
	for track, launches := range s.gaps.tracks {
		work.FromNs, work.ToNs = min(work.FromNs, launches.firstNs), max(work.ToNs, launches.untilNs)
		if index, ok := s.t.Facts.NVMLDevice(track.pid, track.device); ok && track.device != allDevices {
			s.devices[index] = append(s.devices[index], track)
		}
	}
	collected := func(w query.Window) *metric.Devices {
		u := &metric.Devices{T: s.t, Window: w, Filter: s.filter, Devices: make(map[int32]map[string]*metric.Series)}
		u.Collect()
		return u
	}
	s.gpu, s.working = collected(s.window), collected(work)
}

// askMemory judges what the replay has found.
func (s *survey) askMemory() error {
	s.leaks.finish(s.program)
	s.quality = programQuality(s.t, s.program)
	s.verdicts = s.leaks.verdicts(&s.quality)
	all, err := s.failing.finish()
	if err != nil || len(all) == 0 {
		return err
	}
	s.failures, _, _ = chooseFailures(s.t, all, s.filter)
	if len(s.failures) > 0 {
		if s.scenes, err = readScenes(s.t, s.failures); err != nil {
			return err
		}
		s.causes = judgeScenes(s.scenes, s.program, &s.quality)
	}
	return nil
}

// askFrees classifies the failed frees.
func (s *survey) askFrees() (err error) {
	s.frees, err = invalidFrees(s.t, s.errors, &s.quality)
	return err
}

// askHang judges what the processes did at the end.
func (s *survey) askHang() error {
	s.hang.long = nil // they are no concern of rules
	s.hang.wantAll()
	polls, err := s.hang.polls()
	if err := errors.Join(err, s.hang.readDetails()); err != nil {
		return err
	}
	s.states = s.hang.states(polls)
	return nil
}

// watchGaps finds out what was done in the longest gaps.
func (s *survey) watchGaps() error {
	if s.watched {
		return nil
	}
	s.watched = true
	s.gaps.askSamples()
	return s.gaps.watch()
}

// fromStart reports whether all processes that made calls were recorded from their first one.
func (s *survey) fromStart() bool {
	for pid := range s.hang.processes {
		if !s.modules.inits[pid] {
			return false
		}
	}
	return len(s.hang.processes) > 0
}

// spanNs is the time between the first and the last call of threads.
func (s *survey) spanNs(threads map[origin.Thread]bool) (ns int64) {
	for th := range threads {
		if life := s.hang.threads[th]; life != nil {
			ns = units.EndOf(ns, max(0, life.lastNs-life.firstNs))
		}
	}
	return ns
}

// tracks returns what recorded processes launched on a GPU, in order.
func (s *survey) tracks(device int32) []gapTrack {
	list := slices.Clone(s.devices[device])
	slices.SortFunc(list, func(a, b gapTrack) int { return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.device, b.device)) })
	return list
}
