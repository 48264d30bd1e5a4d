//go:build linux

package record

import (
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/host"
)

// watchMachine starts what is recorded beside the calls: the GPUs and their errors.
func (s *Session) watchMachine(c clock.Clock) {
	s.machine = s.scribe.Sender()
	if s.nvml != nil {
		s.helpers.Go(func() { s.nvml.Run(c, s.opt.NVMLInterval, s.machine, s.stop) })
	}
	s.watchXids(c)
	s.helpers.Go(func() { s.noteModules(c, s.stop) })
}

// endMachine adds to the metadata what that took, when the helpers have ended.
func (s *Session) endMachine() {
	dropped := s.machine.Close()
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	s.meta.Cost.RowsDropped = dropped
	if s.nvml != nil {
		s.meta.Cost.Sampling = s.nvml.Costs()
	}
	s.meta.Clocks = append(s.meta.Clocks, host.ReadClocks())
}
