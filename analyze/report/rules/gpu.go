package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/units"
)

const (
	// minGPUSamples is the least number of samples for a rule to fire. With fewer than
	// confidentGPUSamples its confidence is medium. gpurec takes two GPM samples per second.
	minGPUSamples, confidentGPUSamples = 4, 10
)

// listUsedGPUs returns the NVML indexes of the GPUs on which the recorded processes launched work.
// If the recording does not contain this mapping, it returns all sampled GPUs.
func (s *Scan) listUsedGPUs() []int32 {
	if len(s.tracksByGPU) == 0 {
		return s.series.SortedIndexes()
	}
	return slices.Sorted(maps.Keys(s.tracksByGPU))
}

// gpuLabel returns the index and name of a GPU.
func (s *Scan) gpuLabel(device int32) string {
	return strings.TrimSpace(fmt.Sprintf("GPU %d %s", device, s.t.Facts.Devices[device].Name))
}

// newSampledHit returns a hit without evidence. Its confidence depends on the number of samples.
func (s *Scan) newSampledHit(severity int, samples *metric.Series, format string, args ...any) Hit {
	h := Hit{Severity: severity, Summary: fmt.Sprintf(format, args...), Confidence: report.ConfidenceHigh}
	if n := len(samples.Values); n < confidentGPUSamples {
		h.lowerConfidence(report.ConfidenceMedium, "only %d samples", n)
	}
	return h
}

// samplesBetweenLaunches returns the samples of a metric between the first and the last launch of
// the recorded processes. It returns nil if there are fewer than minGPUSamples.
func (s *Scan) samplesBetweenLaunches(device int32, name string) *metric.Series {
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

func checkThrottling(s *Scan) ([]Hit, error) {
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
