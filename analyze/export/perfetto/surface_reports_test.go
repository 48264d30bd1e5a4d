package perfetto

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestTraceOfTheWholeSurface counts the values of memory counters that only few programs have.
func TestTraceOfTheWholeSurface(t *testing.T) {
	testclass.Unit(t)
	d, _ := traced(t, analyzetest.AllMemoryKindsRecording(t).Timeline(), Options{})
	counters := make(map[string]int)
	for track, values := range d.counters {
		for _, name := range []string{deviceFreeCounter, "live memory (physical)", "live memory (registered)"} {
			if strings.HasSuffix(track, name) {
				counters[name] += len(values)
			}
		}
	}
	if counters[deviceFreeCounter] != 100 || counters["live memory (physical)"] != 100 ||
		counters["live memory (registered)"] != 1 {
		t.Errorf("counters %v", counters)
	}
}
