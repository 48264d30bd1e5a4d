package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Names of GPM metrics: the share of time in which the pipes for FP64, FP32 and FP16 arithmetic
// were active, %.
const (
	metricFP64Active = "gpm_fp64_active_percent"
	metricFP32Active = "gpm_fp32_active_percent"
	metricFP16Active = "gpm_fp16_active_percent"
)

const (
	// With fewer than minGPUSamples samples a rule does not fire. With fewer than
	// confidentGPUSamples its confidence is medium. gpurec takes two GPM samples per second.
	minGPUSamples, confidentGPUSamples = 4, 10
	// minIdleSharePct is the smallest share of time, %, for which rule gpu-idle reports an idle
	// GPU.
	minIdleSharePct = 20.0
	// minLaunchSpanNs is the shortest time between the first and the last launch, ns, in which gaps
	// show idle time without samples. A shorter time is only the start of a program.
	minLaunchSpanNs = int64(5e9)
	// lowGPUActivityPct is the activity, %, below which a GPU is underused. The GPU utilization
	// rule of nsys has the same default.
	lowGPUActivityPct = 50.0
	// lowOccupancyPct is the occupancy of active SMs, %, below which rule low-occupancy fires. The
	// four schedulers of an SM need about 16 of 64 warps to hide the latency of arithmetic.
	lowOccupancyPct = 25.0
	// Kernels that keep tensor cores or DRAM this busy, %, do not need more occupancy.
	busyTensorCorePct, busyDRAMPct = 10.0, 50.0
	// Tensor cores count as unused below unusedTensorCorePct, %. They would help only if the other
	// arithmetic pipes are active at least minArithmeticPipePct, %: otherwise kernels wait for
	// memory.
	unusedTensorCorePct, minArithmeticPipePct = 1.0, 20.0
)

// listUsedGPUs returns the NVML indexes of the GPUs on which the recorded processes launched work.
// If the recording does not contain this mapping, it returns all sampled GPUs.
func (s *Survey) listUsedGPUs() []int32 {
	if len(s.tracksByGPU) == 0 {
		return s.series.SortedIndexes()
	}
	return slices.Sorted(maps.Keys(s.tracksByGPU))
}

// gpuLabel returns the index and name of a GPU.
func (s *Survey) gpuLabel(device int32) string {
	return strings.TrimSpace(fmt.Sprintf("GPU %d %s", device, s.t.Facts.Devices[device].Name))
}

// newSampledHit returns a hit without evidence. Its confidence depends on the number of samples.
func (s *Survey) newSampledHit(severity int, samples *metric.Series, format string, args ...any) Hit {
	h := Hit{Severity: severity, Summary: fmt.Sprintf(format, args...), Confidence: report.ConfidenceHigh}
	if n := len(samples.Values); n < confidentGPUSamples {
		h.lowerConfidence(report.ConfidenceMedium, "only %d samples", n)
	}
	return h
}

// samplesBetweenLaunches returns the samples of a metric between the first and the last launch of
// the recorded processes. It returns nil if there are fewer than minGPUSamples.
func (s *Survey) samplesBetweenLaunches(device int32, name string) *metric.Series {
	if samples := s.workSeries.Devices[device][name]; samples != nil && len(samples.Values) >= minGPUSamples {
		return samples
	}
	return nil
}

var throttlingRule = Rule{
	ID: "throttling",
	About: "the clocks of a GPU were lowered at least 1% of the time by temperature, power brake or hardware " +
		"slowdown: a problem. " +
		"Clocks lowered at least 10% of the time by the power cap alone are an info: this is normal under full load",
	Report: "gpu",
	advice: "Check the cooling and the power supply of the machine. To see the present state, run " +
		"nvidia-smi -q -d PERFORMANCE.",
	check: checkThrottling,
}

// minPowerCapSharePct is the smallest share of time at the power cap, %, that rule throttling
// reports.
const minPowerCapSharePct = 10.0

