//go:build linux

package simtest

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
)

// HostFault is a cause of delays of a program of examples/hostwaits.
type HostFault struct {
	Number   int    `json:"fault"`
	Kind     string `json:"kind"`
	File     string `json:"file"` // a path, or the name of a file of C
	Function string `json:"function"`
	Line     int    `json:"line"`
	// Owner is the name of the thread or process that causes the delays, and OwnerTid its number; 0: unknown.
	Owner    string `json:"owner"`
	OwnerTid int    `json:"owner_tid"`
	// Target is the path of the file, or "pipe".
	Target string `json:"target"`
}

// HostSpan is a step, or an interval in which the launching thread was held up. Times are
// CLOCK_MONOTONIC in ns.
type HostSpan struct {
	Fault  int    `json:"fault"` // of an interval: the number of its fault
	Kind   string `json:"kind"`  // of an interval: its cause
	Step   int    `json:"step"`
	FromNs int64  `json:"from_ns"`
	ToNs   int64  `json:"to_ns"`
	// QueuedNs is the part of an interval in which the thread waited in run queues, because of other programs.
	QueuedNs int64 `json:"queued_ns"`
}

// HostEnd is an interval in which a thread at the end of a chain did something at a line, while the launching thread
// waited for it, or for a thread that waited for it. Times are CLOCK_MONOTONIC in ns.
type HostEnd struct {
	Fault    int    `json:"fault"`
	Step     int    `json:"step"`
	Activity string `json:"activity"` // sleep, spin or file
	Pid      int    `json:"pid"`
	Tid      int    `json:"tid"`
	Thread   string `json:"thread"` // its name
	File     string `json:"file"`   // a path, or the name of a file of C
	Function string `json:"function"`
	Line     int    `json:"line"`
	// Links is the number of threads on the way from the launching thread, with this one.
	Links  int   `json:"links"`
	FromNs int64 `json:"from_ns"`
	ToNs   int64 `json:"to_ns"`
	// QueuedNs is the part of the interval in which the thread waited in run queues, because of other programs.
	QueuedNs int64 `json:"queued_ns"`
}

// HostTruth is the truth that a program of examples/hostwaits writes.
type HostTruth struct {
	Language string      `json:"language"` // c or python
	Seed     int64       `json:"seed"`
	Pid      int         `json:"pid"`
	Tid      int         `json:"tid"` // of the launching thread
	Faults   []HostFault `json:"-"`
	Holds    []HostSpan  `json:"-"` // in order of their ends
	Ends     []HostEnd   `json:"-"` // of chains, each after its hold
	Steps    []HostSpan  `json:"-"`
}

// ReadHostTruth reads the file of hostwaits --truth. The last line of a program that runs may be cut.
func ReadHostTruth(t testing.TB, path string) *HostTruth {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines, truth := json.NewDecoder(file), new(HostTruth)
	for {
		var text json.RawMessage
		if err := lines.Decode(&text); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return truth
		} else if err != nil {
			t.Fatal(err)
		}
		if err := truth.add(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// add reads one line.
func (h *HostTruth) add(text []byte) error {
	var event struct {
		Event string `json:"event"`
	}
	if err := json.Unmarshal(text, &event); err != nil {
		return err
	}
	switch event.Event {
	case "fault":
		h.Faults = append(h.Faults, HostFault{})
		return json.Unmarshal(text, &h.Faults[len(h.Faults)-1])
	case "end":
		h.Ends = append(h.Ends, HostEnd{})
		return json.Unmarshal(text, &h.Ends[len(h.Ends)-1])
	case "step":
		h.Steps = append(h.Steps, HostSpan{})
		return json.Unmarshal(text, &h.Steps[len(h.Steps)-1])
	case "hold":
		h.Holds = append(h.Holds, HostSpan{})
		return json.Unmarshal(text, &h.Holds[len(h.Holds)-1])
	}
	return json.Unmarshal(text, h)
}
