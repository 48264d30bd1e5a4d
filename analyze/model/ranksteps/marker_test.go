package ranksteps

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestMarkersOfRandomPrograms makes strings of collectives with a known step, and checks that a step has one marker.
// Some steps have an evaluation, and the first one is long.
func TestMarkersOfRandomPrograms(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 5))
		layers, repeats := 1+random.IntN(6), random.IntN(2) == 0
		steps := 60 + random.IntN(200)
		var list []mark
		at, begins := int64(1e18), make([]int64, 0, steps)
		add := func(key uint64, waited bool, ns float64) {
			at += int64(ns * (0.9 + 0.2*random.Float64()))
			list = append(list, mark{int64(len(list) + 1), at, key, waited})
		}
		for step := range steps {
			if step == 1 {
				at += 2e9
			}
			if step%50 == 49 {
				add(99, true, 1e6)
			}
			begins = append(begins, at)
			add(1, true, 8e6)
			for layer := 1; layer < layers; layer++ {
				key := uint64(1)
				if !repeats {
					key = uint64(layer + 1)
				}
				add(key, false, 3e5)
			}
		}
		m, ok := chooseMarker(list)
		if !ok || m.window != 0 {
			t.Errorf("seed %d: no marker: %v", seed, m)
			continue
		}
		counts := make(map[int]int)
		step := 0
		for i := range list {
			for step+1 < steps && list[i].startNs > begins[step+1] {
				step++
			}
			if m.selects(&list[i]) {
				counts[step]++
			}
		}
		for step := range steps {
			if counts[step] != 1 {
				t.Errorf("seed %d, %d layers: step %d has %d markers", seed, layers, step, counts[step])
				break
			}
		}
	}
}

// TestWindows divides collectives that do not repeat into windows.
func TestWindows(t *testing.T) {
	testclass.Unit(t)
	random := rand.New(rand.NewPCG(1, 1))
	var list []mark
	at := int64(0)
	for i := range 5000 {
		at += random.Int64N(1e7)
		list = append(list, mark{int64(i + 1), at, random.Uint64(), false})
	}
	m, ok := chooseMarker(list)
	if !ok || m.window < 2 || m.window > longestWindow {
		t.Errorf("marker %v, %v", m, ok)
	}
	if m, ok := chooseMarker(list[:40]); ok {
		t.Errorf("40 collectives have the marker %v", m)
	}
}

// TestMarkersOfVaryingSteps finds the steps of a program on a busy machine: their lengths vary, and their collectives
// repeat.
func TestMarkersOfVaryingSteps(t *testing.T) {
	testclass.Unit(t)
	random := rand.New(rand.NewPCG(2, 1))
	var list []mark
	at := int64(0)
	for range 300 {
		at += int64(1e7 * (1 + 9*random.Float64()))
		for _, key := range []uint64{7, 5, 5} {
			at += random.Int64N(1e6)
			list = append(list, mark{int64(len(list) + 1), at, key, false})
		}
	}
	if m, ok := chooseMarker(list); !ok || m.key != 7 || m.window != 0 {
		t.Errorf("marker %+v, %v, want the collective that comes once a step", m, ok)
	}
}

// TestRise finds a rise, and none in noise.
func TestRise(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		n := 40 + random.IntN(400)
		from := max(leastBefore, n/leastOfAll) + random.IntN(n-2*max(leastBefore, n/leastOfAll))
		factor := 1.6 + 4*random.Float64()
		flat, risen := make([]float64, n), make([]float64, n)
		for i := range n {
			flat[i] = 1e6 * (1 + 0.1*random.NormFloat64())
			if random.IntN(50) == 0 {
				flat[i] *= 10
			}
			risen[i] = flat[i]
			if i >= from {
				risen[i] *= factor
			}
		}
		if split, before, after, ok := Rise(flat); ok {
			t.Errorf("seed %d: noise rises from %.0f to %.0f at %d", seed, before, after, split)
		}
		split, before, after, ok := Rise(risen)
		if problem := fmt.Sprintf(
			"seed %d: rise at %d of %d by %.1f: %v at %d, %.0f to %.0f",
			seed,
			from,
			n,
			factor,
			ok,
			split,
			before,
			after,
		); !ok || max(split-from, from-split) > n/8 || after/before < 0.8*factor ||
			after/before > 1.2*factor {
			t.Error(problem)
		}
	}
}
