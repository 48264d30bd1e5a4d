package stats_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestRise(t *testing.T) {
	testclass.Unit(t)
	series := func(at func(i int64) int64) (list []int64) {
		for i := range int64(stats.CheckpointCount) {
			list = append(list, at(i))
		}
		return list
	}
	for name, c := range map[string]struct {
		floors          []int64
		steady, slowing bool
	}{
		"level":           {series(func(int64) int64 { return 7 }), false, false},
		"line":            {series(func(i int64) int64 { return 1000 * i }), true, false},
		"line after half": {series(func(i int64) int64 { return 1000 * max(0, i-9) }), true, false},
		"full":            {series(func(i int64) int64 { return 1000 * min(i, 9) }), false, false},
		"slower": {series(func(i int64) int64 {
			return int64(1e6 * math.Log(float64(1+i)))
		}), false, true},
		"none": {nil, false, false},
	} {
		if r := stats.NewRise(c.floors, 1); r.Steady != c.steady || r.Slowing != c.slowing {
			t.Errorf("%s: steady %t, slowing %t", name, r.Steady, r.Slowing)
		}
	}
}

func TestNoiseAndChance(t *testing.T) {
	testclass.Unit(t)
	second := float64(time.Second)
	if !stats.ExceedsNoise(1/second, 30*second, 100, 60) || stats.ExceedsNoise(1/second, 30*second, 100, 61) {
		t.Error("a rise of half a minute is not extrapolated to a minute")
	}
	if !stats.ExceedsNoise(1/second, 120*second, 12_000, 1) || stats.ExceedsNoise(1/second, 120*second, 12_100, 1) {
		t.Error("the least rise is not 1 % of the level")
	}
	if got := stats.RandomRise(50, 1); got != 20 {
		t.Errorf("chance explains %g of 50 blocks, want 20", got)
	}
	if stats.RandomRise(50, 0) != 0 || stats.RandomRise(9, 5) != 0 {
		t.Error("chance explains a rise without frees, or of few blocks")
	}
}

func TestCheckpoints(t *testing.T) {
	testclass.Unit(t)
	c := stats.NewCheckpoints(0, 2000)
	if c.WarmNs != 200 || c.StepNs() != 90 {
		t.Errorf("%+v, step %g", c, c.StepNs())
	}
	for at, want := range map[int64]int{0: 0, 200: 0, 201: 1, 290: 1, 291: 2, 2000: 20, 3000: 20} {
		if got := c.CountBefore(at); got != want {
			t.Errorf("%d checkpoints before %d, want %d", got, at, want)
		}
	}
}

func TestSlopeMargin(t *testing.T) {
	testclass.Unit(t)
	if m := stats.SlopeMargin([]int64{0, 10, 20, 30, 40, 50, 60, 70}); m != 0 {
		t.Errorf("a line: %v", m)
	}
	r := rand.New(rand.NewPCG(1, 1))
	within := 0
	for range 1000 {
		series := make([]int64, stats.CheckpointCount)
		for i := range series {
			series[i] = int64(1000*float64(i) + 3000*r.NormFloat64())
		}
		if math.Abs(stats.NewTrend(series).Slope-1000) <= stats.SlopeMargin(series) {
			within++
		}
	}
	if within < 930 || within > 990 {
		t.Errorf("%d of 1000 slopes are within the margin of 95 %%", within)
	}
	if m := stats.SlopeMargin([]int64{1, 2, 3}); !math.IsInf(m, 1) {
		t.Errorf("three values: %v", m)
	}
}
