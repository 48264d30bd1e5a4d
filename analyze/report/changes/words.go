package changes

import (
	"fmt"
	"math"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/changepoint"
	"github.com/gpurec/gpurec/analyze/model/change"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// Where names the subject of a series.
func Where(t *timeline.Timeline, s change.Subject) string {
	switch {
	case s.Pid != 0:
		return t.PidLabel(s.Pid)
	case s.Device >= 0:
		return strings.TrimSpace(fmt.Sprintf("GPU %d %s", s.Device, t.Facts.Devices[s.Device].Name))
	}
	return "machine"
}

// valueOf returns a level of a series with its unit.
func valueOf(s *change.Series, v float64) catalog.MetricValue {
	name := s.Metric
	if s.IsErrorCounter {
		name = "errors_per_second"
	}
	return catalog.MetricValue{Value: v, Unit: catalog.UnitOfMetric(name)}
}

// Describe returns a change as a phrase, such as "SM clock fell from 1,980 MHz to 1,455 MHz (-27 %)".
func Describe(l *change.Located) string {
	verb := "rose"
	if l.Change.To < l.Change.From {
		verb = "fell"
	}
	text := fmt.Sprintf("%s %s from %s to %s", l.Title, verb, valueOf(l.Series, l.Change.From).TextWithUnit(),
		valueOf(l.Series, l.Change.To).TextWithUnit())
	if share := shareText(l.Change); share != "" {
		text += " (" + share + ")"
	}
	return text
}

// DescribeBriefly returns a change as its series and its share, such as "power -12%".
func DescribeBriefly(l *change.Located) string {
	if share := shareText(l.Change); share != "" {
		return l.Title + " " + share
	}
	return l.Title + " from " + valueOf(l.Series, l.Change.From).TextWithUnit() + " to " +
		valueOf(l.Series, l.Change.To).TextWithUnit()
}

// shareText returns the difference in percent of the old level, or "" if that is 0 or the difference is large.
func shareText(c *changepoint.Change) string {
	const most = 1000
	share := change.SharePct(c)
	if math.IsNaN(share) || math.Abs(share) > most {
		return ""
	}
	return fmt.Sprintf("%+.0f%%", share)
}

// fewSamples is the number of samples of a level below which the confidence is medium.
const fewSamples = 10

// Confidence returns the confidence of a change, and reasons for a confidence below high. A lost call or
// missing samples at the time of a change may be its cause.
func Confidence(t *timeline.Timeline, l *change.Located) (level string, reasons []string) {
	level = report.ConfidenceHigh
	lower := func(to, format string, args ...any) {
		if level == report.ConfidenceHigh || to == report.ConfidenceLow {
			level = to
		}
		reasons = append(reasons, fmt.Sprintf(format, args...))
	}
	if n := min(l.Change.Before, l.Change.After); n < fewSamples && !l.IsErrorCounter {
		lower(report.ConfidenceMedium, "a level has only %s", units.CountWithNoun(int64(n), "sample"))
	}
	if l.IsEstimated {
		lower(report.ConfidenceMedium, "the rate is an estimate: launches were not recorded at times")
	}
	around := query.Window{FromNs: l.Change.BeforeNs - nearLossNs, ToNs: l.Change.AfterNs + nearLossNs}
	for i := range t.Facts.Lost {
		if o := &t.Facts.Lost[i]; l.Pid != 0 && o.StartNs <= around.ToNs && o.StartNs+o.DurNs >= around.FromNs {
			lower(report.ConfidenceLow, "calls were lost at that time")
			break
		}
	}
	if ns := l.Change.AfterNs - l.Change.BeforeNs; ns > gapFactor*usualDistance(l.AtNs) && ns > nearLossNs {
		lower(report.ConfidenceMedium, "no samples for %s at that time", units.FormatDuration(ns))
	}
	return level, reasons
}

const (
	// nearLossNs is how near to a change a loss matters.
	nearLossNs = 1_000_000_000
	// gapFactor is how many usual distances of samples are a gap.
	gapFactor = 5
)

// usualDistance returns the average distance of the samples, in ns.
func usualDistance(atNs []int64) int64 {
	n := int64(len(atNs))
	if n < 2 {
		return 0
	}
	return (atNs[n-1] - atNs[0]) / (n - 1)
}

// describeEvent returns an event as a sentence without an end.
func (sc *scan) describeEvent(e *change.Event) string {
	parts := []string{Describe(&e.Changes[0]) + " on " + Where(sc.t, e.Changes[0].Subject)}
	const most = 3
	for i := range e.Changes[1:min(len(e.Changes), most+1)] {
		parts = append(parts, DescribeBriefly(&e.Changes[i+1]))
	}
	if n := len(e.Changes) - most - 1; n > 0 {
		parts = append(parts, fmt.Sprintf("%d more", n))
	}
	return "at " + TimeText(sc.t, e.AfterNs) + " " + strings.Join(parts, ", ")
}

// TimeText returns a time, Unix ns, in seconds from the start of the recording.
func TimeText(t *timeline.Timeline, atNs int64) string {
	return fmt.Sprintf("%.1f s", float64(atNs-t.RecordingWindow().FromNs)/1e9)
}
