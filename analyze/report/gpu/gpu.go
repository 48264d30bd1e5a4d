package gpu

import (
	"math"
	"strconv"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Run reports NVML's samples of the GPUs: how busy they were, why they were throttled, and their
// health. It returns no rows for a recording without samples.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.NewView()
	counts, err := calls.CountReplayWhile(t, func() error { return nil }) // the quality block needs them
	if err != nil {
		return nil, err
	}
	gpus := &metric.DeviceMetrics{
		T:       t,
		Window:  opt.NarrowWindow(t.RecordingWindow()),
		Filter:  &opt.Filter,
		Devices: make(map[int32]map[string]*metric.Series),
	}
	gpus.CollectSamples()
	r := &report.Report{
		Command: "gpu",
		Window:  gpus.Window,
		Quality: quality.OfRecording(t, counts),
		Notes:   t.Facts.Notes,
	}
	if len(gpus.Devices) == 0 {
		r.NoMatch = explainNoSamples(gpus)
	}
	found := findVerdicts(gpus)
	metrics := metricTable(gpus)
	if err := metrics.SortAndCut("", opt.Top); err != nil {
		return nil, err
	}
	r.Totals = computeTotals(gpus, found)
	r.Tables = []report.Table{
		verdictTable(found), throttleTable(gpus), healthTable(gpus), processTable(gpus), metrics,
	}
	return r, nil
}

// explainNoSamples explains why no sample passes the filter. It returns nil if the recording has no
// samples.
func explainNoSamples(gpus *metric.DeviceMetrics) *query.NoMatchError {
	devices := make(map[int32]bool)
	for _, s := range gpus.T.Facts.Samples {
		devices[s.Device] = true
	}
	if len(devices) == 0 {
		return nil
	}
	name := func(device int32) string { return strconv.Itoa(int(device)) }
	return query.FirstNoMatchError(query.NewNoMatchError("device", gpus.Filter.Devices, devices, name))
}

// collectProcessSeries returns the time series of samples about processes, by metric.
func collectProcessSeries(gpus *metric.DeviceMetrics) map[timeline.PidOnDevice]map[string]*metric.Series {
	found := make(map[timeline.PidOnDevice]map[string]*metric.Series)
	for _, s := range gpus.T.Facts.ProcessSamples {
		if s.AtNs < gpus.Window.FromNs || s.AtNs > gpus.Window.ToNs || !gpus.PassesFilter(&s) ||
			math.IsNaN(s.Value) || math.IsInf(s.Value, 0) {
			continue
		}
		key := timeline.PidOnDevice{Device: s.Device, Pid: s.Pid}
		if found[key] == nil {
			found[key] = make(map[string]*metric.Series)
		}
		name := gpus.T.Facts.Metrics.List[s.Metric]
		if found[key][name] == nil {
			found[key][name] = new(metric.Series)
		}
		series := found[key][name]
		series.AtNs, series.Values = append(series.AtNs, s.AtNs), append(series.Values, s.Value)
	}
	for _, byMetric := range found {
		for _, s := range byMetric {
			s.ComputeWeights()
		}
	}
	return found
}
