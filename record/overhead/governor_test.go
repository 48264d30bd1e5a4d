//go:build linux

package overhead

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
)

// load is a program with constant overhead while everything is recorded, in percent. Unwinding takes unwind, unless its
// share is smaller.
type load struct{ launches, events, others, unwind float64 }

// measure returns the measurement of a time without some kinds.
func (l load) measure(missing Kinds) Measurement {
	if missing.Has(Launches) {
		l.launches = 0
	}
	if missing.Has(AllocatorEvents) {
		l.events = 0
	}
	return Measurement{
		LaunchPct: l.launches, AllocatorPct: l.events, OthersPct: l.others, UnwindPct: l.unwind,
		IsQuiet: l.launches+l.events+l.others == 0,
	}
}

// switchTime is how long the probes of a window are attached or removed. Half of it they are hit.
const switchTime = 20 * time.Millisecond

// observation sums up the decisions of a Governor for some time.
type observation struct {
	seconds  float64
	costPct  float64           // mean
	recorded map[Kinds]float64 // seconds in which a kind was recorded
	windows  int               // that began
	gaveUp   int               // how often Decide said so
	sampled  []Kinds           // sets of sampled kinds, in order of time
	pauses   []float64         // lengths of the pauses, s
}

// observe runs a governor for some time of a program. noise is the share of noisy measurements.
func observe(g *Governor, d time.Duration, l load, noise float64, random *rand.Rand) (o observation) {
	o.recorded = make(map[Kinds]float64)
	pause := 0.0
	account := func(m Measurement, d time.Duration) {
		o.seconds += d.Seconds()
		o.costPct += m.ProbePct() * d.Seconds()
	}
	for o.seconds < d.Seconds() {
		missing, next := g.Missing(), g.Next()
		m := l.measure(missing)
		account(m, next)
		for _, kind := range []Kinds{Launches, AllocatorEvents} {
			if !missing.Has(kind) {
				o.recorded[kind] += next.Seconds()
			}
		}
		if missing != 0 {
			pause += next.Seconds()
		}
		if noise > 0 && random.Float64() < noise {
			m.LaunchPct *= 2
		}
		if g.Decide(m, next) {
			o.gaveUp++
		}
		if n := len(o.sampled); n == 0 || o.sampled[n-1] != g.Sampled() {
			o.sampled = append(o.sampled, g.Sampled())
		}
		if g.Missing() == missing {
			continue
		}
		if g.Missing() == 0 {
			o.windows++
			o.pauses, pause = append(o.pauses, pause), 0
		}
		during := l.measure(g.Missing() & missing)
		during.LaunchPct, during.AllocatorPct = during.LaunchPct/2, during.AllocatorPct/2
		account(during, switchTime)
		g.Switched(during, switchTime)
	}
	o.costPct /= o.seconds
	return o
}

// newGovernor returns a Governor that may sample all kinds.
func newGovernor(limitPct float64) *Governor {
	g := NewGovernor(DefaultGovernorPolicy, limitPct)
	g.SetSampleable(Launches | AllocatorEvents)
	return g
}

// TestGovernorChoosesKinds checks which kinds are sampled.
func TestGovernorChoosesKinds(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		load       load
		sampleable Kinds
		want       Kinds
		gaveUp     int
	}{
		"below the limit":               {load{launches: 1, events: 1}, Launches | AllocatorEvents, 0, 0},
		"launches":                      {load{launches: 30, events: 0.3}, Launches | AllocatorEvents, Launches, 0},
		"events":                        {load{launches: 0.3, events: 30}, Launches | AllocatorEvents, AllocatorEvents, 0},
		"both":                          {load{launches: 4, events: 13}, Launches | AllocatorEvents, Launches | AllocatorEvents, 0},
		"events cannot be sampled":      {load{launches: 4, events: 13}, Launches, Launches, 1},
		"nothing can be sampled":        {load{launches: 0.1, events: 13}, Launches, 0, 1},
		"others need too much":          {load{launches: 20, others: 12}, Launches | AllocatorEvents, Launches, 1},
		"launches are a small part":     {load{launches: 0.4, others: 12}, Launches | AllocatorEvents, 0, 1},
		"others leave room for windows": {load{launches: 20, others: 2}, Launches | AllocatorEvents, Launches, 0},
	} {
		g := newGovernor(5)
		g.SetSampleable(c.sampleable)
		o := observe(g, 20*time.Second, c.load, 0, nil)
		if g.Sampled() != c.want || o.gaveUp != c.gaveUp {
			t.Errorf(
				"%s: samples %v, want %v; gave up %d times, want %d",
				name,
				g.Sampled(),
				c.want,
				o.gaveUp,
				c.gaveUp,
			)
		}
	}
}

