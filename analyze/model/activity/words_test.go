package activity

import (
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestWordsThatContradict has the times of short simulated copies on a fast machine: the words of their ends come soon after
// the calls, and most waits return late. Without the waits that return at once, the words would be those of starts.
func TestWordsThatContradict(t *testing.T) {
	testclass.Unit(t)
	afterCall := []int64{0, 4841, 6157, 8758, 11585, 13713}
	for _, c := range []struct {
		beforeReturn []int64
		isStart      bool
		repetitions  int
	}{
		{beforeReturn: []int64{1024, 2592, 53576, 55237, 57936, 68897}, repetitions: 4},
		{beforeReturn: []int64{53576, 55237, 57936, 68897, 70000, 80000}, isStart: true, repetitions: 4},
		{beforeReturn: []int64{53576, 55237, 57936, 68897, 70000, 80000}, repetitions: 3}, // too few
	} {
		var e wordEvidence
		for range c.repetitions {
			e.afterCall.list = append(e.afterCall.list, afterCall...)
			e.beforeReturn.list = append(e.beforeReturn.list, c.beforeReturn...)
		}
		if got := e.contradicts(true); got != c.isStart {
			t.Errorf("%v: contradicts ends: %t, want %t", c.beforeReturn, got, c.isStart)
		}
		if e.contradicts(false) {
			t.Errorf("%v contradict starts", c.beforeReturn)
		}
	}
}
