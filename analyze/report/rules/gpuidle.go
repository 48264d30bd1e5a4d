package rules

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/idle"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

const (
	// minIdleSharePct is the smallest share of time, %, for which rule gpu-idle reports an idle
	// GPU.
	minIdleSharePct = 20.0
	// minLaunchSpanNs is the shortest time between the first and the last launch, ns, in which gaps
	// show idle time without samples. A shorter time is only the start of a program.
	minLaunchSpanNs = int64(5e9)
)

var gpuIdleRule = Rule{
	ID: "gpu-idle",
	About: "a GPU was idle at least 20% of the time between the first and the last launch, according to GPU times, " +
		"graphics activity or SM activity (GPM), or GPU utilization. " +
		"Without samples: gaps of 1 ms or more between launches, without a wait for the GPU, are at least 20% of " +
		"that time",
	Report: "gaps",
	advice: "Prepare the next step while the GPU works: use more data loader workers, pinned memory and async " +
		"copies. Avoid waits between launches.",
	check: checkGPUIdle,
}

func checkGPUIdle(s *Scan) ([]Hit, error) {
	if len(s.idle.Devices) > 0 {
		hits := s.findByGPUTimes(
			minIdleSharePct,
			"idle",
			func(t *idle.Time) idle.Estimate { return t.Idle },
			idle.Reason.IsIdle,
		)
		hits = slices.DeleteFunc(hits, func(h Hit) bool { return s.samplesRefuteIdle(h.idleDevice) })
		return append(hits, s.findIdleBySamples(hits)...), nil
	}
	var hits []Hit
	for _, device := range s.listUsedGPUs() {
		idlePct, _, ok := s.idlePctOf(device)
		if !ok || len(s.tracksByGPU[device]) == 0 || idlePct < minIdleSharePct {
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
			idlePct,
		)
		h.pid, h.sharePct = s.sortedLaunchTracks(device)[0].Pid, idlePct
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
				Ns:      units.RoundInt(idlePct / 100 * samples.CoveredNs()),
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

// findIdleBySamples returns hits for the devices whose GPU times have too loose bounds to show that they were idle, but
// whose samples do. found are the hits by GPU times.
func (s *Scan) findIdleBySamples(found []Hit) (hits []Hit) {
	for _, d := range s.idle.Devices {
		index, known := s.t.Facts.NVMLIndexOf(d.Pid, d.Device)
		isFound := slices.ContainsFunc(found, func(h Hit) bool { return h.idleDevice == d })
		share := shareOf(d, d.Time.Idle)
		if isFound || !known || len(s.tracksByGPU[index]) == 0 || s.isShared(index) || d.Time.SpanNs < minTimedSpanNs {
			continue
		}
		idlePct, _, sampled := s.idlePctOf(index)
		if !sampled || idlePct < minIdleSharePct || share.probable >= minIdleSharePct || share.high < minIdleSharePct {
			continue
		}
		h := s.newHit(SeverityNotice, "idle for %.1f%% of the time between first and last launch, by samples", idlePct)
		h.pid, h.sharePct, h.idleDevice = d.Pid, idlePct, d
		h.lowerConfidence(report.ConfidenceMedium, "the bounds of the GPU times are loose: %.1f%% to %.1f%%",
			share.low, share.high)
		h.Evidence = s.causeEvidence(d, idle.Reason.IsIdle)
		hits = append(hits, h)
	}
	return hits
}

// samplesRefuteIdle reports whether samples of a GPU exclude the idle time that GPU times estimate. An estimate between
// loose bounds can be far from the truth. Samples do not refute if the GPU has none, or several processes use it.
func (s *Scan) samplesRefuteIdle(d *idle.Device) bool {
	index, known := s.t.Facts.NVMLIndexOf(d.Pid, d.Device)
	if share := shareOf(d, d.Time.Idle); known && share.low < minIdleSharePct && len(s.tracksByGPU[index]) > 0 {
		_, mostPct, sampled := s.idlePctOf(index)
		return sampled && share.probable > mostPct && !s.isShared(index)
	}
	return false
}

// idlePctOf bounds the share of the time in which no kernel ran on a GPU, by its samples. GPM's graphics activity
// measures it. Otherwise the least is the share of samples without activity, and the most follows from the
// average: half of the SMs can be busy half of the time, or always. ok is false without samples.
func (s *Scan) idlePctOf(device int32) (leastPct, mostPct float64, ok bool) {
	if active := s.workSeries.Devices[device][catalog.MetricGraphicsActive]; active != nil {
		idlePct := max(0, 100-active.Mean())
		return idlePct, idlePct, true
	}
	busy, ok := s.workSeries.BusyOf(device)
	return busy.IdlePct, max(0, 100-busy.Pct), ok
}

// findIdleByGaps returns a hit for a launch track whose GPU was not sampled, if its gaps show that
// the GPU was idle for minIdleSharePct of the time.
func (s *Scan) findIdleByGaps(track gaps.DeviceTrack) ([]Hit, error) {
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
		h.pid, h.sharePct = track.Pid, pct
		h.Evidence = s.longestGapEvidence(track)
		return []Hit{h}, nil
	}
	return nil, nil
}

// hasGPUSamples reports whether the GPU of a launch track has samples of its activity.
func (s *Scan) hasGPUSamples(track gaps.DeviceTrack) bool {
	index, ok := s.t.Facts.NVMLIndexOf(track.Pid, track.Device)
	return ok &&
		(s.samplesBetweenLaunches(index, catalog.MetricSMActive) != nil ||
			s.samplesBetweenLaunches(index, catalog.MetricGPUUtilization) != nil)
}

// longestGapEvidence returns the longest gaps of a launch track as evidence: one row for each call
// site and CPU activity.
func (s *Scan) longestGapEvidence(track gaps.DeviceTrack) []Evidence {
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
