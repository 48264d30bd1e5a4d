package html

import (
	"runtime"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/change"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/report/rules"
)

// maxConcurrentReports bounds the reports that run at a time, and so the memory that they need.
const maxConcurrentReports = 4

// sectionFinish is a section whose report was collected in the survey of the page.
type sectionFinish struct {
	sectionSpec
	finish report.FinishFunc
}

// runReports runs all reports of the page. The charts, the rules and most reports share a survey; the others read the
// recording again, several at a time. GPU times are computed in the background from the start.
func (b *pageBuilder) runReports() error {
	activity.Prefetch(b.t, b.opt.Filter.NarrowWindow(b.t.RecordingWindow()))
	collected, others, err := b.collectReports()
	if err != nil {
		return err
	}
	b.opt.Progress("recording")
	if err := b.survey.Read(); err != nil {
		return err
	}
	b.memory.finishSeries()
	b.lines.finishLines()
	if b.hits, err = b.rules.Check(rules.SelectCheckable(b.t, rules.AllRules())); err != nil {
		return err
	}
	isEmpty := func(s *sectionSpec) bool { return s.isEmpty != nil && s.isEmpty(b) }
	collected = slices.DeleteFunc(collected, func(s sectionFinish) bool { return isEmpty(&s.sectionSpec) })
	others = slices.DeleteFunc(others, func(s sectionSpec) bool { return isEmpty(&s) })
	work := b.newSectionRuns(others)
	run := func() error {
		return timeline.RunParallel(func() error { return b.finishReports(collected) }, b.readGPUTimes)
	}
	for range min(maxConcurrentReports, runtime.GOMAXPROCS(0)) {
		before := run
		run = func() error { return timeline.RunParallel(before, func() error { return b.runSections(work) }) }
	}
	if err := run(); err != nil || !b.hasChanges {
		return err
	}
	return b.addChanges()
}

// collectReports adds the observers of the charts, the rules and the reports to the survey. It returns the sections
// whose reports are in the survey, and those that read the recording again.
func (b *pageBuilder) collectReports() (collected []sectionFinish, others []sectionSpec, err error) {
	if b.rules, err = rules.NewScan(b.survey, &b.opt.Options); err != nil {
		return nil, nil, err
	}
	b.observeMemory()
	b.calls = newCallsOverTime(b.t, &b.opt.Filter)
	b.survey.Add(survey.Observer{CallGroup: b.calls.addRowGroup, MemoryGroup: b.calls.addRowGroup})
	for _, s := range pageSections {
		if s.command == "" || len(quality.MissingClasses(b.t, s.needs)) > 0 || s.skip != nil && s.skip(b) {
			continue
		}
		switch {
		case s.command == "changes":
			b.hasChanges = true
			continue
		case s.collect == nil:
			others = append(others, s)
			continue
		}
		finish, err := s.collect(b.survey, b.opt.Options)
		if err != nil {
			return nil, nil, err
		}
		collected = append(collected, sectionFinish{s, finish})
	}
	return collected, others, nil
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

// finishReports adds the reports of the survey.
func (b *pageBuilder) finishReports(sections []sectionFinish) error {
	for _, s := range sections {
		r, err := s.finish()
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

// observeMemory adds the observers of the charts of memory to the survey.
func (b *pageBuilder) observeMemory() {
	t, f := b.t, &b.opt.Filter
	b.memory, b.flame, b.lines = newMomentScan(t, f), newFlameScan(t, f), newMemoryLines(t, f)
	b.levels = change.NewMemory(t, f, b.survey.Reader.Window)
	b.survey.Add(
		survey.Observer{Program: b.memory.consumeChange},
		survey.Observer{Program: b.flame.consumeChange},
		survey.Observer{Driver: b.levels.OnDriverChange, Allocator: b.levels.OnAllocatorChange},
		survey.Observer{Driver: b.lines.addDriverChange, Allocator: b.lines.addAllocatorChange},
		survey.Observer{
			Program: func(_ *timeline.ProgramMemory, c *livemem.Change) {
				if c.Kind == livemem.ChangeAllocFailed {
					b.countFailedAllocation(c.AtNs)
				}
			},
			Allocator: func(_ *caching.Allocator, c *caching.AllocatorChange) {
				if c.Op == caching.OpOutOfMemory {
					b.countFailedAllocation(c.AtNs)
				}
			},
		},
	)
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