func checkThrottling(s *Survey) ([]Hit, error) {
	var hits []Hit
	for _, device := range s.listUsedGPUs() {
		samples := s.series.Devices[device][catalog.MetricClockEventReasons]
		if samples == nil || len(samples.Values) < minGPUSamples {
			continue
		}
		hard, capped := samples.SharePct(
			gpu.HasClockReason(gpu.ClockSlowdownBits&^gpu.ClockPowerCapBit),
		), samples.SharePct(
			gpu.HasClockReason(gpu.ClockPowerCapBit),
		)
		if hard < minTimeSharePct && capped < minPowerCapSharePct {
			continue
		}
		h := s.newSampledHit(
			SeverityProblem,
			samples,
			"clocks lowered for %.1f%% of the time",
			samples.SharePct(gpu.IsThrottled),
		)
		if hard < minTimeSharePct {
			h.Severity, h.Advice = SeverityInfo, "The power cap limits the clocks, which is normal under full load. "+
				"If the machine allows it, a higher limit (nvidia-smi -pl) is faster."
		}
		var names []string
		for i := range gpu.ClockReasons {
			c := &gpu.ClockReasons[i]
			pct := samples.SharePct(gpu.HasClockReason(c.Bit))
			if !c.Slows || pct < minTimeSharePct {
				continue
			}
			names = append(names, c.Name)
			hasReason := gpu.HasClockReason(c.Bit)
			h.Evidence = append(h.Evidence, Evidence{
				Where: s.gpuLabel(
					device,
				),
				Count:   int64(len(samples.Values)),
				Ns:      units.RoundInt(pct / 100 * samples.CoveredNs()),
				FirstNs: samples.AtNs[slices.IndexFunc(samples.Values, hasReason)],
				lastNs:  samples.AtNs[lastMatchIndex(samples.Values, hasReason)],
				Detail: fmt.Sprintf(
					"%s for %.1f%% of the time, over time %s",
					c.Name,
					pct,
					drawSparkline(samples, s.Window, hasReason),
				),
			})
		}
		h.Summary += ": " + units.JoinWithAnd(names)
		sortEvidence(h.Evidence)
		hits = append(hits, h)
	}
	return hits, nil
}

// sparklineParts is the number of equal parts of the window that drawSparkline draws.
const sparklineParts = 20

// drawSparkline draws a sparkline of the window: for each part, the share of the samples that
// match.
func drawSparkline(s *metric.Series, w query.Window, matches func(float64) bool) string {
	var all, shares [sparklineParts]float64
	for i, v := range s.Values {
		part := max(
			0,
			min(int(float64(s.AtNs[i]-w.FromNs)/float64(max(1, w.DurNs()))*sparklineParts), sparklineParts-1),
		)
		all[part]++
		if matches(v) {
			shares[part]++
		}
	}
	for i := range shares {
		shares[i] /= max(1, all[i])
	}
	return units.Sparkline(shares[:])
}

var gpuIdleRule = Rule{
	ID: "gpu-idle",
	About: "a GPU was idle at least 20% of the time between the first and the last launch, according to SM activity " +
		"(GPM) or GPU utilization. " +
		"Without samples: gaps of 1 ms or more between launches, without a wait for the GPU, are at least 20% of " +
		"that time",
	Report: "gaps",
	advice: "Prepare the next step while the GPU works: use more data loader workers, pinned memory and async " +
		"copies. Avoid waits between launches.",
	check: checkGPUIdle,
}

func checkGPUIdle(s *Survey) ([]Hit, error) {
	var hits []Hit
	for _, device := range s.listUsedGPUs() {
		b, ok := s.workSeries.BusyOf(device)
		if !ok || len(s.tracksByGPU[device]) == 0 || b.IdlePct < minIdleSharePct {
			continue
		}
		samples := cmp.Or(
			s.samplesBetweenLaunches(device, catalog.MetricSMActive),
			s.samplesBetweenLaunches(device, catalog.MetricGPUUtilization),
		)
		if samples == nil {
			continue
		}
		if err := s.explainLaunchGaps(); err != nil {
			return nil, err
		}
		h := s.newSampledHit(
			SeverityNotice,
			samples,
			"idle %.1f%% of the time between first and last launch",
			b.IdlePct,
		)
		for _, track := range s.sortedLaunchTracks(device) {
			h.Evidence = append(h.Evidence, s.longestGapEvidence(track)...)
		}
		sortEvidence(h.Evidence)
		h.Evidence = append([]Evidence{
			{
				Where: s.gpuLabel(
					device,
				),
				Count:   int64(len(samples.Values)),
				Ns:      units.RoundInt(b.IdlePct / 100 * samples.CoveredNs()),
				FirstNs: s.workSeries.Window.FromNs,
				lastNs:  s.workSeries.Window.ToNs,
				Detail:  "samples without a running kernel",
			},
		}, h.Evidence...)
		hits = append(hits, h)
	}
	for _, track := range s.gaps.SortedTracks() {
		h, err := s.findIdleByGaps(track)
		if err != nil {
			return nil, err
		}
		hits = append(hits, h...)
	}
	return hits, nil
}

// findIdleByGaps returns a hit for a launch track whose GPU was not sampled, if its gaps show that
// the GPU was idle for minIdleSharePct of the time.
func (s *Survey) findIdleByGaps(track gaps.DeviceTrack) ([]Hit, error) {
	launches := s.gaps.Tracks[track]
	span := launches.UntilNs - launches.FirstNs
	if track.Device == gaps.AllDevicesOfProcess && len(s.gaps.Tracks) > 1 || s.hasGPUSamples(track) ||
		span < minLaunchSpanNs ||
		launches.Gaps.SumNs < int64(minIdleSharePct/100*float64(span)) {
		return nil, nil
	}
	if err := s.explainLaunchGaps(); err != nil {
		return nil, err
	}
	var idle int64
	for i := range s.gaps.List {
		if g := &s.gaps.List[i]; g.Track == track {
			_, ns := longestIdleActivity(g)
			idle = units.EndOfRange(idle, ns)
		}
	}
	if pct := units.Percent(idle, span); pct >= minIdleSharePct {
		h := s.newHit(SeverityNotice, "%.1f%% of the time between first and last launch without new work or a wait "+
			"for the GPU", pct)
		h.lowerConfidence(
			report.ConfidenceLow,
			"there are no samples of this GPU, so it may have been busy with earlier work",
		)
		h.Evidence = s.longestGapEvidence(track)
		return []Hit{h}, nil
	}
	return nil, nil
}

