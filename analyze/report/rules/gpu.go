package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	metricpkg "github.com/gpurec/gpurec/analyze/model/metric"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

const metricFP64 = "gpm_fp64_active_percent"

const metricFP32 = "gpm_fp32_active_percent"

const metricFP16 = "gpm_fp16_active_percent"

const (
	// With fewer than fewSamples rules find nothing. With fewer than someSamples the confidence is
	// lower. GPM is sampled twice a second.
	fewSamples, someSamples = 4, 10
	// idleShare is the share of time, %, from which on a used GPU counts as idle.
	idleShare = 20.0
	// idleSpanNs is the shortest time between first and last launch, ns, for which gaps are judged
	// without samples. A shorter one is the start of a program.
	idleSpanNs = int64(5e9)
	// lowActivity is the activity, %, below which a GPU is used badly. It is the default of nsys's rule
	// for GPU utilization.
	lowActivity = 50.0
	// lowOccupancy is the share, %, of the warps that an active SM has room for. Its four schedulers
	// need some four warps each to hide the latency of arithmetic: 16 of 64.
	lowOccupancy = 25.0
	// Kernels need no occupancy if their activity of tensor cores or memory, %, is this high.
	goodTensor, goodDRAM = 10.0, 50.0
	// Below noTensor, %, tensor cores are not used. From someArithmetic, %, of the other pipes on, they
	// could matter: below it, kernels wait for memory.
	noTensor, someArithmetic = 1.0, 20.0
)

// watchedGPUs returns the GPUs that recorded processes launched on, or all sampled GPUs if these are
// not known.
func (s *Survey) watchedGPUs() []int32 {
	if len(s.devices) == 0 {
		return s.gpu.Sorted()
	}
	return slices.Sorted(maps.Keys(s.devices))
}

// gpuLabel returns the index and name of a GPU.
func (s *Survey) gpuLabel(device int32) string {
	return strings.TrimSpace(fmt.Sprintf("GPU %d %s", device, s.t.Facts.Devices[device].Name))
}

// sampledHit returns a hit without places that rests on samples.
func (s *Survey) sampledHit(severity int, samples *metricpkg.Series, format string, args ...any) Hit {
	h := Hit{Severity: severity, What: fmt.Sprintf(format, args...), Level: report.ConfidenceHigh}
	if n := len(samples.Values); n < someSamples {
		h.lower(report.ConfidenceMedium, "only %d samples", n)
	}
	return h
}

// enough returns the samples of a metric while the recorded processes launched, nil if there are too
// few.
func (s *Survey) enough(device int32, metric string) *metricpkg.Series {
	if of := s.working.Devices[device][metric]; of != nil && len(of.Values) >= fewSamples {
		return of
	}
	return nil
}

var ruleThrottling = Rule{
	ID: "throttling",
	About: "the clocks of a GPU were held down at least 1% of the time by temperature, power brake or hardware " +
		"slowdown: a problem; " +
		"at least 10% by the power cap alone: an info, for it is how a GPU under full load works",
	Report: "gpu",
	advice: "Check the cooling and the power supply of the machine; nvidia-smi -q -d PERFORMANCE shows the same now.",
	check:  checkThrottling,
}

// powerCapShare is the share of time at the power cap, %, below which it is not worth a hit.
const powerCapShare = 10.0

func checkThrottling(s *Survey) ([]Hit, error) {
	var hits []Hit
	for _, device := range s.watchedGPUs() {
		samples := s.gpu.Devices[device][catalog.MetricReasons]
		if samples == nil || len(samples.Values) < fewSamples {
			continue
		}
		hard, capped := samples.Share(
			gpu.HasBit(gpu.SlowBits&^gpu.PowerCapBit),
		), samples.Share(
			gpu.HasBit(gpu.PowerCapBit),
		)
		if hard < worthPct && capped < powerCapShare {
			continue
		}
		h := s.sampledHit(
			SeverityProblem,
			samples,
			"clocks held down %.1f%% of the time",
			samples.Share(gpu.IsThrottled),
		)
		if hard < worthPct {
			h.Severity, h.Advice = SeverityInfo, "The power cap sets the pace: nothing is wrong, but a higher limit "+
				"(nvidia-smi -pl), if the machine allows it, would be faster."
		}
		var names []string
		for i := range gpu.ClockReasons {
			c := &gpu.ClockReasons[i]
			pct := samples.Share(gpu.HasBit(c.Bit))
			if !c.Slows || pct < worthPct {
				continue
			}
			names = append(names, c.Name)
			is := gpu.HasBit(c.Bit)
			h.Places = append(h.Places, Place{
				Where: s.gpuLabel(
					device,
				),
				Count:   int64(len(samples.Values)),
				Ns:      units.RoundInt(pct / 100 * samples.TotalNs()),
				FirstNs: samples.AtNs[slices.IndexFunc(samples.Values, is)],
				lastNs:  samples.AtNs[lastIndex(samples.Values, is)],
				Detail: fmt.Sprintf(
					"%s %.1f%% of the time, over time %s",
					c.Name,
					pct,
					overTime(samples, s.Window, is),
				),
			})
		}
		h.What += ": " + units.Enumerated(names)
		sortPlaces(h.Places)
		hits = append(hits, h)
	}
	return hits, nil
}

