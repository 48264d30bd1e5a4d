//go:build linux

package rows

import (
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestSenderNeverWaits(t *testing.T) {
	testclass.Unit(t)
	full := make(chan []format.Row, 1)
	s := NewSender(full)
	for range 3 {
		s.Send(make([]format.Row, 5))
	}
	if dropped := s.Close(); dropped != 10 {
		t.Errorf("dropped %d rows of 10", dropped)
	}
	close(full)
	s.Send(make([]format.Row, 5)) // a sampling thread may send after the channel is closed
}
