package rulecases

import (
	"math"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/catalog"
)

// changeCase is the case of change: the SM clock falls in the middle of the recording and stays low. In the
// near miss, it is low at first, then wavers, and then falls slowly and for single samples.
func changeCase() Case {
	add := func(recording *analyzetest.TestRecording, clock func(i int) float64) {
		for i := range 540 {
			recording.AddNVMLSample(1, 6*analyzetest.Second+int64(i)*100*analyzetest.Ms, "sm_clock_mhz", clock(i))
		}
	}
	return Case{
		Fires: func(recording *analyzetest.TestRecording) {
			add(recording, func(i int) float64 { return float64(1980 - i/240*525 - i%3*15) })
			recording.ChangeSamples(
				catalog.MetricClockEventReasons,
				func(i int) float64 { return float64(4 * (i / 59)) },
			)
		},
		Misses: func(recording *analyzetest.TestRecording) {
			add(recording, func(i int) float64 {
				switch {
				case i < 50:
					return 1200
				case i%40 == 0:
					return 900
				}
				return 1980 - 45*math.Round(float64(i)/540) - float64(i%3*15)
			})
		},
		Where:    "GPU 1 NVIDIA H200",
		Severity: "notice",
		Also:     "throttling",
	}
}
