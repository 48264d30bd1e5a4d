//go:build linux

package rows

import (
	"sync"

	"github.com/gpurec/gpurec/format"
)

// Sender hands rows to the goroutine that writes them, and never waits: it drops rows when that is
// behind. Samplers keep their pace this way. Safe for concurrent use, also after Close.
type Sender struct {
	mu      sync.Mutex
	rows    chan<- []format.Row
	closed  bool
	dropped int64 // rows
}

// NewSender returns a Sender into a channel, which the caller closes after Close.
func NewSender(rows chan<- []format.Row) *Sender { return &Sender{rows: rows} }

// Send hands over rows of one class, or drops and counts them.
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

// Close ends the sending, so that the channel can be closed. It returns the number of dropped
// rows.
func (s *Sender) Close() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.dropped
}
