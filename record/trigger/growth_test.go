package trigger

import (
	"math"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/liveset"
)

const mib = 1 << 20

// growsAt returns the seconds at which a Leak fires for a process whose memory in MiB is a function of the second.
func growsAt(seconds int, memory func(second float64) float64) (at []int) {
	g := new(growth)
	for i := range seconds {
		if _, ok := g.add(int64(i+1)*second, int64(memory(float64(i))*mib), &DefaultThresholds); ok {
			at = append(at, i)
		}
	}
	return at
}

// TestGrowth has the memory of programs over hours, and how often Leak fires.
func TestGrowth(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		memory func(s float64) float64 // MiB
		fires  bool
	}{
		"steady leak":                  {func(s float64) float64 { return 1000 + s }, true},
		"leak in bursts of a minute":   {func(s float64) float64 { return 1000 + 60*math.Floor(s/60) }, true},
		"leak under a sawtooth":        {func(s float64) float64 { return 1000 + s + math.Mod(s, 20)*100 }, true},
		"leak after an hour":           {func(s float64) float64 { return 1000 + math.Max(0, s-3600) }, true},
		"constant":                     {func(float64) float64 { return 10_000 }, false},
		"slow leak":                    {func(s float64) float64 { return 1000 + s/4 }, false},
		"small next to a large model":  {func(s float64) float64 { return 70_000 + s }, false},
		"warm-up of a minute":          {func(s float64) float64 { return math.Min(20_000, s*333) }, false},
		"late weights":                 {func(s float64) float64 { return 1000 + 8000*math.Round(s/7200) }, false},
		"a cache fills in 7 minutes":   {func(s float64) float64 { return 1000 + math.Min(8400, s*20) }, false},
		"a cache fills ever slower":    {func(s float64) float64 { return 1000 + 8000*(1-math.Exp(-s/120)) }, false},
		"sawtooth of 5 minutes":        {func(s float64) float64 { return 1000 + math.Mod(s, 300)*20 }, false},
		"sawtooth of 9 minutes":        {func(s float64) float64 { return 1000 + math.Mod(s, 540)*20 }, false},
		"shrinks":                      {func(s float64) float64 { return 20_000 - s }, false},
		"temporaries of a moment":      {func(s float64) float64 { return 1000 + 4000*math.Mod(s, 2) }, false},
		"random":                       {func(s float64) float64 { return 5000 + 4000*math.Sin(s*s) }, false},
		"a second model every 2 hours": {func(s float64) float64 { return 1000 + 500*math.Floor(s/7200) }, false},
	} {
		at := growsAt(4*3600, c.memory)
		if (len(at) > 0) != c.fires {
			t.Errorf("%s: fires at %d", name, at)
		}
		if len(at) > 24 {
			t.Errorf("%s: fires %d times in 4 hours", name, len(at))
		}
	}
	slow := growsAt(4*3600, func(s float64) float64 { return 1000 + math.Mod(s, 1800)*2 })
	if len(slow) == 0 || slow[len(slow)-1] > 1800 {
		t.Errorf("a sawtooth of half an hour fires at %d, want in its first rise only", slow)
	}
}

func TestGrowthForgetsATimeWithoutSamples(t *testing.T) {
	testclass.Unit(t)
	limits := DefaultThresholds
	g := new(growth)
	for i := range int64(60) {
		if _, ok := g.add(i*20*limits.Leak.Nanoseconds(), i<<30, &limits); ok {
			t.Fatalf("fires at sample %d", i)
		}
	}
}

// TestLeakOfDriverAndOfPyTorch leaks in both, and in one of two processes.
func TestLeakOfDriverAndOfPyTorch(t *testing.T) {
	testclass.Unit(t)
	var events []Event
	limits := DefaultThresholds
	limits.Leak = 20 * time.Second
	r := NewRows([]Kind{Leak}, limits, nil, func(e Event) { events = append(events, e) })
	live := liveset.New(1 << 16)
	r.FollowMemory(live)
	for i := range int64(40) {
		at := i * second
		block := alloc(at, 7, 32*mib, 0)
		block.Ptr, block.MemoryKind = (i+1)<<30, format.MemoryDevice
		live.AddMemory([]format.Row{block}, 0)
		torch := format.Row{
			Kind:           format.KindAllocator,
			Name:           format.AllocatorAlloc,
			Pid:            9,
			AllocatedBytes: i * 32 * mib,
		}
		peak := torch
		peak.Pid, peak.AllocatedBytes = 8, 8<<30
		floor := peak
		floor.AllocatedBytes = 1 << 30
		r.WatchRows(format.ClassAllocator, []format.Row{torch, peak, floor, peak})
		r.WatchTime(at)
	}
	pids := make(map[int32]int)
	for _, e := range events {
		pids[e.Pid]++
		t.Log(e.Evidence)
	}
	if pids[7] != 1 || pids[9] != 1 || len(pids) != 2 {
		t.Errorf("events by process: %v", pids)
	}
}
