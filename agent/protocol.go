package agent

import (
	"time"

	"github.com/gpurec/gpurec/format"
)

// Paths of the agent's socket, which speaks HTTP.
const (
	pathStatus  = "/v1/status"
	pathTrigger = "/v1/trigger"
	pathMetrics = "/v1/metrics"
)

// Status is the state of an agent.
type Status struct {
	Since     time.Time `json:"since"` // begin of the ring
	Output    string    `json:"ring"`  // folder of the ring
	Processes []Process `json:"processes"`
	Calls     int64     `json:"calls"` // recorded since the start
	Lost      int64     `json:"lost"`
	RingBytes int64     `json:"ring_bytes"`
	// EarlierRings are the rings of earlier agents that a trigger can still reach.
	EarlierRings int `json:"earlier_rings"`
	// Triggers counts events by outcome.
	Triggers map[string]int64 `json:"triggers"`
	// Recent are the latest triggers, the newest last.
	Recent []format.Trigger `json:"recent"`
	// Captures are the sealed ones. Sealing counts those that are not yet. SealFailed counts those that could not be
	// sealed.
	Captures     int   `json:"captures"`
	CaptureBytes int64 `json:"capture_bytes"`
	Sealing      int   `json:"sealing"`
	SealFailed   int   `json:"seal_failed"`
	// MemoryBytes is the agent's resident memory, CPUNs its CPU time.
	MemoryBytes int64 `json:"memory_bytes"`
	CPUNs       int64 `json:"cpu_ns"`
}

// Process is a recorded process.
type Process struct {
	Pid  int    `json:"pid"`
	Name string `json:"name"`
}

// Request asks for a capture.
type Request struct {
	// At is the time of the event; zero: now. It may be in the past, if the ring still has that time.
	At     time.Time     `json:"at,omitzero"`
	Before time.Duration `json:"before_ns,omitempty"`
	After  time.Duration `json:"after_ns,omitempty"`
	Job    string        `json:"job,omitempty"`
	Reason string        `json:"reason,omitempty"`
}
