package rules

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestSmallCallsWithoutReturns has 4,000 calls of 10 µs in 2 s. The return of one in four was recorded.
func TestSmallCallsWithoutReturns(t *testing.T) {
	testclass.Unit(t)
	var c smallCalls
	for i := range int64(4000) {
		o := collective.Operation{StartNs: i * 500_000, Bytes: 1024}
		if i < 1000 {
			o.DurNs = 10_000
		}
		c.add(&o)
	}
	if pct := c.sharePct(); pct < 1.99 || pct > 2.01 || !c.isMany() {
		t.Errorf("the calls take %.2f%% of the time", pct)
	}
}
