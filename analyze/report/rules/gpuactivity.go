package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/units"
)

// Names of GPM metrics: the share of time in which the pipes for FP64, FP32 and FP16 arithmetic
// were active, %.
const (
	metricFP64Active = "gpm_fp64_active_percent"
	metricFP32Active = "gpm_fp32_active_percent"
	metricFP16Active = "gpm_fp16_active_percent"
)

const (
	// lowGPUActivityPct is the activity, %, below which a GPU is underused. The GPU utilization
	// rule of nsys has the same default.
	lowGPUActivityPct = 50.0
	// wideBlocks is the number of blocks that a kernel needs to use half of the SMs of a large GPU, which has 108
	// to 148.
	wideBlocks = 64
	// minNarrowSharePct is the smallest share of launches below wideBlocks, %, that explains a low SM activity.
	minNarrowSharePct = 50.0
	// lowOccupancyPct is the occupancy of active SMs, %, below which rule low-occupancy fires. The
	// four schedulers of an SM need about 16 of 64 warps to hide the latency of arithmetic.
	lowOccupancyPct = 25.0
	// busyTensorCorePct and busyDRAMPct are the activity, %, above which kernels need no more occupancy.
	busyTensorCorePct, busyDRAMPct = 10.0, 50.0
	// unusedTensorCorePct is the activity, %, below which tensor cores count as unused. They would help only
	// if the other arithmetic pipes are active at least minArithmeticPipePct, %. Otherwise kernels wait for
	// memory.
	unusedTensorCorePct, minArithmeticPipePct = 1.0, 20.0
)

var lowSMActivityRule = Rule{
	ID: "low-sm-activity",
	About: "less than 50% of the SMs were active on average while a GPU was not idle, between the first and the last " +
		"launch (GPM). Without GPM: kernels ran less than 50% of that time. At least half of the launches have fewer " +
		"than 64 blocks, and no other process uses the GPU",
	Report: "gpu",
	advice: "Give the GPU more parallel work: larger batches, several streams, or fewer and larger kernels.",
	check:  checkLowSMActivity,
}

func checkLowSMActivity(s *Scan) ([]Hit, error) {
	var hits []Hit
	for _, device := range s.listUsedGPUs() {
		samples := s.samplesBetweenLaunches(device, catalog.MetricSMActive)
		summary := "SMs active %.1f%% on average while the GPU was not idle"
		if samples == nil {
			samples = s.samplesBetweenLaunches(device, catalog.MetricGPUUtilization)
			summary = "a kernel ran %.1f%% of the time on average while the GPU was not idle"
		}
		if samples == nil || len(s.tracksByGPU[device]) == 0 {
			continue
		}
		busy := filterSamples(samples, func(v float64) bool { return v >= metric.MaxIdlePct })
		if len(busy.Values) < minGPUSamples || busy.Mean() >= lowGPUActivityPct {
			continue
		}
		narrowPct, sized := s.narrowLaunchPct(device)
		if sized == 0 || narrowPct < minNarrowSharePct || s.isShared(device) {
			continue
		}
		h := s.newSampledHit(SeverityNotice, busy, summary+", because %.0f%% of the launches have fewer than %d blocks",
			busy.Mean(), narrowPct, wideBlocks)
		h.pid, h.sharePct = s.sortedLaunchTracks(device)[0].Pid, 100-busy.Mean()
		h.Evidence = []Evidence{
			{
				Where: s.gpuLabel(
					device,
				),
				Count:   int64(len(busy.Values)),
				Ns:      units.RoundInt(busy.CoveredNs()),
				FirstNs: busy.AtNs[0],
				lastNs:  busy.AtNs[len(busy.AtNs)-1],
				Detail: fmt.Sprintf(
					"at most %.1f%%, half of the time below %.1f%%",
					slices.Max(busy.Values),
					busy.Quantile(0.5),
				),
			},
		}
		hits = append(hits, h)
	}
	return hits, nil
}

// narrowLaunchPct returns the share of the launches on a GPU with fewer than wideBlocks blocks, in percent, and the number
// of launches with a known size.
func (s *Scan) narrowLaunchPct(device int32) (pct float64, sized int64) {
	narrow := int64(0)
	for key, l := range s.kernels.Counts {
		isOnDevice := slices.ContainsFunc(s.tracksByGPU[device], func(t gaps.DeviceTrack) bool {
			return t.Pid == key.Pid && t.Device == key.Device
		})
		if !isOnDevice {
			continue
		}
		sized += l.Sized
		if key.BlockCount() < wideBlocks {
			narrow += l.Sized
		}
	}
	return units.Percent(narrow, sized), sized
}

// isShared reports whether several processes use a GPU: recorded ones, or one that is not and has memory on it.
func (s *Scan) isShared(device int32) bool {
	for _, sample := range s.t.Facts.ProcessMemoryAt(device, s.workSeries.Window.ToNs) {
		if _, isRecorded := s.hang.Processes[sample.Pid]; !isRecorded {
			return true
		}
	}
	pid := s.tracksByGPU[device][0].Pid
	return slices.ContainsFunc(s.tracksByGPU[device], func(t gaps.DeviceTrack) bool { return t.Pid != pid })
}

