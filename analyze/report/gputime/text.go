package gputime

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

// sharedReason is why the durations of kernels are unknown although their numbers are known.
const sharedReason = "kernels of several streams shared the GPU"

// Sentence describes the GPU time of operations in a window: "41.20s ± 400.0ms of kernels and graphs in 60.00s,
// estimated; the GPU time of 2.0% of the launches is unknown". operations and calls are plural nouns. It names
// Estimate.IsShared as a reason.
func Sentence(sum *activity.TimeSum, w query.Window, operations, calls string) string {
	if sum.Operations() == 0 {
		text := fmt.Sprintf("unknown for all %s", calls)
		switch shared := sum.Shared(); {
		case shared == 0:
		case shared == sum.Unknown():
			text += " because " + sharedReason
		default:
			text += fmt.Sprintf(", for %s of them because %s", percentText(shared, sum.Unknown()), sharedReason)
		}
		return text
	}
	text := fmt.Sprintf("%s ± %s of %s in %s, %s", units.FormatDuration(units.RoundInt(sum.TotalNs())),
		units.FormatDuration(units.RoundInt(sum.ErrorNs())), operations, units.FormatDuration(w.DurNs()),
		QualityText(sum.Quality()))
	all := sum.Operations() + sum.Unknown()
	if sum.Unknown() > 0 {
		text += fmt.Sprintf("; the GPU time of %s of the %s is unknown", percentText(sum.Unknown(), all), calls)
	}
	switch shared := sum.Shared(); {
	case shared == 0:
	case shared == sum.Unknown():
		text += " because " + sharedReason
	default:
		text += fmt.Sprintf(", of %s because %s", percentText(sum.Shared(), all), sharedReason)
	}
	return text
}

// percentText formats a share of operations. A share above 0 is never printed as 0.
func percentText(part, all float64) string {
	percent := 100 * part / all
	if percent < 0.1 {
		return "less than 0.1%"
	}
	return fmt.Sprintf("%.1f%%", percent)
}
