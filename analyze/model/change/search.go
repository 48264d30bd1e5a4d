package change

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/changepoint"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/steps"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// Search collects series, and finds their changes. It is not safe for concurrent use.
type Search struct {
	t      *timeline.Timeline
	window query.Window
	spans  *spans
	Series []*Series
}

// NewSearch returns a search in a window of a recording with these launches.
func NewSearch(t *timeline.Timeline, w query.Window, launches []Launches) *Search {
	return &Search{t: t, window: w, spans: newSpans(t, w, launches)}
}

// addSums is add for sums or peaks of equal parts of the time.
func (s *Search) addSums(d *description, order int, subject Subject, values changepoint.Series) *Series {
	series := s.add(d, order, subject, values)
	if series != nil {
		series.isSum = true
	}
	return series
}

// add adds a series, cut to the span of its subject. It leaves out a series without values.
func (s *Search) add(d *description, order int, subject Subject, values changepoint.Series) *Series {
	span, ok := s.spans.of(subject)
	if !ok {
		return nil
	}
	from, _ := slices.BinarySearch(values.AtNs, span.FromNs)
	to, _ := slices.BinarySearch(values.AtNs, span.ToNs+1)
	if to <= from {
		return nil
	}
	series := &Series{
		Subject: subject, Metric: d.metric, Title: d.title, Limits: d.limits, order: order,
		Series: changepoint.Series{AtNs: values.AtNs[from:to], Values: values.Values[from:to]},
	}
	s.Series = append(s.Series, series)
	return series
}

// AddSamples adds the NVML samples of the GPUs that the recorded processes use.
func (s *Search) AddSamples(u *metric.DeviceMetrics) {
	for _, device := range u.SortedIndexes() {
		of, subject := u.Devices[device], Subject{Device: device}
		isReplaced := make(map[string]bool)
		for i := range deviceMetrics {
			d := &deviceMetrics[i]
			samples := of[d.metric]
			if samples == nil || isReplaced[d.metric] {
				continue
			}
			isReplaced[d.insteadOf] = true
			values := changepoint.Series{AtNs: samples.AtNs, Values: samples.Values}
			if d.isRate {
				values = ratesOf(values.AtNs, values.Values)
			}
			if added := s.add(d, deviceOrder+i, subject, values); added != nil && d.isRate {
				added.Metric += "_per_second"
			}
		}
		for i := range errorMetrics {
			d := &errorMetrics[i]
			samples := of[d.metric]
			if samples == nil {
				continue
			}
			values := changepoint.Series{AtNs: samples.AtNs, Values: samples.Values}
			if _, isUsed := s.spans.of(subject); isUsed { // errors before the first launch count, too
				s.Series = append(s.Series, &Series{
					Subject: subject, Metric: d.metric, Title: d.title, order: errorOrder + i, Series: values,
					IsErrorCounter: true,
				})
			}
		}
	}
}

// ratesOf returns the increase per second of a counter, at the later one of two samples. A decrease means
// that the counter was reset.
func ratesOf(atNs []int64, counts []float64) (rates changepoint.Series) {
	for i := 1; i < len(atNs); i++ {
		d, ns := counts[i]-counts[i-1], atNs[i]-atNs[i-1]
		if d < 0 || ns <= 0 {
			continue
		}
		rates.AtNs = append(rates.AtNs, atNs[i])
		rates.Values = append(rates.Values, d/(float64(ns)/1e9))
	}
	return rates
}

// AddSteps adds the durations of the complete steps of a process. list is in order of time.
func (s *Search) AddSteps(pid int32, list []steps.Step) {
	d, order := describe(MetricStepTime)
	var values changepoint.Series
	for i := range list {
		if step := &list[i]; !step.IsCut {
			values.AtNs = append(values.AtNs, step.BeginNs)
			values.Values = append(values.Values, float64(step.DurNs()))
		}
	}
	s.add(&d, order, Subject{Device: -1, Pid: pid}, values)
}

// rampNs is the longest time that a change takes. NVML's power is an average over a second, and temperatures
// follow within some seconds.
const rampNs = 5_000_000_000

// minLevelNs is the shortest time that a level lasts. A shorter one is an outlier, or the end of the job.
const minLevelNs = 2_000_000_000

// Find returns a finding for each series, in the order of metrics and subjects. Each series is divided into at
// most `parts` parts. Outliers are found only if isThorough is set.
func (s *Search) Find(parts int, isThorough bool) (list []*Finding) {
	slices.SortStableFunc(s.Series, func(a, b *Series) int {
		return cmp.Or(
			cmp.Compare(
				a.order,
				b.order,
			),
			cmp.Compare(a.Device, b.Device),
			cmp.Compare(a.Pid, b.Pid),
			cmp.Compare(a.Metric, b.Metric),
		)
	})
	for _, series := range s.Series {
		span, _ := s.spans.of(series.Subject)
		f := &Finding{Series: series}
		switch {
		case series.IsErrorCounter:
			f.Changes = changepoint.FindRateChanges(&series.Series)
			f.IsTooShort = len(series.AtNs) < minCounterSamples
		default:
			f.Result = *changepoint.Find(&series.Series, changepoint.Options{
				Limits: series.Limits, WarmUpEndNs: span.warmUpEndNs, RampNs: rampNs, MinLevelNs: minLevelNs,
				MaxParts: parts,
			})
			if isThorough && !series.isSum {
				f.Outliers = changepoint.FindOutliers(&series.Series, &series.Limits)
			}
		}
		list = append(list, f)
	}
	return list
}

// minCounterSamples is the number of samples that the counter of errors needs.
const minCounterSamples = 3

// SharePct returns the difference of the levels of a change in percent of the old level. It is NaN if that is 0.
func SharePct(c *changepoint.Change) float64 {
	if c.From == 0 {
		return math.NaN()
	}
	return 100 * (c.To - c.From) / math.Abs(c.From)
}
