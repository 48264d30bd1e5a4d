//go:build linux

package record

import (
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/overhead"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
)

// Result describes a finished recording.
type Result struct {
	// Output is the path of the recording.
	Output string
	// Unfinished is the folder of segments if Finish could not write Output, otherwise "".
	Unfinished string
	Meta       format.Meta
	// Elapsed is the duration of the recording.
	Elapsed time.Duration
	// Host says how class host was recorded. nil: it was not.
	Host *format.HostFact
}

// Finish ends the recording and writes the file. The Result is valid also with an error:
// Unfinished is then the folder of the segments. Perf uprobes are still attached, without effect,
// until Close. Close must be called in every case.
func (s *Session) Finish() (Result, error) {
	s.recordLastThreadStates()
	close(s.stop)
	begin := time.Now()
	s.holds.end()
	s.targets.StopTotalsSearches()
	endErr := s.probes.WaitForOpenCalls(probe.MaxDetachWait)
	s.endNs = clock.ReadNs(unix.CLOCK_MONOTONIC)
	writer := s.pipeline.writer
	writer.SetEndNs(s.clock.NowNs())
	endErr = errors.Join(endErr, s.probes.StopEvents())
	detachNs := time.Since(begin).Nanoseconds()
	if s.probes.How == privilege.AttachPerf {
		detachNs = 0 // Close detaches perf uprobes
	}
	s.helpers.Wait()
	s.storeSamplingCosts()
	s.storeProgressCost()
	if rows := s.lastRows(); len(rows) > 0 {
		writer.Send(rows)
	}
	err := errors.Join(endErr, s.pipeline.drainAll(s.targets.OnLateProcessEvent))
	// The map of thread states outlives the probes.
	open, openErr := s.probes.OpenCalls()
	probe.MarkCallsOpen(open, s.endNs)
	writer.WriteOpenCalls(open)
	meta := s.finalMeta(detachNs)
	result := Result{Output: s.output, Meta: meta, Elapsed: time.Duration(meta.EndNs - s.startNs)}
	result.Host = s.hostFact()
	if s.opt.KeepSegments {
		result.Unfinished = writer.SegmentFolder()
		err = writer.Leave(meta, errors.Join(err, openErr))
		s.finished.Store(err == nil)
		return result, err
	}
	if err = writer.Finish(meta, errors.Join(err, openErr)); err != nil {
		result.Unfinished = writer.SegmentFolder()
		return result, err
	}
	s.finished.Store(true)
	if info, serr := os.Stat(s.output); serr == nil {
		result.Meta.Cost.FileBytes = info.Size()
	}
	return result, nil
}

// lastRows returns the exits of processes, the statistics of inferred stacks, and notes.
func (s *Session) lastRows() []format.Row {
	now := s.clock.NowNs()
	return slices.Concat(
		s.inferenceNotes(now),
		s.threadStateNotes(now),
		s.census.notes(now),
		s.hostNotes(now),
		s.targets.LastRows(now),
	)
}

// Finished reports whether the file is complete. Safe for concurrent use.
func (s *Session) Finished() bool { return s.finished.Load() }

// Close removes the remaining probes and releases all resources. Removing perf uprobes takes 0.05
// to 0.3 s each.
func (s *Session) Close() error {
	if s.pipeline != nil {
		s.pipeline.close()
	}
	if s.targets != nil {
		s.targets.Close()
	}
	s.machine.close()
	if s.threadStates != nil {
		s.threadStates.Close()
		s.threadStates = nil
	}
	s.host.close()
	s.host = hostRecorders{}
	if s.progress != nil {
		_ = s.progress.Close() // only unmaps memory
		s.progress = nil
	}
	s.kernels.close()
	s.kernels = nil
	s.holds.close()
	if s.stackFiles != nil {
		s.stackFiles.Close()
		s.stackFiles = nil
	}
	if s.unwinder != nil {
		s.unwinder.Close()
		s.unwinder = nil
	}
	if s.tables != nil {
		_ = s.tables.Close() // only read and written completely
		s.tables = nil
	}
	if s.probes == nil {
		return nil
	}
	err := s.probes.Close()
	s.probes = nil
	return err
}

// finalMeta returns the metadata of the finished recording.
func (s *Session) finalMeta(detachNs int64) format.Meta {
	meta := s.pipeline.writer.CurrentMeta()
	meta.EndNs = s.pipeline.writer.EndNs()
	meta.ClockStepNs = s.clock.WallClockStepNs()
	cost := overhead.ReadOwnCost()
	meta.Cost.CPUNs, meta.Cost.RSSBytes = cost.CPUNs-s.costBase.CPUNs, cost.RSSBytes
	meta.Cost.DetachNs = detachNs
	held := s.holds.stats
	meta.Cost.Holds, meta.Cost.HeldNs, meta.Cost.Unheld = held.Holds, held.HeldNs, held.Unreleased
	meta.Cost.Probes = s.sampler.ProbeCost()
	meta.Cost.BPFRunNs, meta.Cost.BPFRuns = s.probes.ReadRunTimes()
	return meta
}
