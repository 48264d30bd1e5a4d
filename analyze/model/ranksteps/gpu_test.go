package ranksteps

import (
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestKernelsOfUnknownGroups makes random groups of two threads. Kernels of a group are launched after its last
// operation. Without the groups, a kernel belongs to the same operation or to none, and to the same one if no group has
// several operations.
func TestKernelsOfUnknownGroups(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 7))
		largest := 1 + int(seed%4)
		var operations []collective.Operation
		var launches []collective.Operation // StartNs and Tid
		at, number := int64(0), int64(0)
		for range 200 {
			tid, n := int32(1+random.IntN(2)), 1+random.IntN(largest)
			number++
			for range n {
				at++
				operations = append(operations, collective.Operation{StartNs: at, Tid: tid, Group: number})
			}
			for range 1 + random.IntN(n) {
				at++
				launches = append(launches, collective.Operation{StartNs: at, Tid: tid})
			}
		}
		known, unknown := rankOf(operations), rankOf(withoutGroups(operations))
		found, first := 0, 2
		for i := range launches {
			l := &launches[i]
			want, got := known.operationOf(l.StartNs, l.Tid), unknown.operationOf(l.StartNs, l.Tid)
			if got >= 0 {
				found++
			}
			if got != want && got != -1 {
				t.Fatalf("seed %d: kernel at %d of operation %d, not %d", seed, l.StartNs, got, want)
			}
		}
		if largest == 1 && found < len(launches)-first {
			t.Errorf("seed %d: %d of %d kernels have an operation", seed, found, len(launches))
		}
	}
}

func rankOf(operations []collective.Operation) *gpuRank {
	k := &rank{operations: operations}
	return &gpuRank{rank: k, owner: groupSizes(k), launched: make(map[int32]launchedOperation)}
}

func withoutGroups(operations []collective.Operation) (list []collective.Operation) {
	for _, o := range operations {
		o.Group = format.GroupUnknown
		list = append(list, o)
	}
	return list
}
