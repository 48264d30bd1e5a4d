package changepoint

import (
	"cmp"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

const second = int64(1e9)

// seeds returns the number of series of each kind: GPUREC_SEEDS, or 40.
func seeds() int {
	n, _ := strconv.Atoi(os.Getenv("GPUREC_SEEDS"))
	return cmp.Or(n, 40)
}

var testOptions = Options{
	Limits: Limits{MinChange: 5, MinShare: 0.05}, WarmUpEndNs: 8 * second, RampNs: 3 * second, MinLevelNs: 2 * second,
}

// stepsOf returns the changes of a result that are not part of a pattern.
func stepsOf(r *Result) (list []Change) {
	for _, c := range r.Changes {
		if c.Kind == Step {
			list = append(list, c)
		}
	}
	return list
}

// TestQuietSeriesHaveNoChange bounds the false alarms. Independent noise, slopes and plateaus stay below
// MaxFalseAlarms. Series that wander for as long as a level lasts may have 2 % of false alarms.
func TestQuietSeriesHaveNoChange(t *testing.T) {
	testclass.Unit(t)
	mayWander := []string{"dependent", "walk", "flips", "epochs"}
	for name, makeValues := range quiet {
		alarms := 0
		for seed := range seeds() {
			r := rand.New(rand.NewPCG(uint64(seed), 1))
			s := newSeries(r, makeValues(r))
			if found := stepsOf(Find(s, testOptions)); len(found) > 0 {
				alarms++
				t.Logf("%s, seed %d: %+v", name, seed, found)
			}
		}
		most := int(math.Ceil(MaxFalseAlarms * float64(seeds()-1)))
		if slices.Contains(mayWander, name) {
			most = max(1, seeds()/50)
		}
		t.Logf("%s: %d of %d", name, alarms, seeds())
		if alarms > most {
			t.Errorf("%s: %d false alarms in %d series, want at most %d", name, alarms, seeds(), most)
		}
	}
}

// TestStepsAreFound adds a step to quiet series. It must be found at its time, and nothing else.
func TestStepsAreFound(t *testing.T) {
	testclass.Unit(t)
	minFound := map[string]float64{
		"normal": 0.97, "heavy tails": 0.97, "slope": 0.97, "plateau": 0.97, "constant": 1, "dependent": 0.9,
		"sine": 0.5, "epochs": 0.3, // series that move up and down as much as the step
	}
	for name, least := range minFound {
		found, wrong, more := 0, 0, 0
		for seed := range seeds() {
			switch n, isAt := findStep(name, uint64(seed)); {
			case n == 0:
			case !isAt:
				wrong++
			default:
				found++
				more += n - 1
			}
		}
		t.Logf("%s: %d of %d found, %d at a wrong time, %d further changes", name, found, seeds(), wrong, more)
		if float64(found) < least*float64(seeds()) || wrong > max(1, seeds()/50) || more > max(1, seeds()/50) {
			t.Errorf("%s: %d of %d found, %d at a wrong time, %d further changes", name, found, seeds(), wrong, more)
		}
	}
}

// findStep searches a series with a step. It returns the number of found changes, and whether one of them is
// less than 1 s away from the step.
func findStep(name string, seed uint64) (n int, isAt bool) {
	r := rand.New(rand.NewPCG(seed, 2))
	base := func(int, int, float64) float64 { return 100 }
	if name != "constant" {
		base = quiet[name](r)
	}
	at, size := 15+35*r.Float64(), 25+50*r.Float64()
	if r.IntN(2) == 0 {
		size = -size
	}
	s := newSeries(r, func(i, n int, atS float64) float64 {
		v := base(i, n, atS)
		if atS >= at {
			v += size
		}
		return v
	})
	found := stepsOf(Find(s, testOptions))
	for i := range found {
		isAt = isAt || isNear(&found[i], at)
	}
	return len(found), isAt
}

// isNear reports whether a time is in the interval of a change, or less than 1 s away from it.
func isNear(c *Change, atS float64) bool {
	return float64(c.BeforeNs)/1e9-1 <= atS && float64(c.AfterNs)/1e9+1 >= atS
}

// TestLevelsReturn checks a level that lasts for some seconds: two changes. A twentieth may be missed: those
// with too few samples of the level.
func TestLevelsReturn(t *testing.T) {
	testclass.Unit(t)
	missed := 0
	for seed := range seeds() {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		from := 15 + 25*r.Float64()
		var s *Series
		for s == nil || len(s.Values) < 100 { // 12 of 60 samples are too few
			s = newSeries(r, func(_, _ int, atS float64) float64 {
				if atS >= from && atS < from+12 {
					return 150 + 5*r.NormFloat64()
				}
				return 100 + 5*r.NormFloat64()
			})
		}
		if found := stepsOf(Find(s, testOptions)); len(found) != 2 || !isNear(&found[0], from) ||
			!isNear(&found[1], from+12) {
			missed++
			t.Logf("seed %d, %d samples: a level from %.1f s to %.1f s: %+v", seed, len(s.AtNs), from, from+12, found)
		}
	}
	if missed*20 > seeds() {
		t.Errorf("%d of %d levels are missed", missed, seeds())
	}
}

// TestPatternsAreNamed checks that levels that come again are a pattern with its period.
func TestPatternsAreNamed(t *testing.T) {
	testclass.Unit(t)
	r := rand.New(rand.NewPCG(1, 4))
	s := &Series{}
	for i := range int64(600) {
		v := 100 + r.NormFloat64()
		if i%200 < 40 {
			v -= 60
		}
		s.AtNs, s.Values = append(s.AtNs, i*second/10), append(s.Values, v)
	}
	got := Find(s, Options{Limits: testOptions.Limits, RampNs: second, MinLevelNs: 2 * second})
	if len(stepsOf(got)) > 0 || len(got.Changes) == 0 || math.Abs(float64(got.PeriodNs)/1e9-20) > 1 {
		t.Errorf("changes %+v, period %d ns: want only recurring ones every 20 s", got.Changes, got.PeriodNs)
	}
}

// TestDriftIsNoStep checks that a slow movement is a drift.
func TestDriftIsNoStep(t *testing.T) {
	testclass.Unit(t)
	for seed := range seeds() {
		for _, name := range []string{"slope", "plateau"} {
			r := rand.New(rand.NewPCG(uint64(seed), 5))
			base := quiet[name](r)
			s := newSeries(r, func(i, n int, atS float64) float64 { return base(i, n, atS) })
			got := Find(s, testOptions)
			last := s.median(len(s.Values)-5, len(s.Values))
			moved := last - s.median(len(s.Values)/5, len(s.Values)/5+5)
			if moved > 20 && (got.Drift == nil || got.Drift.To < got.Drift.From) {
				t.Errorf("%s, seed %d: moved by %.1f, drift %+v", name, seed, moved, got.Drift)
			}
		}
	}
}

func TestWarmUpIsNoChange(t *testing.T) {
	testclass.Unit(t)
	r := rand.New(rand.NewPCG(1, 6))
	s := newSeries(r, func(_, _ int, atS float64) float64 {
		if atS < 6 {
			return 300 + r.NormFloat64()
		}
		return 100 + r.NormFloat64()
	})
	got := Find(s, testOptions)
	if len(got.Changes) > 0 || got.WarmUp == nil || math.Abs(got.WarmUp.From-300) > 2 {
		t.Errorf("changes %+v, warm-up %+v", got.Changes, got.WarmUp)
	}
}

func TestOutliers(t *testing.T) {
	testclass.Unit(t)
	r := rand.New(rand.NewPCG(1, 7))
	s := &Series{}
	for i := range 1000 {
		v := 100 + 2*r.NormFloat64()
		if i%100 == 50 {
			v = 300
		}
		if i == 333 {
			v = 500
		}
		s.AtNs, s.Values = append(s.AtNs, int64(i)*second), append(s.Values, v)
	}
	o := FindOutliers(s, &testOptions.Limits)
	if o.Count != 11 || o.Worst != 500 || o.WorstNs != 333*second || math.Abs(o.Usual-100) > 3 ||
		o.PeriodNs != 100*second {
		t.Errorf("%+v", o)
	}
}

// TestRateChanges compares counters of errors: none, at a constant rate, in one burst, and from a time on.
func TestRateChanges(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		counts []float64
		want   []int // index of the first sample with the new rate
	}{
		"none":      {[]float64{3, 3, 3, 3, 3, 3, 3}, nil},
		"one error": {[]float64{3, 3, 3, 4, 4, 4, 4}, nil},
		"constant":  {[]float64{0, 12, 18, 31, 40, 52, 60}, nil},
		"begins":    {[]float64{3, 3, 3, 3, 40, 90, 130}, []int{4}},
		"ends":      {[]float64{0, 50, 100, 140, 140, 140, 140}, []int{3}},
		"burst":     {[]float64{0, 0, 0, 100, 100, 100, 100}, []int{3, 3}},
		"reset":     {[]float64{100, 100, 100, 0, 0, 0, 0}, nil},
	} {
		s := &Series{Values: c.counts}
		for i := range c.counts {
			s.AtNs = append(s.AtNs, int64(i)*10*second)
		}
		var got []int
		for _, change := range FindRateChanges(s) {
			got = append(got, int(change.AfterNs/(10*second)))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: changes at samples %v, want %v", name, got, c.want)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	for _, n := range []int{100, 600, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, 8))
			s := &Series{}
			for i := range n {
				v := 100 + 5*r.NormFloat64()
				if i > n/2 {
					v += 40
				}
				s.AtNs, s.Values = append(s.AtNs, int64(i)*second), append(s.Values, v)
			}
			for b.Loop() {
				Find(s, testOptions)
			}
		})
	}
}
