package stats_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestSolveNonNegative checks the conditions of an optimum: no gradient where x is above 0, and none
// that points below 0 elsewhere.
func TestSolveNonNegative(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := 1 + r.IntN(12)
		a, b := make([][]float64, n), make([]float64, n)
		for i := range a {
			a[i] = make([]float64, n)
		}
		for range 3 * n {
			row, y := make([]float64, n), 10*r.Float64()-3
			for i := range row {
				row[i] = float64(r.IntN(4))
			}
			for i := range row {
				b[i] += row[i] * y
				for j := range row {
					a[i][j] += row[i] * row[j]
				}
			}
		}
		for i := range a {
			a[i][i] += 0.01
		}
		x := make([]float64, n)
		stats.SolveNonNegative(a, b, x)
		for i := range x {
			gradient := -b[i]
			for j := range x {
				gradient += a[i][j] * x[j]
			}
			if x[i] < 0 || x[i] > 0 && math.Abs(gradient) > 1e-4 || gradient < -1e-4 {
				t.Fatalf("seed %d: x[%d] = %g, gradient %g", seed, i, x[i], gradient)
			}
		}
	}
}

func TestInvertPositive(t *testing.T) {
	testclass.Unit(t)
	a := [][]float64{{4, 2, 0}, {2, 5, 1}, {0, 1, 3}}
	inverse := stats.InvertPositive(a)
	for i := range a {
		for j := range a {
			sum := 0.0
			for k := range a {
				sum += a[i][k] * inverse[k][j]
			}
			want := 0.0
			if i == j {
				want = 1
			}
			if math.Abs(sum-want) > 1e-12 {
				t.Errorf("product[%d][%d] = %g, want %g", i, j, sum, want)
			}
		}
	}
	if stats.InvertPositive([][]float64{{1, 1}, {1, 1}}) != nil {
		t.Error("the inverse of a singular matrix")
	}
}
