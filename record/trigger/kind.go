package trigger

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is the kind of an event.
type Kind string

// Kinds of events.
const (
	OOM      Kind = "oom"      // memory could not be allocated, and the program did not retry with success
	Xid      Kind = "xid"      // the driver reported a severe error of a GPU
	Sticky   Kind = "sticky"   // an error after which a context can do nothing
	Hang     Kind = "hang"     // a call does not return
	Exit     Kind = "exit"     // a signal ended a process
	Throttle Kind = "throttle" // the hardware reduces the clocks of a GPU
	Idle     Kind = "idle"     // a process holds memory of a GPU that does nothing
	Leak     Kind = "leak"     // the memory of a process grows steadily
	Slow     Kind = "slow"     // the steps of a process have become slower
	Loss     Kind = "loss"     // the recorder loses calls
	Manual   Kind = "manual"   // a user or a program asked for a capture
)

// Kinds are all kinds.
var Kinds = []Kind{OOM, Xid, Sticky, Hang, Exit, Throttle, Idle, Leak, Slow, Loss, Manual}

// ParseKinds parses names of kinds. "all" means all of them.
func ParseKinds(names []string) ([]Kind, error) {
	var kinds []Kind
	for _, name := range names {
		switch {
		case name == "all":
			kinds = append(kinds, Kinds...)
		case slices.Contains(Kinds, Kind(name)):
			kinds = append(kinds, Kind(name))
		default:
			return nil, fmt.Errorf("%q is no trigger; triggers are %s", name, strings.Join(Names(), ", "))
		}
	}
	slices.Sort(kinds)
	return slices.Compact(kinds), nil
}

// Names returns the names of all kinds.
func Names() (names []string) {
	for _, k := range Kinds {
		names = append(names, string(k))
	}
	return names
}

// Window bounds a capture of a kind, and how often there is one.
type Window struct {
	// Before and After are the times before and after the event.
	Before, After time.Duration
	// Every is the shortest time between two captures of the same kind and subject. 0: any.
	Every time.Duration
}

// DefaultWindows are the windows of all kinds.
var DefaultWindows = map[Kind]Window{
	OOM:      {10 * time.Minute, 10 * time.Second, 10 * time.Minute},
	Xid:      {2 * time.Minute, 30 * time.Second, 10 * time.Minute},
	Sticky:   {2 * time.Minute, 10 * time.Second, forever},
	Hang:     {time.Minute, 10 * time.Second, time.Hour},
	Exit:     {2 * time.Minute, 0, 10 * time.Minute},
	Throttle: {2 * time.Minute, 30 * time.Second, time.Hour},
	Idle:     {10 * time.Minute, 0, 6 * time.Hour},
	Leak:     {10 * time.Minute, 10 * time.Second, 6 * time.Hour},
	Slow:     {5 * time.Minute, time.Minute, time.Hour},
	Loss:     {0, 0, time.Hour},
	Manual:   {10 * time.Minute, 0, 0},
}

// forever is longer than an agent runs.
const forever = 10 * 365 * 24 * time.Hour

// Thresholds say when events fire.
type Thresholds struct {
	// Hang is how long a call may be open.
	Hang time.Duration
	// Retry is how long after a failed allocation one of the same size may succeed.
	Retry time.Duration
	// Throttle is how long the hardware may reduce clocks, and Idle how long a GPU with memory in use may do nothing.
	Throttle, Idle time.Duration
	// LossInterval is the time over which the share of lost calls is computed.
	LossInterval time.Duration
	// Leak is the time over which memory must grow, by LeakBytes and by LeakPct percent.
	Leak      time.Duration
	LeakBytes int64
	LeakPct   float64
	// Slow is how long steps must be slow: the median of the latest SlowRecent ones is above SlowFactor times
	// the median of SlowBefore ones before. Steps that are shorter than SlowSpan are averaged over that time.
	Slow       time.Duration
	SlowFactor float64
	SlowRecent int
	SlowBefore int
	SlowSpan   time.Duration
}

// DefaultThresholds are the thresholds of the command line.
var DefaultThresholds = Thresholds{
	Hang: 2 * time.Minute, Retry: time.Second, Throttle: time.Minute, Idle: 10 * time.Minute, LossInterval: time.Minute,
	Leak: 10 * time.Minute, LeakBytes: 256 << 20, LeakPct: 10,
	Slow: 10 * time.Second, SlowFactor: 1.5, SlowRecent: 20, SlowBefore: 200, SlowSpan: 50 * time.Millisecond,
}

// Event is something that happened.
type Event struct {
	Kind Kind
	AtNs int64 // Unix ns
	Pid  int32 // 0: no process
	// FromNs is the start of what the event is about, if that is before AtNs: the start of a call that hangs.
	FromNs int64
	// Subject distinguishes events of one kind for Window.Every: a process, a GPU and a code, a context.
	Subject  string
	Evidence string
	// Window replaces the window of the kind, if it is not nil.
	Window *Window
}
