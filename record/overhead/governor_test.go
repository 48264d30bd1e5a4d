//go:build linux

package overhead

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// load is a program with constant overhead, in percent: launches and other calls.
type load struct{ launches, others float64 }

// measure returns the measurement of a tick.
func (l load) measure(recordsLaunches bool) Measurement {
	launches := 0.0
	if recordsLaunches {
		launches = l.launches
	}
	return Measurement{
		OverheadPct: launches + l.others, LaunchPct: launches, OthersPct: l.others,
		IsQuiet: launches+l.others == 0,
	}
}

// observe runs a governor for some ticks of a program. It returns one letter for each tick: R if
// launches were recorded, "-" if not, and "!" after a tick in which the governor gave up.
func observe(g *Governor, ticks int, l load) string {
	var b strings.Builder
	for range ticks {
		letter := byte('R')
		if !g.RecordsLaunches() {
			letter = '-'
		}
		b.WriteByte(letter)
		if g.Decide(l.measure(g.RecordsLaunches())) {
			b.WriteByte('!')
		}
	}
	return b.String()
}

func TestGovernorDecisions(t *testing.T) {
	testclass.Unit(t)
	r, p := func(n int) string { return strings.Repeat("R", n) }, func(n int) string { return strings.Repeat("-", n) }
	for name, c := range map[string]struct {
		phases []load
		ticks  int
		want   string
	}{
		"below the limit":      {[]load{{launches: 3}}, 30, r(30)},
		"a moment above it":    {[]load{{launches: 3}, {launches: 8}, {launches: 3}}, 2, r(6)},
		"far above it":         {[]load{{launches: 30, others: 0.1}}, 30, r(1) + p(23) + r(2) + p(4)},
		"a little above it":    {[]load{{launches: 4.4, others: 0.1}}, 46, r(20) + p(7) + r(13) + p(6)},
		"in windows":           {[]load{{launches: 12, others: 0.1}}, 42, r(2) + p(15) + r(5) + p(15) + r(5)},
		"it only launches":     {[]load{{launches: 12}}, 44, r(2) + p(2) + r(5) + p(15) + r(5) + p(15)},
		"others need too much": {[]load{{launches: 20, others: 12}}, 40, r(1) + p(29) + "!" + p(10)},
		"launches cost little": {[]load{{launches: 0.1, others: 12}}, 40, r(30) + "!" + r(10)},
		"back when it falls": {
			[]load{{launches: 12, others: 0.1}, {launches: 1, others: 0.1}},
			30,
			r(2) + p(15) + r(5) + p(8) + p(7) + r(5) + p(1) + r(17),
		},
	} {
		g := NewGovernor(DefaultGovernorPolicy, 5)
		got := ""
		for _, l := range c.phases {
			got += observe(g, c.ticks, l)
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

// TestPauseEndsWhenNothingIsCalled checks that a pause ends when the process makes no calls. The
// window lasts until it makes calls again. If the launches had not stopped, the next pauses last their
// time.
func TestPauseEndsWhenNothingIsCalled(t *testing.T) {
	testclass.Unit(t)
	g := NewGovernor(DefaultGovernorPolicy, 5)
	observe(g, 20, load{launches: 30, others: 1})
	if g.RecordsLaunches() {
		t.Fatal("launches are not sampled")
	}
	observe(g, 2, load{})
	if !g.RecordsLaunches() {
		t.Error("the pause continues although nothing is called")
	}
	if got := observe(g, 200, load{}); strings.Contains(got, "-") {
		t.Errorf("the window ended although nothing is called: %s", got)
	}
	g = NewGovernor(DefaultGovernorPolicy, 5)
	launchesOnly := load{launches: 30}
	if got := observe(g, 12, launchesOnly); got != "R--RRR------" {
		t.Errorf("a program that only launches: %s", got)
	}
}

// TestGovernorKeepsTheLimit checks that the average overhead of random programs is the aim, or below
// the limit.
func TestGovernorKeepsTheLimit(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		limit := 1 + 9*random.Float64()
		l := load{launches: 60 * random.Float64(), others: limit * 0.6 * random.Float64()}
		g := NewGovernor(DefaultGovernorPolicy, limit)
		observe(g, 200, l)
		sum, n := 0.0, 2400
		for range n {
			m := l.measure(g.RecordsLaunches())
			if random.Float64() < 0.02 {
				m.LaunchPct *= 2 // a noisy tick
			}
			sum += l.measure(g.RecordsLaunches()).OverheadPct
			g.Decide(m)
		}
		mean := sum / float64(n)
		least := l.others + DefaultGovernorPolicy.LaunchShare*limit
		if mean > max(limit, 1.3*least) {
			t.Errorf(
				"seed %d: limit %.1f, launches %.1f, others %.1f: mean %.1f %%",
				seed,
				limit,
				l.launches,
				l.others,
				mean,
			)
		}
		if l.launches+l.others > 1.1*limit && mean < 0.4*limit &&
			l.others < 0.4*limit {
			t.Errorf(
				"seed %d: limit %.1f is not used: launches %.1f, others %.1f, mean %.1f %%",
				seed,
				limit,
				l.launches,
				l.others,
				mean,
			)
		}
	}
}

func TestUnwindShare(t *testing.T) {
	testclass.Unit(t)
	g := NewGovernor(DefaultGovernorPolicy, 5)
	share := func() string { return fmt.Sprintf("%.3f", g.UnwindShare()) }
	if share() != "0.010" {
		t.Errorf("before the first measurement: %s", share())
	}
	observe(g, 1, load{others: 1})
	if share() != "0.030" {
		t.Errorf("with 1 %% for other calls: %s", share())
	}
	observe(g, 40, load{launches: 30})
	if !g.SamplesLaunches() || share() != "0.010" {
		t.Errorf("while launches are sampled: %s", share())
	}
}

func TestMeasurementOfHits(t *testing.T) {
	testclass.Unit(t)
	m := ComputeMeasurement(HitRates{Launches: 20_000, Allocator: 5_000, Others: 1_000}, 2000, 0)
	if got := fmt.Sprintf(
		"%.2f %.2f %.2f %.2f",
		m.OverheadPct,
		m.LaunchPct,
		m.OthersPct,
		m.AllocatorPct,
	); got != "5.20 4.00 1.20 1.00" {
		t.Errorf("got %s", got)
	}
}

func TestPriceOfAHit(t *testing.T) {
	testclass.Unit(t)
	p := NewPrice(600)
	if p.HitNs() != 900+AssumedProgramNs {
		t.Errorf("assumed price %.0f", p.HitNs())
	}
	p.Skip(1000, 10, 0)
	p.Measure(1000+500*1000+20_000_000, 510+500, 20_000_000) // 1000 runs of 500 ns, and 20 ms of unwinding
	if p.HitNs() != 900+500 {
		t.Errorf("measured price %.0f", p.HitNs())
	}
	p.Measure(1e9, 1015, 0)
	if p.HitNs() != 900+500 {
		t.Error("five runs changed the price")
	}
	for hitNs, want := range map[float64]float64{1700: 1700, 100: 1100, 100_000: 2900} {
		if p.Correct(hitNs); p.HitNs() != want {
			t.Errorf("corrected to %.0f: %.0f", hitNs, p.HitNs())
		}
	}
}

// TestPaceRevealsThePrice checks that the pace of a simulated program reveals what a launch probe
// costs it.
func TestPaceRevealsThePrice(t *testing.T) {
	testclass.Unit(t)
	random := rand.New(rand.NewPCG(7, 7))
	for _, trueNs := range []float64{800, 2000, 5000} {
		for _, noise := range []float64{0, 0.01, 0.3} {
			var p Pace
			const launches, others = 30_000.0, 20_000.0
			for range 40 {
				jitter := func() float64 { return 1 + noise*random.NormFloat64() }
				slow := 1 - launches*trueNs/1e9/(1+launches*trueNs/1e9)
				p.AddWindow(0.5, 0.5*launches*slow, 0.5*others*slow*jitter())
				p.AddPause(1.5, 1.5*others*jitter())
			}
			ns, ok := p.HitNs()
			if ok != (noise < 0.1) {
				t.Errorf("price %.0f, noise %.2f: ok %v", trueNs, noise, ok)
			}
			if ok && math.Abs(ns-trueNs) > 0.25*trueNs {
				t.Errorf("price %.0f, noise %.2f: got %.0f", trueNs, noise, ns)
			}
		}
	}
}

func BenchmarkGovernor(b *testing.B) {
	g := NewGovernor(DefaultGovernorPolicy, 5)
	l := load{launches: 12, others: 1}
	for b.Loop() {
		g.Decide(l.measure(g.RecordsLaunches()))
	}
}
