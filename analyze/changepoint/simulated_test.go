package changepoint

import (
	"math"
	"math/rand/v2"
)

// quiet are series without a change of the level. They return the value of sample i of n at a time.
var quiet = map[string]func(*rand.Rand) func(i, n int, atS float64) float64{
	"normal": func(r *rand.Rand) func(int, int, float64) float64 {
		return func(int, int, float64) float64 { return 100 + 5*r.NormFloat64() }
	},
	"heavy tails": func(r *rand.Rand) func(int, int, float64) float64 {
		return func(int, int, float64) float64 { return 100 + 3*r.NormFloat64()/math.Sqrt(0.02+r.Float64()) }
	},
	"lognormal": func(r *rand.Rand) func(int, int, float64) float64 {
		return func(int, int, float64) float64 { return 100 * math.Exp(0.3*r.NormFloat64()) }
	},
	"dependent": func(r *rand.Rand) func(int, int, float64) float64 {
		v := 5 * r.NormFloat64()
		phi := 0.5 + 0.45*r.Float64()
		return func(int, int, float64) float64 {
			v = phi*v + 5*math.Sqrt(1-phi*phi)*r.NormFloat64()
			return 100 + v
		}
	},
	"walk": func(r *rand.Rand) func(int, int, float64) float64 {
		v := 100.0
		return func(int, int, float64) float64 { v += r.NormFloat64(); return v }
	},
	"flips": func(r *rand.Rand) func(int, int, float64) float64 {
		v, next, stay := 100.0, 0.0, 0.5+1.5*r.Float64()
		return func(_, _ int, atS float64) float64 {
			for ; atS >= next; next += stay * r.ExpFloat64() {
				v = 220 - v
			}
			return v
		}
	},
	"sine": func(r *rand.Rand) func(int, int, float64) float64 {
		period := 2 + 6*r.Float64()
		return func(_, _ int, atS float64) float64 {
			return 100 + 20*math.Sin(2*math.Pi*atS/period) + r.NormFloat64()
		}
	},
	"epochs": func(r *rand.Rand) func(int, int, float64) float64 {
		period, share := 3+6*r.Float64(), 0.1+0.4*r.Float64()
		return func(_, _ int, atS float64) float64 {
			if math.Mod(atS, period) < share*period {
				return 40 + r.NormFloat64()
			}
			return 100 + r.NormFloat64()
		}
	},
	"slope": func(r *rand.Rand) func(int, int, float64) float64 {
		rise := 100 * r.Float64()
		return func(i, n int, _ float64) float64 { return 100 + rise*float64(i)/float64(n) + r.NormFloat64() }
	},
	"plateau": func(r *rand.Rand) func(int, int, float64) float64 {
		constant := 8 + 20*r.Float64()
		return func(_, _ int, atS float64) float64 {
			return math.Round(45 + 30*(1-math.Exp(-atS/constant)) + 0.6*r.NormFloat64())
		}
	},
}

// newSeries returns a series of one minute with unequal distances, and a gap in some.
func newSeries(r *rand.Rand, value func(i, n int, atS float64) float64) *Series {
	n := []int{60, 120, 600, 5000}[r.IntN(4)]
	s := &Series{}
	gap := r.Float64()
	for i := range n {
		at := (float64(i) + 0.6*r.Float64()) / float64(n)
		if r.IntN(50) == 0 || gap > 0.7 && at > gap && at < gap+0.05 {
			continue
		}
		s.AtNs = append(s.AtNs, int64(at*60e9))
		s.Values = append(s.Values, value(i, n, at*60))
	}
	return s
}
