package analyzetest

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/catalog"
)

// TroubledRecording returns a training for which several rules fire.
func TroubledRecording(t testing.TB) *TestRecording {
	tp := SteadyRecording(t)
	for _, name := range []string{"growing-site", "unchecked-error", "small-copies", "xid"} {
		RuleCases()[name].Fires(tp)
	}
	tp.ChangeSamples(catalog.MetricClockEventReasons, func(i int) float64 { return float64(32 * (i / 100)) })
	return tp
}
