//go:build linux

package record

import (
	"fmt"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/progress"
)

// startProgress starts to record the progress of channels. If it cannot, the recording has no
// GPU times.
func (s *Session) startProgress() {
	if s.opt.GPUTime == progress.RateOff {
		return
	}
	recorder, err := progress.New(progress.Options{
		Rate:      s.opt.GPUTime,
		Probes:    s.probes,
		Sink:      s.pipeline.writer,
		Clock:     s.clock,
		Processes: s.startTimes,
		Warn:      s.warn,
	})
	if err != nil {
		text := fmt.Sprintf("GPU times are not recorded: %v", err)
		s.warn(text)
		s.pipeline.writer.Send([]format.Row{{
			Kind: format.KindNote, Name: "gpu-time", StartNs: s.clock.NowNs(), Device: -1, Message: text,
		}})
		return
	}
	s.progress = recorder
	s.helpers.Go(func() { recorder.Run(s.stop) })
}

// startTimes returns the start times of the target processes, by pid.
func (s *Session) startTimes() map[int]int64 {
	starts := make(map[int]int64)
	for _, p := range s.targets.All() {
		starts[p.Pid] = p.StartNs
	}
	return starts
}

// storeProgressCost adds the cost of GPU times to the metadata. The helpers must have ended.
func (s *Session) storeProgressCost() {
	if s.progress == nil {
		return
	}
	cost := s.progress.Cost()
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	s.meta.Cost.GPUTimeCPUNs, s.meta.Cost.GPUTimeTorn = cost.CPUNs, cost.Torn
}
