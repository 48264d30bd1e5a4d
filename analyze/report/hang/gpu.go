package hang

import (
	"fmt"
	"math"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	metricpkg "github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/units"
)

// gpuSilence is the activity of a process's GPU while the process was silent.
type gpuSilence struct {
	device  int32
	busyPct any    // share of the time in which a kernel ran, a float64; nil: not known
	smPct   any    // share of SMs that were active, a float64; nil: not known
	meaning string // a sentence for the evidence
}

// utilizationLagNs is how long NVML may report a GPU as busy after its work: its sampling period.
const utilizationLagNs = 1_000_000_000

// askGPU fills in what the GPU of a silent process did, and what that means.
func (s *Scan) askGPU(p *ProcessVerdict) {
	call := p.waitingIn
	if call == nil {
		call = p.Life.lastLaunch()
	}
	if call == nil {
		return
	}
	d := s.Details(call)
	device, ok := s.T.Facts.NVMLDevice(p.Life.Pid, s.T.DeviceOf(p.Life.Pid, d.context, d.device))
	if !ok {
		return
	}
	from := s.EndNs - p.SilentNs
	p.gpu = gpuSilence{
		device:  device,
		busyPct: s.mean(catalog.MetricGPUBusy, device, from),
		smPct:   s.mean(catalog.MetricSMActive, device, from),
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
	p.gpu.meaning += s.reading(p, busy)
}

// reading explains the utilization of the GPU of a silent process, in percent.
func (s *Scan) reading(p *ProcessVerdict, busy float64) string {
	kernel := s.lastKernel(p.Life)
	switch {
	case busy >= gpuBusyPct && strings.Contains(strings.ToLower(kernel), "nccl"):
		return fmt.Sprintf(": the last kernel, %s, is a collective; those spin while a peer is missing", kernel)
	case busy >= gpuBusyPct && p.waitingIn != nil:
		return ": a kernel does not end, or somebody else uses the GPU"
	case busy >= gpuBusyPct:
		return ": it still works on what it was given, or for somebody else"
	case busy >= gpuIdlePct:
		return ": there is work, of this process or another"
	case p.waitingIn != nil:
		return ": no kernel runs; what is waited for is not the GPU's work, but a host function, an event, a value " +
			"in memory or a peer that does not come"
	}
	return ": neither the process nor its GPU does anything; look at the CPU: data loading, locks, network"
}

// mean returns the average of a metric over the silent time, nil without samples. The first second
// counts only if there is no other.
func (s *Scan) mean(metric string, device int32, from int64) any {
	id, ok := s.T.Facts.Metrics.Ids[metric]
	if !ok {
		return nil
	}
	for _, begin := range []int64{units.EndOf(from, utilizationLagNs), from} {
		var of metricpkg.Series
		for _, sample := range s.T.Facts.Samples {
			if sample.Metric == id && sample.Device == device && sample.AtNs > begin && sample.AtNs <= s.EndNs &&
				!math.IsNaN(sample.Value) && !math.IsInf(sample.Value, 0) {
				of.AtNs, of.Values = append(of.AtNs, sample.AtNs), append(of.Values, sample.Value)
			}
		}
		if len(of.Values) > 0 {
			of.Weigh()
			return of.Mean()
		}
	}
	return nil
}

// troubleNs is the time before the last progress in which an error may have caused the hang.
const troubleNs = 10_000_000_000

// trouble returns the Xids and the last error of a process from troubleNs before its last progress
// on.
func (s *Scan) trouble(p *ProcessVerdict) (list []string) {
	from := p.Life.lastNs - troubleNs
	for i := range s.T.Facts.Xids {
		x := &s.T.Facts.Xids[i]
		ofDevice := x.Device >= 0 && x.Pid == 0 && p.gpu.meaning != "" && x.Device == p.gpu.device
		if x.Before || x.AtNs < from || x.AtNs > s.EndNs || x.Pid != p.Life.Pid && !ofDevice {
			continue
		}
		e, _ := x.Describe()
		list = append(
			list,
			fmt.Sprintf("%s %d (%s) %s before", x.Kind(), x.Code, e.Name, units.Duration(s.EndNs-x.AtNs)),
		)
	}
	if c := &p.Life.lastError; p.Life.errors > 0 && c.endNs >= from {
		d := s.Details(c)
		list = append(
			list,
			fmt.Sprintf(
				"%s returned %d %s %s before",
				d.name,
				d.result,
				catalog.ResultName(d.result),
				units.Duration(s.EndNs-c.endNs),
			),
		)
	}
	return list
}
