package addrmap

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestMapEqualsGoMap applies the same random operations to a Map and to a Go map. Some of the
// addresses collide.
func TestMapEqualsGoMap(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 5))
		var m Map[int32]
		want := make(map[int64]int32)
		stride, reach := int64(1)<<r.IntN(22), 1+r.Int64N(3000)
		for step := range 20_000 {
			ptr := r.Int64N(reach) * stride
			if r.IntN(8) == 0 {
				ptr = -ptr
			}
			got, ok := m.Get(ptr)
			if value, has := want[ptr]; got != value || ok != has {
				t.Fatalf("seed %d, step %d: %#x has %d %t, want %d %t", seed, step, ptr, got, ok, value, has)
			}
			if r.IntN(2) == 0 {
				m.Delete(ptr)
				delete(want, ptr)
			} else {
				m.Set(ptr, int32(step))
				want[ptr] = int32(step)
			}
		}
		got := make(map[int64]int32)
		m.EachAddress(func(ptr int64, value int32) { got[ptr] = value })
		if !maps.Equal(got, want) {
			t.Fatalf("seed %d: %d addresses at the end, want %d", seed, len(got), len(want))
		}
	}
}

// TestMapSpreadsEquidistantAddresses checks that equidistant addresses are spread over the slots.
func TestMapSpreadsEquidistantAddresses(t *testing.T) {
	testclass.Unit(t)
	for shift := range 40 {
		var m Map[int32]
		for i := range int64(10_000) {
			m.Set(0x7f0000000000+i<<shift, 1)
		}
		worst, run := 0, 0
		for i := range m.slots {
			if run++; m.slots[i].ptr == 0 {
				run = 0
			}
			worst = max(worst, run)
		}
		if worst > 400 { // 61 % of the slots are in use; runs of some tens are normal
			t.Errorf("distance 1<<%d: %d slots in a row are taken", shift, worst)
		}
	}
}
