//go:build linux

package overhead

import "time"

// GovernorPolicy sets the intervals and thresholds of a Governor.
type GovernorPolicy struct {
	// Tick is the longest time between two measurements, and WindowTick in windows.
	Tick, WindowTick time.Duration
	// Aim is the share of the limit that the Governor aims at, from 0 to 1. MostInSecond is the share that no second
	// may exceed.
	Aim, MostInSecond float64
	// Debt is the probe time above the aim after which calls are sampled.
	Debt time.Duration
	// Window is the usual length of a window. A window and the pause after it last between MinPeriod and MaxPeriod. A
	// window is shorter if it would be too expensive, but not shorter than MinWindow.
	Window, MinWindow, MinPeriod, MaxPeriod time.Duration
	// SampledShare is the share of the limit that sampled calls get even if other calls exceed the limit.
	SampledShare float64
	// KeptLaunches and KeptEvents are the shares of the available overhead up to which launches and events of the
	// allocator stay complete while the other kind is sampled.
	KeptLaunches, KeptEvents float64
	// StackShare is the share of the limit that unwinding gets at any rate, or less, down to LeastStackShare, if calls
	// that are never sampled need it. MaxUnwinding is the largest share of its time that a thread may spend on
	// unwinding.
	StackShare, LeastStackShare, MaxUnwinding float64
	// RelaxWindows is the number of consecutive windows after which a kind is no longer sampled, if it would fit
	// RelaxBelow, a share of the aim.
	RelaxWindows int
	RelaxBelow   float64
	// A pause ends when no call was made for QuietTime. If the sampled calls had not stopped, the
	// pauses after the next QuietErrors windows do not end early.
	QuietTime   time.Duration
	QuietErrors int
}

// DefaultGovernorPolicy measures 10 to 40 times a second. While sampling, it records a window of at most 250 ms in
// every 1.1 to 12 s.
var DefaultGovernorPolicy = GovernorPolicy{
	Tick:            100 * time.Millisecond,
	WindowTick:      25 * time.Millisecond,
	Aim:             0.5,
	MostInSecond:    0.8,
	Debt:            8 * time.Millisecond,
	Window:          250 * time.Millisecond,
	MinWindow:       10 * time.Millisecond,
	MinPeriod:       1100 * time.Millisecond,
	MaxPeriod:       12 * time.Second,
	SampledShare:    0.1,
	KeptLaunches:    0.25,
	KeptEvents:      0.5,
	StackShare:      0.2,
	LeastStackShare: 0.02,
	MaxUnwinding:    0.2,
	RelaxWindows:    3,
	RelaxBelow:      0.7,
	QuietTime:       200 * time.Millisecond,
	QuietErrors:     10,
}