// TestGovernorKeepsEachSecond checks for random programs that no second exceeds the limit from the second one on, that
// the mean is near the aim, and that the first second is cheap.
func TestGovernorKeepsEachSecond(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 1))
		limit := 3 + 7*random.Float64()
		l := load{
			launches: 25 * random.Float64() * float64(
				random.IntN(2),
			),
			events: 35 * random.Float64() * float64(random.IntN(2)),
			others: limit * 0.62 * random.Float64(),
			unwind: 10 * random.Float64(),
		}
		g := newGovernor(limit)
		o := observe(g, 300*time.Second, l, 0, random)
		cost := g.Account().ProbeCost
		full := l.launches + l.events + l.others
		if cost.OverLimit > 0 || cost.WorstPct > limit || cost.MeanPct > limit || o.gaveUp > 0 {
			t.Errorf(
				"seed %d: limit %.1f, %+v: %d seconds above it, worst %.1f, mean %.1f",
				seed,
				limit,
				l,
				cost.OverLimit,
				cost.WorstPct,
				cost.MeanPct,
			)
		}
		if first := cost.SecondsPct[0]; first > limit+0.2*full {
			t.Errorf("seed %d: limit %.1f, %+v: the first second cost %.1f %%", seed, limit, l, first)
		}
		if full > 1.1*limit && cost.MeanPct < 0.2*limit && g.WindowShare() > 0.02 {
			t.Errorf("seed %d: limit %.1f, %+v is not used: mean %.1f %%", seed, limit, l, cost.MeanPct)
		}
	}
}

// TestGovernorFollowsTheProgram checks that sampling ends when the program becomes cheap, and begins again.
func TestGovernorFollowsTheProgram(t *testing.T) {
	testclass.Unit(t)
	g := newGovernor(5)
	cheap, expensive := load{launches: 0.5, others: 0.1}, load{launches: 6, events: 20, others: 0.1}
	for range 3 {
		if o := observe(g, 10*time.Second, cheap, 0, nil); g.Sampled() != 0 {
			t.Errorf("a cheap program is sampled: %v", o.sampled)
		}
		o := observe(g, 20*time.Second, expensive, 0, nil)
		if g.Sampled() != Launches|AllocatorEvents || o.windows < 8 || o.recorded[AllocatorEvents] < 0.8 {
			t.Errorf("sampled %v, %d windows, %v s recorded", o.sampled, o.windows, o.recorded)
		}
		observe(g, 10*time.Second, cheap, 0, nil)
	}
}

// TestEventsBecomeSampleable checks that events are sampled soon after they may be, and recorded again when they may not.
func TestEventsBecomeSampleable(t *testing.T) {
	testclass.Unit(t)
	g := NewGovernor(DefaultGovernorPolicy, 5)
	l := load{launches: 4, events: 13}
	observe(g, 500*time.Millisecond, l, 0, nil)
	if g.Sampled() != Launches || !g.NeedsEvents() {
		t.Fatalf("samples %v, needs events: %v", g.Sampled(), g.NeedsEvents())
	}
	g.SetSampleable(Launches | AllocatorEvents)
	observe(g, 200*time.Millisecond, l, 0, nil)
	if g.Missing() != Launches|AllocatorEvents {
		t.Errorf("missing %v", g.Missing())
	}
	g.SetSampleable(Launches)
	observe(g, 200*time.Millisecond, l, 0, nil)
	if g.Missing().Has(AllocatorEvents) {
		t.Errorf("missing %v although events may not be sampled", g.Missing())
	}
}

