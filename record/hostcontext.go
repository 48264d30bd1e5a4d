//go:build linux

package record

import (
	"fmt"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/hostcontext"
	"github.com/gpurec/gpurec/record/hostmetric"
	"github.com/gpurec/gpurec/record/interpreter"
)

// hostRecorders record what threads do outside of CUDA. Without --host, all are nil.
type hostRecorders struct {
	waits       *hostcontext.Recorder // nil also if the kernel does not allow it
	interpreter *interpreter.Recorder
	metrics     *hostmetric.Recorder
	missing     []string // why waits is nil
}

// startHostContext starts the recorders of class host. What cannot be recorded is named in the note host.
func (s *Session) startHostContext() {
	mode := s.opt.Host
	if mode == hostcontext.ModeOff {
		return
	}
	h := &s.host
	h.interpreter = interpreter.New(interpreter.Options{
		Sink: s.pipeline.writer, Clock: s.clock, IsFull: mode == hostcontext.ModeFull, Processes: s.startTimes,
		Threads: s.probes.ListThreadIDs,
	})
	s.helpers.Go(func() { h.interpreter.Run(s.stop) })
	var err error
	h.waits, err = hostcontext.New(hostcontext.Options{
		Mode:      mode,
		Sink:      s.pipeline.writer,
		Clock:     s.clock,
		Threads:   s.probes.ListThreadIDs,
		Processes: s.startTimes,
		IsGIL:     h.interpreter.IsGIL,
		Files:     s.stackFiles,
		Warn:      s.warn,
	})
	if err != nil {
		text := fmt.Sprintf("waits and samples of threads are not recorded: %v", err)
		s.warn(text)
		h.missing = append(h.missing, text)
	} else {
		s.helpers.Go(func() { h.waits.Run(s.stop) })
	}
	h.metrics = hostmetric.New(hostmetric.Options{
		Sink: s.pipeline.writer, Clock: s.clock, Processes: s.startTimes,
	})
	s.helpers.Go(func() { h.metrics.Run(s.stop) })
	s.pipeline.writer.Send(s.hostNotes(s.clock.NowNs()))
}

// hostNotes returns the note on class host: nil without --host.
func (s *Session) hostNotes(now int64) []format.Row {
	fact := s.hostFact()
	if fact == nil {
		return nil
	}
	return []format.Row{hostcontext.NoteRow(fact, now)}
}

// hostFact describes what was recorded of class host so far: nil without --host.
func (s *Session) hostFact() *format.HostFact {
	h := &s.host
	if h.interpreter == nil {
		return nil
	}
	fact := format.HostFact{Mode: s.opt.Host.String()}
	if h.waits != nil {
		fact = h.waits.Fact()
	}
	fact.Missing = append(fact.Missing, h.missing...)
	fact.Missing = append(fact.Missing, h.interpreter.Missing()...)
	fact.Missing = append(fact.Missing, h.metrics.Missing()...)
	fact.InterpreterHz, _ = h.interpreter.Hz()
	fact.CPUNs += (h.interpreter.Cost() + h.metrics.Cost()).Nanoseconds()
	return &fact
}

// close stops the BPF programs of the recorders.
func (h *hostRecorders) close() {
	if h.waits != nil {
		h.waits.Close()
	}
}
