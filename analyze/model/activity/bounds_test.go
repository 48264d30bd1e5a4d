package activity

import (
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestNumbering draws operations with and without a call, and bounds of them. The number of each call must
// lie between its bounds, and equal them where all bounds are exact.
func TestNumbering(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		slack := int64(r.IntN(3))
		numbers := []int64{0} // by position
		var b numbering
		extra := int64(0)
		for n := int64(1); n <= 300; n++ {
			if r.IntN(20) == 0 {
				extra++
			} else {
				numbers = append(numbers, n)
			}
			if r.IntN(4) == 0 || n == 1 {
				b.add(n, extra-slack, extra+slack)
			}
		}
		b.close()
		last := b.list[len(b.list)-1]
		for position := int64(1); position <= last.counter-last.most; position++ {
			earliest, latest := b.earliest(position), b.latest(position)
			if numbers[position] < earliest || numbers[position] > latest {
				t.Fatalf(
					"seed %d: call %d is operation %d, not in [%d, %d]",
					seed,
					position,
					numbers[position],
					earliest,
					latest,
				)
			}
		}
	}
}

func TestNumberingIsExactBetweenEqualBounds(t *testing.T) {
	testclass.Unit(t)
	var b numbering
	b.add(100, 7, 7)
	b.add(150, 7, 9)
	b.add(200, 7, 7)
	b.close()
	for position := int64(94); position <= 193; position++ {
		if b.earliest(position) != position+7 || b.latest(position) != position+7 {
			t.Fatalf("call %d is in [%d, %d]", position, b.earliest(position), b.latest(position))
		}
	}
	if got := b.latest(194); got != unbounded {
		t.Errorf("call 194 ends by operation %d, want no bound", got)
	}
}