// hasGPUSamples reports whether the GPU of a launch track has samples of its activity.
func (s *Survey) hasGPUSamples(track gaps.DeviceTrack) bool {
	index, ok := s.t.Facts.NVMLIndexOf(track.Pid, track.Device)
	return ok &&
		(s.samplesBetweenLaunches(index, catalog.MetricSMActive) != nil ||
			s.samplesBetweenLaunches(index, catalog.MetricGPUUtilization) != nil)
}

// longestGapEvidence returns the longest gaps of a launch track as evidence: one row for each call
// site and CPU activity.
func (s *Survey) longestGapEvidence(track gaps.DeviceTrack) []Evidence {
	type gapCause struct{ activity, site string }
	found := make(map[gapCause]*Evidence)
	for i := range s.gaps.List {
		g := &s.gaps.List[i]
		if g.Track != track || g.Busy.GPUState() == gaps.GPUStateBusy {
			continue
		}
		activity, idleNs := longestIdleActivity(g)
		key := gapCause{activity, s.gaps.Names.List[g.EndedBy.Site]}
		stack := g.EndedBy.Stack
		if activity != gaps.ActivityOutsideCUDA {
			key.site, stack = g.Activity.Site, g.Activity.Longest.Stack
		}
		p := found[key]
		if p == nil {
			detail := "gaps between launches, mostly " + gaps.ActivityPhrase(activity)
			if activity == gaps.ActivityOutsideCUDA {
				detail += "; this site made the launch after the gap"
			}
			p = &Evidence{
				Where:   key.site,
				Stack:   stack,
				Count:   int64(0),
				Ns:      int64(0),
				FirstNs: g.FromNs,
				lastNs:  g.ToNs,
				Detail:  detail,
			}
			found[key] = p
		}
		p.Count, p.Ns = p.Count.(int64)+1, units.EndOfRange(p.Ns.(int64), idleNs)
		p.FirstNs, p.lastNs = min(p.FirstNs, g.FromNs), max(p.lastNs, g.ToNs)
	}
	var list []Evidence
	for _, p := range found {
		list = append(list, *p)
	}
	sortEvidence(list)
	return list
}

// longestIdleActivity returns the time in a gap, ns, in which the launching thread neither waited
// for the GPU nor copied. activity is the CUDA function that took most of that time, or
// gaps.ActivityOutsideCUDA.
func longestIdleActivity(g *gaps.Gap) (activity string, ns int64) {
	waitingNs := g.TimeInKinds(format.KindSync, format.KindMemcpy, format.KindMemset)
	activity, most := gaps.ActivityOutsideCUDA, max(0, g.DurNs()-g.Activity.TimeInCUDA())
	for k, n := range g.Activity.ByCall {
		isWait := k.Kind == format.KindSync || k.Kind == format.KindMemcpy || k.Kind == format.KindMemset
		if !isWait && (n > most || n == most && k.Name < activity) {
			activity, most = k.Name, n
		}
	}
	return activity, max(0, g.DurNs()-waitingNs)
}

var lowSMActivityRule = Rule{
	ID: "low-sm-activity",
	About: "less than 50% of the SMs were active on average while a GPU was not idle, between the first and the last " +
		"launch (GPM). Without GPM: kernels ran less than 50% of that time",
	Report: "gpu",
	advice: "Give the GPU more parallel work: larger batches, several streams, or fewer and larger kernels.",
	check:  checkLowSMActivity,
}

func checkLowSMActivity(s *Survey) ([]Hit, error) {
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
		h := s.newSampledHit(SeverityNotice, busy, summary, busy.Mean())
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
func (s *Survey) computeGPMMeans(device int32) (m gpmMeans, samples *metric.Series) {
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

func checkLowOccupancy(s *Survey) ([]Hit, error) {
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

func checkUnusedTensorCores(s *Survey) ([]Hit, error) {
	return s.newGPMHits(SeverityInfo, func(m gpmMeans) string {
		if m.tensor < 0 || m.tensor >= unusedTensorCorePct || m.arithmetic < minArithmeticPipePct {
			return ""
		}
		return fmt.Sprintf("tensor cores active %.1f%%, other arithmetic units %.1f%%", m.tensor, m.arithmetic)
	})
}

// newGPMHits returns a hit for each GPU whose averages have a problem. problem describes it in a
// phrase, or returns "" if there is none.
func (s *Survey) newGPMHits(severity int, problem func(gpmMeans) string) ([]Hit, error) {
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
