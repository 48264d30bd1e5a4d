package gputime

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

// Sentence describes the GPU time of works in a window: "41.20s ± 400.0ms of kernels and graphs in 60.00s,
// estimated; the GPU time of 2.0% of the launches is unknown". works and calls are plural nouns.
func Sentence(sum *activity.TimeSum, w query.Window, works, calls string) string {
	if sum.Works() == 0 {
		return fmt.Sprintf("unknown for all %s", calls)
	}
	text := fmt.Sprintf("%s ± %s of %s in %s, %s", units.FormatDuration(units.RoundInt(sum.TotalNs())),
		units.FormatDuration(units.RoundInt(sum.ErrorNs())), works, units.FormatDuration(w.DurNs()),
		QualityText(sum.Quality()))
	if sum.Unknown() > 0 {
		text += fmt.Sprintf("; the GPU time of %s of the %s is unknown",
			percentText(100*sum.Unknown()/(sum.Works()+sum.Unknown())), calls)
	}
	return text
}

// percentText formats a share above 0, which is never printed as 0.
func percentText(percent float64) string {
	if percent < 0.1 {
		return "less than 0.1%"
	}
	return fmt.Sprintf("%.1f%%", percent)
}
