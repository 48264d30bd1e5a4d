//go:build linux

package rows

import (
	"sync"

	"github.com/gpurec/gpurec/format"
)

// Sender hands rows of the machine to the scribe without ever waiting for it: who
// samples must keep its pace, and a scribe that is behind has the ring buffer to empty.
// Safe for concurrent use, also after close.
type Sender struct {
	mu      sync.Mutex
	rows    chan<- []format.Row
	closed  bool
	dropped int64 // rows
}

// NewSender returns a sender into a channel.
func NewSender(rows chan<- []format.Row) *Sender { return &Sender{rows: rows} }

// Send hands over rows of one class, or counts them as dropped.
func (s *Sender) Send(rows []format.Row) {
	if len(rows) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		select {
		case s.rows <- rows:
			return
		default:
		}
	}
	s.dropped += int64(len(rows))
}

// Close ends the sending, so that the channel can be closed, and returns how many rows
// were dropped.
func (s *Sender) Close() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.dropped
}
