package livemem

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestBlocksEndInTheOrderOfTheirAllocation ends a process and a context that hold blocks at random
// addresses. Go maps iterate in random order; the changes must come in the order of allocation.
func TestBlocksEndInTheOrderOfTheirAllocation(t *testing.T) {
	testclass.Unit(t)
	for name, end := range map[string]MemoryEvent{
		"process": {Kind: EventProcessExit, Pid: 7, AtNs: 1000},
		"context": {Kind: EventContextEnd, Pid: 7, AtNs: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			origins := origin.NewOriginTable()
			by := origins.NumberOf(origin.CallOrigin{Pid: 7})
			l := New(&origins, func(int32, *MemoryEvent) bool { return true })
			ignore := func(*Set, *Change) {}
			var allocated []int64
			for i := range 200 {
				ptr := rand.Int64N(1<<40) + 1
				l.applyCall(&MemoryCall{AtNs: int64(i), Ptr: ptr, Bytes: 8, Origin: by, Op: OpAlloc}, ignore)
				allocated = append(allocated, ptr)
			}
			var ended []int64
			l.applyEvent(&end, func(_ *Set, c *Change) { ended = append(ended, c.Ptr) })
			if !slices.Equal(ended, allocated) {
				t.Errorf("order of the ended blocks: %v; order of allocation: %v", ended, allocated)
			}
		})
	}
}
