package agent

import (
	"time"

	"github.com/gpurec/gpurec/record/trigger"
)

// Config is the configuration of an agent. Start from DefaultConfig.
type Config struct {
	// State is the folder of the ring and of the captures. Both must be in one file system.
	State string
	// Socket is the path of the Unix socket. "": agent.sock in State.
	Socket   string
	Ring     Ring
	Captures Captures
	Limits   Limits
	// Triggers are the triggers that fire. Kinds that are missing do not.
	Triggers   map[trigger.Kind]trigger.Window
	Thresholds trigger.Thresholds
}

// Ring bounds the ring.
type Ring struct {
	Time  time.Duration
	Bytes int64
}

// Captures bound the sealed captures.
type Captures struct {
	Bytes int64
	// FreePct is the share of the file system that stays free.
	FreePct float64
	// PerHour is the largest number of new captures in an hour.
	PerHour int
	// Keep is how long a capture is kept; 0: as long as there is space.
	Keep time.Duration
}

// Limits bound the agent itself.
type Limits struct {
	MemoryBytes int64
	CPUs        int
}

// DefaultConfig returns the defaults of a fleet.
func DefaultConfig() Config {
	c := Config{
		State:      "/var/lib/gpurec",
		Ring:       Ring{10 * time.Minute, 4 << 30},
		Captures:   Captures{16 << 30, 10, trigger.DefaultPerHour, 7 * 24 * time.Hour},
		Limits:     Limits{1 << 30, 2},
		Triggers:   make(map[trigger.Kind]trigger.Window),
		Thresholds: trigger.DefaultThresholds,
	}
	for _, k := range trigger.Kinds {
		c.Triggers[k] = trigger.DefaultWindows[k]
	}
	return c
}
