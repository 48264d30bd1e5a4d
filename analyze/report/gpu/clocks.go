package gpu

import (
	"github.com/gpurec/gpurec/analyze/units"
)

// ClockReasons are the bits of clock_event_reasons, as NVML defines them. Slows is true for reasons
// that keep the GPU from running as fast as it could.
var ClockReasons = []struct {
	Bit     int64
	Name    string
	Slows   bool
	counter string // metric of the driver's own count of the time, ns; "" if it has none
	meaning string
}{
	{1, "gpu idle", false, "", "nothing runs: clocks are low to save power"},
	{2, "applications clocks setting", false, "", "somebody set these clocks (nvidia-smi -ac)"},
	{4, "sw power cap", true, "throttled_power_nanoseconds", "the power limit is reached: usual under full load; a " +
		"higher limit (nvidia-smi -pl), if the board has one, gives higher clocks"},
	{
		8,
		"hw slowdown",
		true,
		"",
		"the board pulled the clocks down by half or more: too hot, or an external power brake",
	},
	{
		16,
		"sync boost",
		false,
		"throttled_sync_boost_nanoseconds",
		"it waits for the slowest GPU of its sync boost group",
	},
	{32, "sw thermal slowdown", true, "throttled_thermal_nanoseconds", "GPU or memory is above its working " +
		"temperature: check the cooling"},
	{64, "hw thermal slowdown", true, "throttled_hardware_thermal_nanoseconds", "the GPU is too hot and the board " +
		"pulled the clocks down: check the cooling now"},
	{128, "hw power brake slowdown", true, "throttled_power_brake_nanoseconds", "the power supply asked for less: " +
		"check it and the power budget of the rack"},
	{256, "display clock setting", false, "", "the clocks are those of the display"},
}

// SlowBits are the bits of the reasons that slow the GPU down. PowerCapBit is the one of them that
// is usual under full load.
const (
	SlowBits    = 4 | 8 | 32 | 64 | 128
	PowerCapBit = 4
)

// HasBit returns a function that reports whether a sample of clock_event_reasons has one of bits.
func HasBit(bits int64) func(float64) bool {
	return func(v float64) bool { return units.RoundInt(v)&bits != 0 }
}

// IsThrottled reports whether a sample of clock_event_reasons has one of SlowBits.
var IsThrottled = HasBit(SlowBits)
