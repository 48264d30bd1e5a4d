package html

import (
	"runtime"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/change"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/frag"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/report/rules"
)

// maxConcurrentReports bounds the reports that run at a time, and so the memory that they need.
const maxConcurrentReports = 4

// runReports runs all reports of the page. Reports about memory share one replay, and the charts of
// calls are collected in parallel to it. GPU times are computed in the background from the start.
func (b *pageBuilder) runReports() error {
	activity.Prefetch(b.t, b.opt.Filter.NarrowWindow(b.t.RecordingWindow()))
	b.calls = newCallsOverTime(b.t, &b.opt.Filter)
	if err := timeline.RunParallel(b.replayMemory, b.calls.scanCalls); err != nil {
		return err
	}
	var ofReplay, others []sectionSpec
	hasChanges := false
	for _, s := range pageSections {
		if s.skip != nil && s.skip(b) || len(quality.MissingClasses(b.t, s.needs)) > 0 {
			continue
		}
		switch {
		case s.command == "changes":
			hasChanges = true
		case s.run != nil:
			others = append(others, s)
		case s.make != nil:
			ofReplay = append(ofReplay, s)
		}
	}
	work := b.newSectionRuns(others)
	run := func() error {
		return timeline.RunParallel(func() error { return b.addReports(ofReplay) }, b.readGPUTimes)
	}
	for range min(maxConcurrentReports, runtime.GOMAXPROCS(0)) {
		before := run
		run = func() error { return timeline.RunParallel(before, func() error { return b.runSections(work) }) }
	}
	if err := run(); err != nil || !hasChanges {
		return err
	}
	return b.addChanges()
}

// readGPUTimes reads the GPU times of the flame graph and of the busy time, and the times of threads.
func (b *pageBuilder) readGPUTimes() (err error) {
	if b.gpuTimes, err = readGPUFlame(b.t, &b.opt.Filter); err != nil {
		return err
	}
	if b.host, err = readHostFlame(b.t, &b.opt.Filter); err != nil {
		return err
	}
	return b.readIdleTimes()
}

// addReports adds the reports that use data of the replay.
func (b *pageBuilder) addReports(sections []sectionSpec) error {
	for _, s := range sections {
		r, err := s.make(b)
		if err != nil {
			return err
		}
		b.addReport(s.command, r)
	}
	return nil
}

// sectionRun is a section whose report reads the recording, and a view for it.
type sectionRun struct {
	sectionSpec
	view *timeline.Timeline
}

// newSectionRuns returns the sections in a closed channel, each with a view of its own.
func (b *pageBuilder) newSectionRuns(sections []sectionSpec) chan sectionRun {
	work := make(chan sectionRun, len(sections))
	for _, s := range sections {
		work <- sectionRun{s, b.t.NewView()}
	}
	close(work)
	return work
}

// runSections runs the reports of sections until there is none left.
func (b *pageBuilder) runSections(work chan sectionRun) error {
	for s := range work {
		r, err := s.run(b, s.view, b.opt.Options)
		if err != nil {
			return err
		}
		b.addReport(s.command, r)
	}
	return nil
}

// addReport adds a report of the page. Several goroutines may call it.
func (b *pageBuilder) addReport(command string, r *report.Report) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opt.Progress(command)
	b.reports[command] = r
}

// replayMemory runs the survey of the rules, and passes each change of memory to the scans of the
// page.
func (b *pageBuilder) replayMemory() error {
	b.opt.Progress("memory")
	t, opt := b.t, &b.opt.Options
	s, err := rules.NewSurvey(t, opt)
	if err != nil {
		return err
	}
	allocators := allocator.NewTotalsScan(t, &opt.Filter, s.Window)
	b.memory, b.flame, b.lines = newMomentScan(
		t,
		&opt.Filter,
	), newFlameScan(
		t,
		&opt.Filter,
	), newMemoryLines(
		t,
		&opt.Filter,
	)
	b.holders = memory.NewScan(t, &memory.Options{Options: *opt, At: query.MomentEnd, Reconcile: hasProcessSamples(t)})
	b.levels = change.NewMemory(t, &opt.Filter, s.Window)
	b.allocators, b.oomFailures = allocator.NewScan(t, &allocator.Options{Options: *opt}), s.Failures
	if !b.hasNoFragmentableMemory() {
		b.frag = frag.NewScan(t, &frag.Options{Options: *opt})
		if err := b.frag.FindAddressRanges(); err != nil {
			return err
		}
	}
	s.Consumer = func(p *timeline.ProgramMemory, c *livemem.Change) {
		b.memory.consumeChange(p, c)
		b.flame.consumeChange(p, c)
		if c.Kind == livemem.ChangeAllocFailed {
			b.countFailedAllocation(c.AtNs)
		}
	}
	err = s.ReadRecording(func(c *livemem.Change) {
		b.holders.OnDriverChange(nil, c)
		b.levels.OnDriverChange(c)
		b.lines.addDriverChange(c)
		if b.frag != nil {
			b.frag.OnDriverChange(c)
		}
	}, func(a *caching.Allocator, c *caching.AllocatorChange) {
		allocators.OnAllocatorChange(a, c)
		b.levels.OnAllocatorChange(a, c)
		b.lines.addAllocatorChange(a, c)
		b.allocators.OnAllocatorChange(a, c)
		if b.frag != nil {
			b.frag.OnAllocatorChange(a, c)
		}
		if c.Op == caching.OpOutOfMemory {
			b.countFailedAllocation(c.AtNs)
		}
	})
	if err != nil {
		return err
	}
	p := s.Program
	t.Counts = p.DriverCounts()
	b.frees = p.DriverCounts().Frees
	b.program = p
	p.Allocators.EachAllocator(func(a *caching.Allocator) { b.frees += a.Counts.Frees })
	b.memory.finishSeries()
	b.lines.finishLines()
	if b.hits, err = s.CheckRules(rules.SelectCheckable(b.t, rules.AllRules())); err != nil {
		return err
	}
	b.reports["leaks"], err = s.Leaks.Report(p, allocators, opt)
	return err
}

// bucketFailures counts the allocations that failed in one bucket of the window. firstNs is the
// time of the first one, Unix ns.
type bucketFailures struct{ count, firstNs int64 }

// countFailedAllocation counts an allocation that failed.
func (b *pageBuilder) countFailedAllocation(atNs int64) {
	part := (windowBuckets{b.memory.window}).bucketAt(atNs)
	if part < 0 || part == numWindowBuckets {
		return
	}
	b.failed = true
	f := &b.failures[part]
	if f.count++; f.count == 1 {
		f.firstNs = atNs
	}
}
