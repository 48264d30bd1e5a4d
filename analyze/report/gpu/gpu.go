package gpu

import (
	"math"
	"strconv"

	"github.com/gpurec/gpurec/analyze/model/calls"
	metricpkg "github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Run reports what NVML said of the GPUs: how busy they were, what held them down, and in which health they are.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.View()
	counts, err := calls.CountsWhile(t, func() error { return nil }) // for the quality block
	if err != nil {
		return nil, err
	}
	u := &metricpkg.Devices{T: t, Window: opt.Window(t.Recording()), Filter: &opt.Filter, Devices: make(map[int32]map[string]*metricpkg.Series)}
	u.Collect()
	r := &report.Report{Command: "gpu", Window: u.Window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes}
	if len(u.Devices) == 0 {
		r.NoMatch = noSamples(u)
	}
	throttling, health := throttleTable(u), healthTable(u)
	verdicts := verdictTable(u)
	metrics := metricTable(u)
	if err := metrics.Arrange("", opt.Top); err != nil {
		return nil, err
	}
	r.Totals = totals(u, &verdicts)
	r.Tables = []report.Table{verdicts, throttling, health, processTable(u), metrics}
	return r, nil
}

func noSamples(u *metricpkg.Devices) *query.NoMatch {
	devices := make(map[int32]bool)
	for _, s := range u.T.Facts.Samples {
		devices[s.Device] = true
	}
	if len(devices) == 0 {
		return nil
	}
	return query.FirstNoMatch(query.NewNoMatch("device", u.Filter.Devices, devices, func(v int32) string { return strconv.Itoa(int(v)) }))
}

// processSeries sorts the samples about processes.
func processSeries(u *metricpkg.Devices) map[timeline.PidOnDevice]map[string]*metricpkg.Series {
	found := make(map[timeline.PidOnDevice]map[string]*metricpkg.Series)
	for _, s := range u.T.Facts.ProcessSamples {
		if s.AtNs < u.Window.FromNs || s.AtNs > u.Window.ToNs || math.IsNaN(s.Value) || math.IsInf(s.Value, 0) || !u.Passes(&s) {
			continue
		}
		key := timeline.PidOnDevice{Device: s.Device, Pid: s.Pid}
		if found[key] == nil {
			found[key] = make(map[string]*metricpkg.Series)
		}
		name := u.T.Facts.Metrics.List[s.Metric]
		if found[key][name] == nil {
			found[key][name] = new(metricpkg.Series)
		}
		one := found[key][name]
		one.AtNs, one.Values = append(one.AtNs, s.AtNs), append(one.Values, s.Value)
	}
	for _, of := range found {
		for _, s := range of {
			s.Weigh()
		}
	}
	return found
}
