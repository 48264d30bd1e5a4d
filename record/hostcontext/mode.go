//go:build linux

package hostcontext

import (
	"errors"
	"time"
)

// Mode says how closely threads are watched. ModeOff is the zero value.
type Mode string

// Modes of --host.
const (
	ModeOff  Mode = ""
	ModeAuto Mode = "auto" // 49 snapshots and samples a second, within 1 % of a processor
	ModeFull Mode = "full" // 199 snapshots and samples a second
)

// DefaultMode is the mode of a recording without --host.
const DefaultMode = ModeOff

// ModeNames are the names of all modes.
var ModeNames = []string{"off", "auto", "full"}

// ParseMode returns the mode with a name.
func ParseMode(name string) (Mode, error) {
	switch name {
	case "off":
		return ModeOff, nil
	case "auto", "full":
		return Mode(name), nil
	}
	return ModeOff, errors.New("must be auto, full or off")
}

// String returns the name of the mode.
func (m Mode) String() string {
	if m == ModeOff {
		return "off"
	}
	return string(m)
}

// hz returns the rate of snapshots and samples. It differs from the rates of programs, which are often round.
func (m Mode) hz() float64 {
	if m == ModeFull {
		return 199
	}
	return 49
}

// minWait is the shortest wait that has a row, unless there are too many.
const minWait = time.Millisecond