// overTimeParts is the number of parts of the window that overTime shows.
const overTimeParts = 20

// overTime draws, for each part of the window, the share of samples for which is returns true.
func overTime(s *metricpkg.Series, w query.Window, is func(float64) bool) string {
	var all, hits [overTimeParts]float64
	for i, v := range s.Values {
		part := max(0, min(int(float64(s.AtNs[i]-w.FromNs)/float64(max(1, w.DurNs()))*overTimeParts), overTimeParts-1))
		all[part]++
		if is(v) {
			hits[part]++
		}
	}
	for i := range hits {
		hits[i] /= max(1, all[i])
	}
	return units.Sparkline(hits[:])
}

var ruleGPUIdle = Rule{
	ID: "gpu-idle",
	About: "a GPU was idle at least 20% of the time between the first and the last launch of the recorded " +
		"processes, by GPM (SM activity) or GPU utilization; " +
		"without samples: at least 20% of that time lies in gaps of 1 ms and more between launches, in which the " +
		"thread did not wait for the GPU",
	Report: "gaps",
	advice: "Prepare the next step while the GPU works: more loader workers, pinned memory and async copies, no " +
		"waits in between.",
	check: checkGPUIdle,
}

func checkGPUIdle(s *Survey) ([]Hit, error) {
	var hits []Hit
	for _, device := range s.watchedGPUs() {
		b, ok := s.working.BusyOf(device)
		if !ok || len(s.devices[device]) == 0 || b.IdlePct < idleShare {
			continue
		}
		samples := cmp.Or(s.enough(device, catalog.MetricSMActive), s.enough(device, catalog.MetricGPUBusy))
		if samples == nil {
			continue
		}
		if err := s.watchGaps(); err != nil {
			return nil, err
		}
		h := s.sampledHit(SeverityNotice, samples, "idle %.1f%% of the time between first and last launch", b.IdlePct)
		for _, track := range s.tracks(device) {
			h.Places = append(h.Places, s.longestGaps(track)...)
		}
		sortPlaces(h.Places)
		h.Places = append([]Place{
			{
				Where: s.gpuLabel(
					device,
				),
				Count:   int64(len(samples.Values)),
				Ns:      units.RoundInt(b.IdlePct / 100 * samples.TotalNs()),
				FirstNs: s.working.Window.FromNs,
				lastNs:  s.working.Window.ToNs,
				Detail:  "samples in which nothing ran",
			},
		}, h.Places...)
		hits = append(hits, h)
	}
	for _, track := range s.gaps.SortedTracks() {
		h, err := s.idleByGaps(track)
		if err != nil {
			return nil, err
		}
		hits = append(hits, h...)
	}
	return hits, nil
}

// idleByGaps judges a track without samples by its gaps.
func (s *Survey) idleByGaps(track gaps.Track) ([]Hit, error) {
	launches := s.gaps.Tracks[track]
	span := launches.UntilNs - launches.FirstNs
	if track.Device == gaps.AllDevices && len(s.gaps.Tracks) > 1 || s.isSampled(track) || span < idleSpanNs ||
		launches.Gaps.SumNs < int64(idleShare/100*float64(span)) {
		return nil, nil
	}
	if err := s.watchGaps(); err != nil {
		return nil, err
	}
	var idle int64
	for i := range s.gaps.List {
		if g := &s.gaps.List[i]; g.Track == track {
			_, ns := mostIdle(g)
			idle = units.EndOf(idle, ns)
		}
	}
	if pct := units.Percent(idle, span); pct >= idleShare {
		h := s.newHit(SeverityNotice, "no work, and nobody waiting for it, %.1f%% of the time between first and "+
			"last launch", pct)
		h.lower(report.ConfidenceLow, "there are no samples of this GPU: it may have been busy with earlier work")
		h.Places = s.longestGaps(track)
		return []Hit{h}, nil
	}
	return nil, nil
}

