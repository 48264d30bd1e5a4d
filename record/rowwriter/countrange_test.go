//go:build linux

package rowwriter

import (
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestCountRangeFindsTheNumber reads the counters of a library at random times of random calls. The library counts a
// collective after its call has begun.
func TestCountRangeFindsTheNumber(t *testing.T) {
	testclass.Unit(t)
	found := 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))
		before, began, launched := r.Int64N(1000), int64(0), int64(0)
		if group := r.Int64N(4); group > 0 && r.IntN(4) == 0 { // a group that began before the recording
			began, launched = group, 0
		}
		oldGroup := began
		rng := newCountRange()
		for range 60 {
			switch {
			case oldGroup > 0 && r.IntN(8) == 0:
				launched, oldGroup = began, 0
			case oldGroup > 0:
			case launched < began:
				launched += r.Int64N(began - launched + 1)
			case r.IntN(2) == 0:
				began += 1 + r.Int64N(3)
			}
			inFlight := began - launched
			if oldGroup > 0 {
				inFlight = 0 // the recorder does not know it
			}
			if r.IntN(3) == 0 { // another collective began during the reading
				rng.narrow(before+launched-began-1, before+launched)
			} else {
				rng.narrow(before+launched-began, before+launched-began+inFlight)
			}
		}
		n, ok := rng.number()
		if ok && n != before && oldGroup == 0 {
			t.Errorf("seed %d: %d, want %d: %+v", seed, n, before, rng)
		}
		if ok {
			found++
		}
	}
	if found < 400 {
		t.Errorf("the number was found %d times of 500", found)
	}
}
