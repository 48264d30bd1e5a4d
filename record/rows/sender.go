//go:build linux

package rows

import (
	"sync"

	"github.com/gpurec/gpurec/format"
)

// Sender sends rows to the goroutine that writes them. It never blocks: it drops rows if the
// channel is full, so that samplers keep their interval. It is safe for concurrent use, also after
// Close.
type Sender struct {
	mu      sync.Mutex
	rows    chan<- []format.Row
	closed  bool
	dropped int64 // number of dropped rows
}

// NewSender returns a Sender that sends to rows. The caller closes the channel after Close.
func NewSender(rows chan<- []format.Row) *Sender { return &Sender{rows: rows} }

// Send sends rows of one class, or drops and counts them.
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

// Close stops the sending, so that the channel can be closed. It returns the number of dropped
// rows.
func (s *Sender) Close() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.dropped
}