// filterSamples returns the samples whose value matches, with their weights.
func filterSamples(s *metric.Series, matches func(float64) bool) *metric.Series {
	selected := new(metric.Series)
	for i, v := range s.Values {
		if matches(v) {
			selected.AtNs = append(selected.AtNs, s.AtNs[i])
			selected.Values = append(selected.Values, v)
			selected.Weights = append(selected.Weights, s.Weights[i])
		}
	}
	return selected
}

// gpmMeans are the averages of GPM metrics of one GPU, %. A metric without samples is -1.
type gpmMeans struct{ sm, occupancy, tensor, dram, arithmetic float64 }

// computeGPMMeans returns the averages of a GPU between the first and the last launch, and its
// samples of SM activity. samples is nil if the recorded processes did not use the GPU, if there
// are too few samples, or if fewer than lowGPUActivityPct of the SMs were active.
func (s *Scan) computeGPMMeans(device int32) (m gpmMeans, samples *metric.Series) {
	samples = s.samplesBetweenLaunches(device, catalog.MetricSMActive)
	if samples == nil || len(s.tracksByGPU[device]) == 0 || samples.Mean() < lowGPUActivityPct {
		return m, nil
	}
	mean := func(name string) float64 {
		if values := s.samplesBetweenLaunches(device, name); values != nil {
			return values.Mean()
		}
		return -1
	}
	return gpmMeans{
		sm:         samples.Mean(),
		occupancy:  mean(catalog.MetricSMOccupancy),
		tensor:     mean(catalog.MetricTensorActive),
		dram:       mean(catalog.MetricDRAMBandwidth),
		arithmetic: max(mean(metricFP64Active), mean(metricFP32Active), mean(metricFP16Active)),
	}, samples
}

// describe lists the averages of the metrics that have samples.
func (m gpmMeans) describe() string {
	var parts []string
	for _, p := range []struct {
		name string
		pct  float64
	}{
		{"SMs active", m.sm},
		{"occupancy", m.occupancy},
		{"tensor cores", m.tensor},
		{"other arithmetic units", m.arithmetic},
		{"memory bandwidth", m.dram},
	} {
		if p.pct >= 0 {
			parts = append(parts, fmt.Sprintf("%s %.1f%%", p.name, p.pct))
		}
	}
	return strings.Join(parts, ", ")
}

var lowOccupancyRule = Rule{
	ID: "low-occupancy",
	About: "active SMs run less than 25% of the warps that they have room for, tensor cores are active less than 10% " +
		"of the time, and DRAM bandwidth is below 50%. Checked for GPUs with at least 50% of their SMs active (GPM)",
	Report: "gpu",
	advice: "Too few threads are resident to hide latency. Look for kernels with small grids, many registers or " +
		"much shared memory (gpurec analyze kernels).",
	check: checkLowOccupancy,
}

func checkLowOccupancy(s *Scan) ([]Hit, error) {
	return s.newGPMHits(SeverityNotice, func(m gpmMeans) string {
		if m.occupancy < 0 || 100*m.occupancy/m.sm >= lowOccupancyPct || m.tensor >= busyTensorCorePct ||
			m.dram >= busyDRAMPct {
			return ""
		}
		return fmt.Sprintf("active SMs run only %.0f%% of their possible warps", 100*m.occupancy/m.sm)
	})
}

var unusedTensorCoresRule = Rule{
	ID: "tensor-cores-unused",
	About: "tensor cores are active less than 1% of the time, although other arithmetic pipes are active 20% or " +
		"more. Checked for GPUs with at least 50% of their SMs active (GPM)",
	Report: "gpu",
	advice: "If the kernels compute matrix products, use tensor cores: bfloat16 (autocast) or TF32 " +
		"(torch.set_float32_matmul_precision('high')).",
	check: checkUnusedTensorCores,
}

func checkUnusedTensorCores(s *Scan) ([]Hit, error) {
	return s.newGPMHits(SeverityInfo, func(m gpmMeans) string {
		if m.tensor < 0 || m.tensor >= unusedTensorCorePct || m.arithmetic < minArithmeticPipePct {
			return ""
		}
		return fmt.Sprintf("tensor cores active %.1f%%, other arithmetic units %.1f%%", m.tensor, m.arithmetic)
	})
}

// newGPMHits returns a hit for each GPU whose averages have a problem. problem describes it in a
// phrase, or returns "" if there is none.
func (s *Scan) newGPMHits(severity int, problem func(gpmMeans) string) ([]Hit, error) {
	var hits []Hit
	for _, device := range s.listUsedGPUs() {
		m, samples := s.computeGPMMeans(device)
		if samples == nil {
			continue
		}
		if text := problem(m); text != "" {
			h := s.newSampledHit(severity, samples, "%s", text)
			h.Evidence = []Evidence{
				{
					Where: s.gpuLabel(
						device,
					),
					Count:   int64(len(samples.Values)),
					Ns:      units.RoundInt(samples.CoveredNs()),
					FirstNs: samples.AtNs[0],
					lastNs:  samples.AtNs[len(samples.AtNs)-1],
					Detail:  m.describe(),
				},
			}
			hits = append(hits, h)
		}
	}
	return hits, nil
}