// TestPauseEndsWhenNothingIsCalled checks that a pause ends when the process makes no calls. The
// window lasts until it makes calls again. If the launches had not stopped, the next pauses last their
// time.
func TestPauseEndsWhenNothingIsCalled(t *testing.T) {
	testclass.Unit(t)
	g := newGovernor(5)
	observe(g, 2*time.Second, load{launches: 30, others: 1}, 0, nil)
	for g.Missing() == 0 {
		observe(g, time.Millisecond, load{launches: 30, others: 1}, 0, nil)
	}
	observe(g, 500*time.Millisecond, load{}, 0, nil)
	if g.Missing() != 0 {
		t.Error("the pause continues although nothing is called")
	}
	if o := observe(g, 20*time.Second, load{}, 0, nil); len(o.pauses) > 0 {
		t.Errorf("the window ended although nothing is called: %v", o.pauses)
	}
	g = newGovernor(5)
	o := observe(g, 10*time.Second, load{launches: 30}, 0, nil)
	if early := slices.IndexFunc(o.pauses, func(s float64) bool { return s > 0.9 }); early < 0 || early > 1 {
		t.Errorf("pauses of a program that only launches: %v", o.pauses)
	}
	if cost := g.Account().ProbeCost; cost.OverLimit > 0 {
		t.Errorf("%+v", cost)
	}
}

func TestUnwindShare(t *testing.T) {
	testclass.Unit(t)
	g := newGovernor(5)
	share := func() string { return fmt.Sprintf("%.3f", g.UnwindShare()) }
	if share() != "0.010" {
		t.Errorf("before the first measurement: %s", share())
	}
	observe(g, 100*time.Millisecond, load{others: 1}, 0, nil)
	if share() != "0.015" {
		t.Errorf("with 1 %% for other calls: %s", share())
	}
	observe(g, 4*time.Second, load{launches: 30}, 0, nil)
	if g.Sampled() == 0 || share() != "0.010" {
		t.Errorf("while launches are sampled: %s", share())
	}
}

func TestAccount(t *testing.T) {
	testclass.Unit(t)
	a := NewAccount(5)
	a.Add(20, 0.5)
	a.Add(2, 1)
	a.Add(6, 1.5)
	if got := fmt.Sprintf("%v, worst %v, mean %v, %d over", a.SecondsPct, a.WorstPct, a.MeanPct, a.OverLimit); got !=
		"[11 4 6], worst 6, mean 7, 1 over" {
		t.Error(got)
	}
	a.Add(1, 0.25)
	if got := a.LastSecondPct(); math.Abs(got-4.75) > 1e-9 {
		t.Errorf("the last second cost %.3f %%", got)
	}
}

func TestMeasurementOfHits(t *testing.T) {
	testclass.Unit(t)
	m := ComputeMeasurement(HitRates{Launches: 20_000, Allocator: 5_000, Others: 1_000}, 2000, 0)
	if got := fmt.Sprintf(
		"%.2f %.2f %.2f %.2f",
		m.ProbePct(),
		m.LaunchPct,
		m.OthersPct,
		m.AllocatorPct,
	); got != "5.20 4.00 0.20 1.00" {
		t.Errorf("got %s", got)
	}
}

func TestPriceOfAHit(t *testing.T) {
	testclass.Unit(t)
	p := NewPrice(600)
	if p.HitNs() != 600*LoopFactor+AssumedProgramNs {
		t.Errorf("assumed price %.0f", p.HitNs())
	}
	p.Skip(1000, 10, 0)
	p.Measure(1000+500*1000+20_000_000, 510+500, 20_000_000) // 1000 runs of 500 ns, and 20 ms of unwinding
	if p.HitNs() != 600*LoopFactor+500 {
		t.Errorf("measured price %.0f", p.HitNs())
	}
	p.Measure(1e9, 1015, 0)
	if p.HitNs() != 600*LoopFactor+500 {
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
	g := newGovernor(5)
	l := load{launches: 12, others: 1}
	for b.Loop() {
		g.Decide(l.measure(g.Missing()), g.Next())
	}
}
