package idle

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestSweepSortsStably checks that edges come in the order of a stable sort of all edges so far,
// whatever their order, and however many are visited between. The kind of an edge tells equal edges
// apart.
func TestSweepSortsStably(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var got, want, waiting []edge
		s := sweep{visit: func(e *edge, _ *operation) { got = append(got, *e) }}
		disorder := [...]int64{1, 40, 4000}[seed%3]
		for batch := range 8 {
			for i := range rng.IntN(700) {
				e := edge{
					ns:   max(s.atNs, int64(batch*700+i)/3+rng.Int64N(disorder)),
					kind: edgeKind(rng.IntN(int(edgeKinds))), step: int8(1 - 2*rng.IntN(2)),
				}
				s.add(e)
				waiting = append(waiting, e)
			}
			s.merge()
			slices.SortStableFunc(waiting, func(a, b edge) int {
				return cmp.Or(cmp.Compare(a.ns, b.ns), cmp.Compare(a.step, b.step))
			})
			n := rng.IntN(len(waiting) + 1)
			s.pass(n)
			want, waiting = append(want, waiting[:n]...), slices.Clone(waiting[n:])
		}
		s.finish()
		if want = append(want, waiting...); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %d edges, want %d, or another order", seed, len(got), len(want))
		}
	}
}
