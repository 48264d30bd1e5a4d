//go:build linux

package record

import (
	"fmt"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/hostcontext"
)

// startHostContext starts to record what threads do outside of CUDA. If it cannot, the recording has no
// such rows, and its note says why.
func (s *Session) startHostContext() {
	if s.opt.Host == hostcontext.ModeOff {
		return
	}
	recorder, err := hostcontext.New(hostcontext.Options{
		Mode:      s.opt.Host,
		Sink:      s.pipeline.writer,
		Clock:     s.clock,
		Threads:   s.probes.ListThreadIDs,
		Processes: s.startTimes,
		Warn:      s.warn,
	})
	if err != nil {
		text := fmt.Sprintf("waits and samples of threads are not recorded: %v", err)
		s.warn(text)
		s.pipeline.writer.Send([]format.Row{hostcontext.NoteRow(
			&format.HostFact{Mode: s.opt.Host.String(), Missing: []string{text}}, s.clock.NowNs())})
		return
	}
	s.host = recorder
	s.helpers.Go(func() { recorder.Run(s.stop) })
}
