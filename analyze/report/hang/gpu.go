package hang

import (
	"fmt"
	"math"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/units"
)

// silentGPUActivity is the activity of a process's GPU while the process made no progress.
type silentGPUActivity struct {
	device  int32
	busyPct any    // share of the time in which a kernel was running, a float64; nil: unknown
	smPct   any    // share of active SMs, a float64; nil: unknown
	meaning string // sentence for the evidence; "": no data
	// explanation says what meaning implies for the process. It is not needed if operations is known.
	explanation string
	operations  string // sentence about the operations that the GPU has not finished; "": unknown
}

// utilizationLagNs is the time for which NVML may report a GPU as busy after its work, ns. It is
// NVML's sampling period.
const utilizationLagNs = 1_000_000_000

// setGPUActivity sets the GPU activity of a process without progress, and its meaning.
func (s *Scan) setGPUActivity(p *ProcessVerdict) {
	call := p.waitingIn
	if call == nil {
		call = p.History.lastLaunch()
	}
	if call == nil {
		return
	}
	d := s.Details(call)
	device, ok := s.T.Facts.NVMLIndexOf(p.History.Pid, s.T.DeviceOfCall(p.History.Pid, d.context, d.device))
	if !ok {
		return
	}
	from := s.EndNs - p.SilentNs
	p.gpu = silentGPUActivity{
		device:  device,
		busyPct: s.meanInSilentTime(catalog.MetricGPUUtilization, device, from),
		smPct:   s.meanInSilentTime(catalog.MetricSMActive, device, from),
	}
	busy, ok := p.gpu.busyPct.(float64)
	if !ok {
		if busy, ok = p.gpu.smPct.(float64); !ok {
			return
		}
	}
	p.gpu.meaning = fmt.Sprintf("GPU %d was busy %.0f %% of the silent time", device, busy)
	if sm, ok := p.gpu.smPct.(float64); ok && p.gpu.busyPct != nil {
		p.gpu.meaning += fmt.Sprintf(" (SMs active %.0f %%)", sm)
	}
	p.gpu.explanation = s.explainUtilization(p, busy)
}

// explainUtilization explains the GPU utilization of a process without progress. busy is in
// percent.
func (s *Scan) explainUtilization(p *ProcessVerdict, busy float64) string {
	kernel := s.lastKernelName(p.History)
	switch {
	case busy >= minGPUBusyPct && strings.Contains(strings.ToLower(kernel), "nccl"):
		return fmt.Sprintf(": the last kernel, %s, is a collective, which spins until all peers take part", kernel)
	case busy >= minGPUBusyPct && p.waitingIn != nil:
		return ": a kernel does not end, or another process uses the GPU"
	case busy >= minGPUBusyPct:
		return ": it still runs work of this process, or work of another process"
	case busy >= maxGPUIdlePct:
		return ": it runs work of this process or of another process"
	case p.waitingIn != nil:
		return ": no kernel is running; the call waits for a host function, an event, a value in memory or a peer, " +
			"not for GPU work"
	}
	return ": the process and its GPU are both idle; check the CPU side: data loading, locks, network"
}

// meanInSilentTime returns the average of a metric over the silent time, or nil without samples. It
// skips the first second if there are later samples.
func (s *Scan) meanInSilentTime(metricName string, device int32, from int64) any {
	id, ok := s.T.Facts.Metrics.Ids[metricName]
	if !ok {
		return nil
	}
	for _, begin := range []int64{units.EndOfRange(from, utilizationLagNs), from} {
		var series metric.Series
		for _, sample := range s.T.Facts.Samples {
			if sample.Metric == id && sample.Device == device && sample.AtNs > begin && sample.AtNs <= s.EndNs &&
				!math.IsNaN(sample.Value) && !math.IsInf(sample.Value, 0) {
				series.AtNs, series.Values = append(series.AtNs, sample.AtNs), append(series.Values, sample.Value)
			}
		}
		if len(series.Values) > 0 {
			series.ComputeWeights()
			return series.Mean()
		}
	}
	return nil
}

// errorLookbackNs is the time before the last progress in which an error may have caused the hang,
// ns.
const errorLookbackNs = 10_000_000_000

// recentErrors returns the Xids and the last CUDA error of a process since errorLookbackNs before
// its last progress.
func (s *Scan) recentErrors(p *ProcessVerdict) (list []string) {
	from := p.History.lastNs - errorLookbackNs
	for i := range s.T.Facts.Xids {
		x := &s.T.Facts.Xids[i]
		ofDevice := x.Device >= 0 && x.Pid == 0 && p.gpu.meaning != "" && x.Device == p.gpu.device
		if x.Before || x.AtNs < from || x.AtNs > s.EndNs || x.Pid != p.History.Pid && !ofDevice {
			continue
		}
		e, _ := x.Describe()
		list = append(
			list,
			fmt.Sprintf("%s %d (%s) %s before", x.Kind(), x.Code, e.Name, units.FormatDuration(s.EndNs-x.AtNs)),
		)
	}
	if c := &p.History.lastError; p.History.errors > 0 && c.endNs >= from {
		d := s.Details(c)
		list = append(
			list,
			fmt.Sprintf(
				"%s returned %d %s %s before",
				d.name,
				d.result,
				catalog.ResultName(d.result),
				units.FormatDuration(s.EndNs-c.endNs),
			),
		)
	}
	return list
}
