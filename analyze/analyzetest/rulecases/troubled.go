package rulecases

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/catalog"
)

// TroubledRecording returns a training for which several rules fire.
func TroubledRecording(t testing.TB) *analyzetest.TestRecording {
	recording := analyzetest.SteadyRecording(t)
	for _, name := range []string{"growing-site", "unchecked-error", "small-copies", "xid"} {
		AllCases()[name].Fires(recording)
	}
	recording.ChangeSamples(catalog.MetricClockEventReasons, func(i int) float64 { return float64(32 * (i / 100)) })
	return recording
}
