//go:build linux

package record

import (
	"os"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/rowwriter"
	"github.com/gpurec/gpurec/record/trigger"
)

// Freeze keeps everything of a time before now as the folder ID.sealing in folder, which is in the file system of the
// recording. format.Seal makes a recording of it. Without Options.Reviews, it keeps all of a recording that is no ring.
// It returns errors of the disk. Safe for concurrent use until Finish.
func (s *Session) Freeze(folder *os.Root, id string, before time.Duration) error {
	t := format.Trigger{
		ID: id, Kind: string(trigger.Manual), AtNs: s.clock.NowNs(), BeforeNs: before.Nanoseconds(),
		Evidence: "saved by a user", Outcome: format.TriggerCaptured,
	}
	frozen := make(chan error, 1)
	s.takeCapture(folder, &t, func(err error) { frozen <- err })
	return <-frozen
}

// takeCapture keeps everything since t.FromNs() until now, with the calls that have not returned. done is called when
// the folder is complete.
func (s *Session) takeCapture(folder *os.Root, t *format.Trigger, done func(error)) {
	s.captureMu.Lock()
	defer s.captureMu.Unlock()
	s.pipeline.writer.TakeCapture(folder, s.prepareCaptureEnd(t, done))
}

// endCapture ends a capture: it adds the calls that have not returned, and the notes that a recording has at its
// end.
func (s *Session) endCapture(c *rowwriter.Capture, t *format.Trigger, done func(error)) {
	s.captureMu.Lock()
	defer s.captureMu.Unlock()
	s.pipeline.writer.EndCapture(c, s.prepareCaptureEnd(t, done))
}

// prepareCaptureEnd reads what a capture that ends now has in addition to its rows.
func (s *Session) prepareCaptureEnd(t *format.Trigger, done func(error)) *rowwriter.CaptureEnd {
	writer := s.pipeline.writer
	writer.WatchReturns()
	endNs := s.clock.NowNs()
	open, err := s.probes.OpenCalls()
	facts := s.captureNotes(s.clock.NowNs())
	if err != nil {
		facts = append(facts, format.Row{
			Kind: format.KindNote, Name: "open_calls", StartNs: endNs, Device: -1,
			Message: "calls that had not returned are missing: " + err.Error(),
		})
	}
	if !s.pipeline.drain.Barrier(drainLimit) {
		facts = append(facts, format.Row{
			Kind: format.KindNote, Name: "drain", StartNs: endNs, Device: -1,
			Message: "the last calls are missing: the recorder is behind",
		})
	}
	return &rowwriter.CaptureEnd{Trigger: t, EndNs: endNs, Open: open, Facts: facts, Done: done}
}

// captureNotes returns the notes at the end of a capture.
func (s *Session) captureNotes(now int64) (rows []format.Row) {
	rows = append(rows, s.inferenceNotes(now)...)
	rows = append(rows, s.threadStateNotes(now)...)
	rows = append(rows, s.census.notes(now)...)
	return append(rows, s.hostNotes(now)...)
}
