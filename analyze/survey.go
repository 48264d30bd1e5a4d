package analyze

import (
	"cmp"
	"errors"
	"slices"

	"github.com/gpurec/gpurec/format"
)

// survey is a recording looked at for everything at once: what the other reports are made of, gathered in one replay of memory and
// one reading of all other calls. Rules and Summary are made of it.
type survey struct {
	t       *Timeline
	filter  *Filter
	window  Window
	quality Quality
	// consumer, if it is set, gets the changes of the program's memory too, so that who needs the same replay need not run another.
	consumer func(*programMemory, *change)

	// Of the replay: memory as the program sees it.
	program  *programMemory
	leaks    *leakScan
	verdicts []judged // of leaks, the worst first
	loops    *allocLoops
	host     *hostBlocks
	failing  *failureScan
	failures []*failure // that are looked at
	scenes   []*scene   // of failures
	causes   []oomVerdict

	// Of the calls.
	calls   *callUse
	copies  *copyUse
	waits   *waitUse
	gaps    *gapUse
	kernels *kernelsUse
	modules *moduleUse
	errors  *errorUse
	hang    *hangScan
	states  []processState

	gpu *gpuUse // samples in the window
	// working are the samples while the recorded processes launched, for what is no use to know of other times.
	working *gpuUse
	// devices are the GPUs, as NVML counts, that recorded processes launched on; empty if that is not known.
	devices map[int32][]gapTrack
	watched bool // gaps know what was done in them
}

func (t *Timeline) newSurvey(opt *Options) (*survey, error) {
	leaks, err := t.newLeakScan(opt)
	if err != nil {
		return nil, err
	}
	f := &opt.Filter
	reader := t.newCallReader(f, format.KindLaunch, format.KindMemcpy, format.KindSync)
	s := &survey{t: t, filter: f, window: reader.window, leaks: leaks, loops: t.newAllocLoops(f), host: newHostBlocks(), failing: &failureScan{t: t},
		calls: t.newCallUse(f), waits: newWaitUse(reader, 1), gaps: newGapUse(reader, DefaultMinGapNs, mostGaps),
		kernels: t.newKernelsUse(f), modules: t.newModuleUse(f), errors: t.newErrorUse(f),
		hang: t.newHangScan(&HangOptions{Options: *opt, LongNs: DefaultLongNs})}
	s.copies = newCopyUse(reader, s.host)
	return s, nil
}

// run reads the recording. use and allocators, if they are set, get all changes of the driver's memory and of allocators.
func (s *survey) run(use func(*change), allocators allocatorConsumer) error {
	// What runs at a time reads other row groups, as in countsWhile, and shares nothing that changes.
	err := both(func() error { return s.replay(use, allocators) },
		func() error { return s.scan(s.t.calls, len(s.t.memory), s.kernels.group, s.modules.group) })
	if err != nil {
		return err
	}
	// Copies want to know which host memory is pinned, so the calls of which the order matters come last.
	err = both(func() error { return s.scan(s.t.memory, 0) }, func() error { return s.copies.each(s.ordered) })
	if err != nil {
		return err
	}
	s.gaps.finish()
	s.sample()
	return cmp.Or(s.askMemory(), s.askHang())
}

// both runs two functions at a time.
func both(a, b func() error) error {
	done := make(chan error, 1)
	go func() { done <- a() }()
	err := b()
	return cmp.Or(<-done, err)
}

func (s *survey) replay(use func(*change), allocators allocatorConsumer) (err error) {
	s.program, err = s.t.replayProgram(func(p *programMemory, c *change) {
		s.leaks.consume(p, c)
		s.loops.consume(p, c)
		if s.consumer != nil {
			s.consumer(p, c)
		}
	}, func(c *change) {
		s.host.note(s.t, c)
		s.failing.driver(c)
		if use != nil {
			use(c)
		}
	}, func(a *allocator, c *allocatorChange) {
		s.failing.allocator(a, c)
		if allocators != nil {
			allocators(a, c)
		}
	})
	return err
}

// scan looks through row groups in any order; first is the number of the first one for hang, also are further readers.
func (s *survey) scan(spans []span, first int, also ...func(*format.Group)) error {
	for i, sp := range spans {
		g := sp.group
		s.calls.group(g)
		s.errors.takeOver(s.calls)
		s.errors.group(g)
		s.hang.takeOver(s.errors.callUse)
		if sp.firstNs <= s.hang.endNs {
			s.hang.group(g, int32(first+i))
		}
		s.kernels.takeOver(s.hang.callUse)
		for _, group := range also {
			group(g)
		}
		if err := g.Err(); err != nil {
			return s.t.wrap(err)
		}
	}
	return nil
}

// ordered takes a call in its turn.
func (s *survey) ordered(c *callRow) error {
	switch s.copies.of[c.kind] {
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
	work := Window{1<<63 - 1, 0}
	for track, launches := range s.gaps.tracks {
		work.FromNs, work.ToNs = min(work.FromNs, launches.firstNs), max(work.ToNs, launches.untilNs)
		if index, ok := s.t.facts.nvmlDevice(track.pid, track.device); ok && track.device != allDevices {
			s.devices[index] = append(s.devices[index], track)
		}
	}
	collected := func(w Window) *gpuUse {
		u := &gpuUse{t: s.t, window: w, filter: s.filter, devices: make(map[int32]map[string]*series)}
		u.collect()
		return u
	}
	s.gpu, s.working = collected(s.window), collected(work)
}

// askMemory judges what the replay has found.
func (s *survey) askMemory() error {
	s.leaks.finish(s.program)
	s.quality = s.t.programQuality(s.program)
	s.verdicts = s.leaks.verdicts(&s.quality)
	all, err := s.failing.finish()
	if err != nil || len(all) == 0 {
		return err
	}
	s.failures, _, _ = s.t.chooseFailures(all, s.filter)
	if len(s.failures) > 0 {
		if s.scenes, err = s.t.scenes(s.failures); err != nil {
			return err
		}
		s.causes = judgeScenes(s.scenes, s.program, &s.quality)
	}
	return nil
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
func (s *survey) spanNs(threads map[thread]bool) (ns int64) {
	for th := range threads {
		if life := s.hang.threads[th]; life != nil {
			ns = endOf(ns, max(0, life.lastNs-life.firstNs))
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
