//go:build linux

package record

import (
	"testing"

	"github.com/gpurec/gpurec/format"
)

func TestSenderNeverWaits(t *testing.T) {
	full := make(chan []format.Row, 1)
	s := newRowSender(full)
	for range 3 {
		s.send(make([]format.Row, 5))
	}
	if dropped := s.close(); dropped != 10 {
		t.Errorf("dropped %d rows of 10", dropped)
	}
	close(full)
	s.send(make([]format.Row, 5)) // of a thread that came back too late
}
