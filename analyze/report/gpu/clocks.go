package gpu

import (
	"github.com/gpurec/gpurec/analyze/units"
)

// ClockReasons are the bits of NVML's clock_event_reasons. Slows is true for reasons that keep the
// GPU below its highest possible clocks.
var ClockReasons = []struct {
	Bit     int64
	Name    string
	Slows   bool
	counter string // metric with the driver's counter of this time, ns; "" if there is none
	meaning string // meaning, and advice
}{
	{1, "gpu idle", false, "", "no GPU kernel is running: clocks are low to save power"},
	{2, "applications clocks setting", false, "", "the clocks were set with nvidia-smi -ac"},
	{4, "sw power cap", true, "throttled_power_nanoseconds", "the power limit is reached, which is usual under full " +
		"load; a higher limit (nvidia-smi -pl), if the board allows one, gives higher clocks"},
	{
		8,
		"hw slowdown",
		true,
		"",
		"the board halved the clocks or more: it is too hot, or there is an external power brake",
	},
	{
		16,
		"sync boost",
		false,
		"throttled_sync_boost_nanoseconds",
		"the GPU matches the slowest GPU of its sync boost group",
	},
	{32, "sw thermal slowdown", true, "throttled_thermal_nanoseconds", "the GPU or its memory is above its operating " +
		"temperature: check the cooling"},
	{64, "hw thermal slowdown", true, "throttled_hardware_thermal_nanoseconds", "the GPU is too hot and the board " +
		"reduced the clocks: check the cooling now"},
	{128, "hw power brake slowdown", true, "throttled_power_brake_nanoseconds", "the power supply requested lower " +
		"power: check it and the power budget of the rack"},
	{256, "display clock setting", false, "", "the display setting determines the clocks of the GPU"},
}

// ClockSlowdownBits are the bits of the reasons that slow the GPU down. ClockPowerCapBit is one of
// them; it is usual under full load.
const (
	ClockSlowdownBits = 4 | 8 | 32 | 64 | 128
	ClockPowerCapBit  = 4
)

// HasClockReason returns a function that reports whether a sample of clock_event_reasons has any of
// bits.
func HasClockReason(bits int64) func(float64) bool {
	return func(v float64) bool { return units.RoundInt(v)&bits != 0 }
}

// IsThrottled reports whether a sample of clock_event_reasons has any of ClockSlowdownBits.
var IsThrottled = HasClockReason(ClockSlowdownBits)
