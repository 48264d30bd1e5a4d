//go:build linux

package rowwriter

import (
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/communicator"
)

// TestNewProcessKeepsItsCommunicators lets a census of a new process come before the row that says
// that it replaced another one.
func TestNewProcessKeepsItsCommunicators(t *testing.T) {
	testclass.Unit(t)
	s, _ := newProgressWriter(t)
	s.communicators = make(communicators)
	add := func(pid int, atNs int64, address uint64) {
		f := communicator.Found{Address: address, Layout: new(communicator.Layout)}
		f.Hash, f.Size = address, 2
		s.addCensus(&ProcessCensus{Pid: pid, AtNs: atNs, Communicators: []communicator.Found{f}})
	}
	add(7, 100, 1)
	add(8, 100, 2)
	add(7, 200, 3)
	add(7, 300, 4)
	for _, c := range s.communicators {
		c.layout = nil // there is no process to read
	}
	s.forgetCommunicators(7, 200)
	for _, key := range []communicatorKey{{8, 2}, {7, 3}, {7, 4}} {
		if s.communicators[key] == nil {
			t.Errorf("the communicator %+v is not known any more", key)
		}
	}
	if len(s.communicators) != 3 {
		t.Errorf("%d communicators are known, want 3", len(s.communicators))
	}
}