// isSampled reports whether there are samples of the GPU of a track.
func (s *Survey) isSampled(track gaps.Track) bool {
	index, ok := s.t.Facts.NVMLDevice(track.Pid, track.Device)
	return ok && (s.enough(index, catalog.MetricSMActive) != nil || s.enough(index, catalog.MetricGPUBusy) != nil)
}

// longestGaps returns the longest gaps of a track as evidence. Gaps at the same call site are one
// place.
func (s *Survey) longestGaps(track gaps.Track) []Place {
	type doing struct{ what, site string }
	found := make(map[doing]*Place)
	for i := range s.gaps.List {
		g := &s.gaps.List[i]
		if g.Track != track || g.Busy.State() == gaps.GPUBusy {
			continue
		}
		what, idle := mostIdle(g)
		key := doing{what, s.gaps.Names.List[g.EndedBy.Site]}
		stack := g.EndedBy.Stack
		if what != gaps.OutsideCUDA {
			key.site, stack = g.Activity.Site, g.Activity.Longest.Stack
		}
		p := found[key]
		if p == nil {
			detail := "in gaps; mostly " + gaps.ActivityPhrase(what)
			if what == gaps.OutsideCUDA {
				detail += "; the launch after them is here"
			}
			p = &Place{
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
		p.Count, p.Ns = p.Count.(int64)+1, units.EndOf(p.Ns.(int64), idle)
		p.FirstNs, p.lastNs = min(p.FirstNs, g.FromNs), max(p.lastNs, g.ToNs)
	}
	var list []Place
	for _, p := range found {
		list = append(list, *p)
	}
	sortPlaces(list)
	return list
}

// mostIdle returns the time in a gap, ns, in which the thread neither waited for the GPU nor copied,
// and what it did for most of that time.
func mostIdle(g *gaps.Gap) (what string, ns int64) {
	waiting := g.InKind(format.KindSync, format.KindMemcpy, format.KindMemset)
	what, most := gaps.OutsideCUDA, max(0, g.DurNs()-g.Activity.InCUDA())
	for k, n := range g.Activity.ByCall {
		isWait := k.Kind == format.KindSync || k.Kind == format.KindMemcpy || k.Kind == format.KindMemset
		if !isWait && (n > most || n == most && k.Name < what) {
			what, most = k.Name, n
		}
	}
	return what, max(0, g.DurNs()-waiting)
}

var ruleLowSM = Rule{
	ID: "low-sm-activity",
	About: "while a GPU ran something, less than 50% of its SMs were active on average (GPM; without it: kernels " +
		"ran less than 50% of the time), between the first and the last launch",
	Report: "gpu",
	advice: "Give it more work at a time: larger batches, several streams, or fewer and larger kernels.",
	check:  checkLowSM,
}

func checkLowSM(s *Survey) ([]Hit, error) {
	var hits []Hit
	for _, device := range s.watchedGPUs() {
		samples, what := s.enough(device, catalog.MetricSMActive), "SMs active %.1f%% on average while something ran"
		if samples == nil {
			samples, what = s.enough(device, catalog.MetricGPUBusy), "a kernel ran %.1f%% of the time on average "+
				"while something ran"
		}
		if samples == nil || len(s.devices[device]) == 0 {
			continue
		}
		busy := only(samples, func(v float64) bool { return v >= metricpkg.AlmostIdlePct })
		if len(busy.Values) < fewSamples || busy.Mean() >= lowActivity {
			continue
		}
		h := s.sampledHit(SeverityNotice, busy, what, busy.Mean())
		h.Places = []Place{
			{
				Where: s.gpuLabel(
					device,
				),
				Count:   int64(len(busy.Values)),
				Ns:      units.RoundInt(busy.TotalNs()),
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

// only returns the samples for which is returns true, with the time that each stands for.
func only(s *metricpkg.Series, is func(float64) bool) *metricpkg.Series {
	o := new(metricpkg.Series)
	for i, v := range s.Values {
		if is(v) {
			o.AtNs = append(o.AtNs, s.AtNs[i])
			o.Values = append(o.Values, v)
			o.Weights = append(o.Weights, s.Weights[i])
		}
	}
	return o
}

// gpmMeans are averages of GPM metrics of a busy GPU, %; -1 for a metric without samples.
type gpmMeans struct{ sm, occupancy, tensor, dram, arithmetic float64 }

// means returns the averages of a GPU while its SMs were busy.
func (s *Survey) means(device int32) (m gpmMeans, samples *metricpkg.Series) {
	of := func(metric string) float64 {
		if one := s.enough(device, metric); one != nil {
			return one.Mean()
		}
		return -1
	}
	if samples = s.enough(
		device,
		catalog.MetricSMActive,
	); samples == nil || len(s.devices[device]) == 0 ||
		samples.Mean() < lowActivity {
		return m, nil
	}
	return gpmMeans{
		samples.Mean(),
		of(catalog.MetricOccupancy),
		of(catalog.MetricTensor),
		of(catalog.MetricDRAM),
		max(of(metricFP64), of(metricFP32), of(metricFP16)),
	}, samples
}

// text returns the averages in words.
func (m gpmMeans) text() string {
	var parts []string
	for _, p := range []struct {
		name string
		pct  float64
	}{
		{"SMs active", m.sm},
		{"occupancy", m.occupancy},
		{"tensor cores", m.tensor},
		{"other arithmetic", m.arithmetic},
		{"memory bandwidth", m.dram},
	} {
		if p.pct >= 0 {
			parts = append(parts, fmt.Sprintf("%s %.1f%%", p.name, p.pct))
		}
	}
	return strings.Join(parts, ", ")
}

var ruleLowOccupancy = Rule{
	ID: "low-occupancy",
	About: "active SMs have less than 25% of the warps that they have room for, and neither tensor cores (10%) nor " +
		"memory bandwidth (50%) are used well; of GPUs whose SMs are active 50% of the time and more (GPM)",
	Report: "gpu",
	advice: "Too few threads are resident to hide latency: look for kernels with small grids, many registers or " +
		"much shared memory (gpurec analyze kernels).",
	check: checkLowOccupancy,
}

func checkLowOccupancy(s *Survey) ([]Hit, error) {
	return s.gpmHits(SeverityNotice, func(m gpmMeans) string {
		if m.occupancy < 0 || 100*m.occupancy/m.sm >= lowOccupancy || m.tensor >= goodTensor || m.dram >= goodDRAM {
			return ""
		}
		return fmt.Sprintf("active SMs have %.0f%% of their warps", 100*m.occupancy/m.sm)
	})
}

var ruleTensorUnused = Rule{
	ID: "tensor-cores-unused",
	About: "tensor cores are active less than 1% of the time although other pipes for arithmetic are 20% and more; " +
		"of GPUs whose SMs are active 50% of the time and more (GPM)",
	Report: "gpu",
	advice: "If these are matrix products, bfloat16 (autocast) or TF32 (torch.set_float32_matmul_precision('high')) " +
		"would use tensor cores.",
	check: checkTensorUnused,
}

func checkTensorUnused(s *Survey) ([]Hit, error) {
	return s.gpmHits(SeverityInfo, func(m gpmMeans) string {
		if m.tensor < 0 || m.tensor >= noTensor || m.arithmetic < someArithmetic {
			return ""
		}
		return fmt.Sprintf("tensor cores active %.1f%%, other arithmetic %.1f%%", m.tensor, m.arithmetic)
	})
}

// gpmHits returns a hit for each GPU for whose averages say returns a text.
func (s *Survey) gpmHits(severity int, say func(gpmMeans) string) ([]Hit, error) {
	var hits []Hit
	for _, device := range s.watchedGPUs() {
		m, samples := s.means(device)
		if samples == nil {
			continue
		}
		if text := say(m); text != "" {
			h := s.sampledHit(severity, samples, "%s", text)
			h.Places = []Place{
				{
					Where: s.gpuLabel(
						device,
					),
					Count:   int64(len(samples.Values)),
					Ns:      units.RoundInt(samples.TotalNs()),
					FirstNs: samples.AtNs[0],
					lastNs:  samples.AtNs[len(samples.AtNs)-1],
					Detail:  m.text(),
				},
			}
			hits = append(hits, h)
		}
	}
	return hits, nil
}
