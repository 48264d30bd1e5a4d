package trigger

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const ms = second / 1000

// TestPace has the durations of steps in ms, and whether Slow fires.
func TestPace(t *testing.T) {
	testclass.Unit(t)
	random := rand.New(rand.NewPCG(1, 2))
	noise := func(d float64) float64 { return d * (1 + 0.1*random.NormFloat64()) }
	for name, c := range map[string]struct {
		steps int
		step  func(i int) float64
		want  int
	}{
		"constant":                    {1000, func(int) float64 { return noise(100) }, 0},
		"slower by 80 %":              {1000, func(i int) float64 { return noise(100 + 80*b(i > 500)) }, 1},
		"slower by 30 %":              {1000, func(i int) float64 { return noise(100 + 30*b(i > 500)) }, 0},
		"short steps become slower":   {20_000, func(i int) float64 { return noise(2 + 2*b(i > 10_000)) }, 1},
		"slow for 3 s":                {1000, func(i int) float64 { return noise(100 + 200*b(i > 500 && i < 510)) }, 0},
		"slow for 5 s":                {1000, func(i int) float64 { return noise(100 + 100*b(i > 500 && i < 525)) }, 0},
		"twice slow":                  {2000, func(i int) float64 { return noise(100 + 100*b(i/500%2 == 1)) }, 2},
		"slow only":                   {1000, func(i int) float64 { return noise(500) }, 0},
		"a slow first part":           {1000, func(i int) float64 { return noise(100 + 400*b(i < 150)) }, 0},
		"faster":                      {1000, func(i int) float64 { return noise(100 - 60*b(i > 500)) }, 0},
		"one pause of a minute":       {1000, func(i int) float64 { return noise(100 + 60_000*b(i == 600)) }, 0},
		"a pause every 10 steps":      {2000, func(i int) float64 { return noise(100 + 5_000*b(i%10 == 9)) }, 0},
		"long and short steps":        {2000, func(i int) float64 { return noise(60 + 200*b(i%2 == 0)) }, 0},
		"epochs of two speeds":        {4000, func(i int) float64 { return noise(60 + 60*b(i/100%2 == 0)) }, 0},
		"random steps":                {4000, func(i int) float64 { return 20 + 500*random.ExpFloat64() }, 0},
		"slower before the 220 steps": {400, func(i int) float64 { return noise(100 + 100*b(i > 150)) }, 0},
	} {
		var events []Event
		r := NewRows([]Kind{Slow}, DefaultThresholds, nil, func(e Event) { events = append(events, e) })
		at := float64(second)
		for i := range c.steps {
			at += c.step(i) * float64(ms)
			r.WatchRows(format.ClassCall, []format.Row{
				{Kind: format.KindSync, Name: "cuStreamSynchronize", Pid: 7, Tid: 8, StackID: 3, StartNs: int64(at)},
			})
		}
		r.WatchTime(int64(at) + 3600*second) // the program ends
		if len(events) != c.want {
			t.Errorf("%s: %d events, want %d: %+v", name, len(events), c.want, events)
		}
	}
}

func b(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// TestPaceOfLaunches has a program without waits, one with waits at a steady pace, and sampled launches.
func TestPaceOfLaunches(t *testing.T) {
	testclass.Unit(t)
	launches := func(change func(r *Rows, second int)) (events []Event) {
		r := NewRows([]Kind{Slow}, DefaultThresholds, nil, func(e Event) { events = append(events, e) })
		for i := range 500 {
			n := int64(20)
			if i > 300 {
				n = 10
			}
			for j := range n {
				r.WatchRows(format.ClassCall, []format.Row{
					{Kind: format.KindLaunch, Name: "cuLaunchKernel", Pid: 7, StartNs: int64(i)*second + j*second/n},
				})
			}
			change(r, i)
		}
		return events
	}
	e := launches(func(*Rows, int) {})
	if len(e) != 1 || !strings.Contains(e[0].Evidence, "launches of process 7") {
		t.Errorf("half as many launches: %+v", e)
	}
	if e := launches(func(r *Rows, i int) {
		r.WatchRows(format.ClassCall, []format.Row{
			{Kind: format.KindSync, Name: "cuCtxSynchronize", Pid: 7, StartNs: int64(i) * second},
		})
	}); len(e) > 0 {
		t.Errorf("steps keep their pace: %+v", e)
	}
	if e := launches(func(r *Rows, i int) {
		if i > 300 { // launches are left out in a part of each second
			r.WatchRows(format.ClassFact, []format.Row{{Kind: format.KindNote, Name: format.NoteSampling}})
		}
	}); len(e) > 0 {
		t.Errorf("sampled launches: %+v", e)
	}
}

// TestPaceWithRationedStacks loses the stack of every second call from a time on.
func TestPaceWithRationedStacks(t *testing.T) {
	testclass.Unit(t)
	r := NewRows([]Kind{Slow}, DefaultThresholds, nil, func(e Event) { t.Errorf("%+v", e) })
	for i := range 1000 {
		row := format.Row{
			Kind:    format.KindSync,
			Name:    "cuCtxSynchronize",
			Pid:     7,
			StackID: 3,
			StartNs: int64(i+1) * 100 * ms,
		}
		if i > 500 && i%2 == 0 {
			row.StackID, row.StackStatus = 0, format.StackRationed
		}
		r.WatchRows(format.ClassCall, []format.Row{row})
	}
}

// TestPaceIsBounded makes many processes and call sites.
func TestPaceIsBounded(t *testing.T) {
	testclass.Unit(t)
	r := NewRows([]Kind{Slow}, DefaultThresholds, nil, func(e Event) { t.Errorf("%+v", e) })
	for i := range int32(10_000) {
		r.WatchRows(format.ClassCall, []format.Row{
			{Kind: format.KindSync, Name: fmt.Sprint(i % 5), Pid: 7, StackID: i, StartNs: int64(i+1) * ms},
			{Kind: format.KindSync, Name: "cuCtxSynchronize", Pid: i, StartNs: int64(i+1) * ms},
		})
	}
	if n, sites := len(r.slow.processes), len(r.slow.processes[7].sites); n > maxEntries || sites > maxSites {
		t.Errorf("%d processes, %d call sites", n, sites)
	}
	r.WatchRows(format.ClassFact, []format.Row{{Kind: format.KindProcess, Pid: 7, Message: "{}"}})
	if r.slow.processes[7] != nil {
		t.Error("a process that called exec is not forgotten")
	}
}
