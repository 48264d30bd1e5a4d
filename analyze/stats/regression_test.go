package stats

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestFitLinear checks that the true coefficients lie within two standard errors, and the errors are
// not much too large.
func TestFitLinear(t *testing.T) {
	testclass.Unit(t)
	const runs, n = 300, 120
	inside, wide := 0, 0
	for run := range runs {
		random := rand.New(rand.NewPCG(uint64(run), 1))
		x, y := [][]float64{make([]float64, n), make([]float64, n)}, make([]float64, n)
		noise := 0.0
		for i := range n {
			x[0][i], x[1][i] = float64(i), float64(random.IntN(50))
			noise = 0.5*noise + random.NormFloat64() // depends on the value before
			y[i] = 1000 + 3*x[0][i] - 2*x[1][i] + noise
		}
		fit, errors, ok := FitLinear(y, x)
		if !ok {
			t.Fatal("no fit")
		}
		for i, want := range []float64{3, -2} {
			if math.Abs(fit[i]-want) <= 2*errors[i] {
				inside++
			}
			if errors[i] > 0.05 {
				wide++
			}
		}
	}
	if inside < 2*runs*85/100 || wide > 0 {
		t.Errorf("%d of %d coefficients within two standard errors, %d too wide", inside, 2*runs, wide)
	}
}

func TestFitLinearOfDependentColumns(t *testing.T) {
	testclass.Unit(t)
	x := []float64{1, 2, 3, 4, 5, 6}
	if _, _, ok := FitLinear(x, [][]float64{x, x}); ok {
		t.Error("a fit of two equal columns")
	}
	if _, _, ok := FitLinear(x[:3], [][]float64{x[:3], {1, 0, 1}}); ok {
		t.Error("a fit of three values")
	}
}

func TestFloor(t *testing.T) {
	testclass.Unit(t)
	var f Floor
	f.Add(3) // in the warm-up
	f.PassCheckpoints(1)
	f.Add(2)
	f.Add(-4)
	f.PassCheckpoints(2) // an interval with a low of 1
	f.Add(5)
	f.PassCheckpoints(4) // one that starts with 1, and one with 6 throughout
	if len(f.Floors) != 3 || f.Floors[0] != 1 || f.Floors[1] != 1 || f.Floors[2] != 6 || f.Level != 6 {
		t.Errorf("%+v", f)
	}
}
