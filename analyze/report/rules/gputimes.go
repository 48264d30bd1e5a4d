package rules

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/idle"
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/units"
)

const (
	// minExposedSharePct is the smallest share of time, %, in which only copies or only collectives run,
	// that rules report. Hiding it makes the program faster by about as much.
	minExposedSharePct = 10.0
	// minTimedSpanNs is the shortest time between the first and the last operation, ns, that rules judge by GPU
	// times. A shorter time is only the start of a program.
	minTimedSpanNs = 1e9
	// minCPUBoundPct is the smallest share of time, %, for which a program is bound by the CPU.
	minCPUBoundPct = 50.0
	// maxCauses is the largest number of causes in the evidence.
	maxCauses = 5
)

// moreTimedCalls is the factor of the calls that are read if the first ones do not show GPU times.
const moreTimedCalls = 4

// readIdleTimes computes the idle time of all devices with GPU times. maxCalls is query.Options.MaxTimedCalls.
func (s *Scan) readIdleTimes(maxCalls int64) (err error) {
	if len(s.t.Facts.Channels) == 0 {
		return nil
	}
	s.idle, err = idle.Of(s.t, s.filter, maxCalls)
	if err == nil && maxCalls > 0 && len(s.idle.Devices) == 0 { // too few to know the channels
		s.idle, err = idle.Of(s.t, s.filter, moreTimedCalls*maxCalls)
	}
	return err
}

// exposedShare is a share of the time of a device, in percent.
type exposedShare struct{ low, probable, high float64 }

// shareOf returns a length as a share of the time of a device. Without estimates, the lower bound counts.
func shareOf(d *idle.Device, e idle.Estimate) exposedShare {
	share := func(ns float64) float64 { return min(100, 100*ns/max(1, d.Time.SpanNs)) }
	s := exposedShare{share(e.MinNs), share(e.ProbableNs), share(e.MaxNs)}
	if d.IsLimited() {
		s.probable = s.low
	}
	return s
}

// text returns the share with its bounds.
func (s exposedShare) text() string {
	return fmt.Sprintf("%.1f%% (%.1f%% to %.1f%%)", s.probable, s.low, s.high)
}

// findByGPUTimes returns a hit for each device whose share is large enough. what names the activity of the GPU; reasons
// selects the causes of the evidence.
func (s *Scan) findByGPUTimes(
	minPct float64, what string, lengthOf func(*idle.Time) idle.Estimate, reasons func(idle.Reason) bool,
) (hits []Hit) {
	for _, d := range s.idle.Devices {
		share := shareOf(d, lengthOf(&d.Time))
		if d.Time.SpanNs < minTimedSpanNs || share.probable < minPct {
			continue
		}
		h := s.newHit(
			SeverityNotice,
			"%s for %s of the time between the first and the last operation, by GPU times%s",
			what,
			share.text(),
			s.partText(),
		)
		h.pid, h.sharePct, h.idleDevice = d.Pid, share.probable, d
		if share.low < minPct {
			h.lowerConfidence(report.ConfidenceMedium, "the share may be as low as %.1f%%", share.low)
		}
		s.lowerConfidenceForInferredStacks(&h)
		h.Evidence = s.causeEvidence(d, reasons)
		hits = append(hits, h)
	}
	return hits
}

// partText says which part of the recording was read, or "" for all of it.
func (s *Scan) partText() string {
	all := s.idle
	if all.Activity == nil || all.Activity.UntilNs == 0 {
		return ""
	}
	return " of the first " + units.FormatDuration(all.Activity.UntilNs-s.t.RecordingWindow().FromNs)
}

// causeEvidence returns the longest causes as evidence.
func (s *Scan) causeEvidence(d *idle.Device, reasons func(idle.Reason) bool) (list []Evidence) {
	for _, c := range d.Causes {
		if !reasons(c.Reason) || len(list) == maxCauses {
			continue
		}
		e := Evidence{
			Where: s.t.OrdinalDeviceLabel(d.Pid, d.Device), Stack: c.Stack, Count: c.Gaps,
			Ns: units.RoundInt(c.Time.ProbableNs), Detail: gaps.CauseText(s.idle, c),
		}
		if c.Stack != 0 {
			e.Where = s.t.SiteOfStack(c.Stack)
		}
		list = append(list, e)
	}
	return list
}

// boundShares returns the shares of the time of a device in which the CPU limits it, and in which a bound is
// known, in percent.
func boundShares(d *idle.Device) (cpuPct, knownPct float64) {
	var cpuNs, knownNs int64
	for _, span := range d.Phases() {
		if span.Bound != idle.BoundUnknown {
			knownNs += span.Window.DurNs()
		}
		if span.Bound == idle.BoundCPU {
			cpuNs += span.Window.DurNs()
		}
	}
	return units.Percent(cpuNs, d.Window.DurNs()), units.Percent(knownNs, d.Window.DurNs())
}

// idleDeviceOf returns the idle time of the device of a launch track; nil without GPU times, or if no bound
// is known for most of the time.
func (s *Scan) idleDeviceOf(track gaps.DeviceTrack) *idle.Device {
	for _, d := range s.idle.Devices {
		if _, knownPct := boundShares(d); d.Pid == track.Pid && d.Device == track.Device && knownPct >= minCPUBoundPct {
			return d
		}
	}
	return nil
}

// limitsNowhere reports that GPU times show for all devices that the CPU hardly ever limits the program.
func (s *Scan) limitsNowhere() bool {
	for _, d := range s.idle.Devices {
		if cpuPct, knownPct := boundShares(d); cpuPct > 100-knownPct || knownPct < minCPUBoundPct {
			return false
		}
	}
	return len(s.idle.Devices) > 0
}

var exposedCopyRule = Rule{
	ID: "exposed-copies",
	About: "a GPU runs only copies between host and device for at least 10% of the time between its first and last " +
		"operation. Needs GPU times",
	Report:        "gaps",
	needsGPUTimes: true,
	advice: "Start the copies earlier, from pinned memory and on a stream of their own, so that kernels run at the " +
		"same time. Keep data on the GPU that it needs again.",
	check: func(s *Scan) ([]Hit, error) {
		return s.findByGPUTimes(
			minExposedSharePct,
			"only copies ran",
			func(t *idle.Time) idle.Estimate { return t.Copies },
			func(r idle.Reason) bool { return r == idle.ReasonCopy },
		), nil
	},
}

var exposedCommunicationRule = Rule{
	ID: "exposed-communication",
	About: "a GPU runs collectives (NCCL), but no other kernel, for at least 10% of the time between its first and " +
		"last operation. Needs GPU times",
	Report:        "gaps",
	needsGPUTimes: true,
	advice: "Start collectives while kernels still run: smaller buckets, or prefetching of parameters. Look for " +
		"ranks " +
		"that arrive late, because the others wait in the collective.",
	check: func(s *Scan) ([]Hit, error) {
		hits := s.findByGPUTimes(minExposedSharePct, "only collectives ran",
			func(t *idle.Time) idle.Estimate { return t.Collectives },
			func(r idle.Reason) bool { return r == idle.ReasonCollective })
		if len(hits) == 0 || !collective.HasRows(s.t) {
			return hits, nil
		}
		return hits, s.addExposedRanks(&hits[0])
	},
}

// addExposedRanks adds evidence for each rank: the time in which its GPU ran only collectives. A rank with less of it
// than the others arrives last.
func (s *Scan) addExposedRanks(h *Hit) error {
	j, err := job.Of(s.t)
	if err != nil {
		return err
	}
	var list []Evidence
	for i := range j.Members {
		for _, d := range s.idle.Devices {
			if d.Pid == j.Members[i].Pid {
				list = append(list, Evidence{
					Where: rankName(
						&j.Members[i],
					),
					Ns:     units.RoundInt(shareOf(d, d.Time.Collectives).probable / 100 * d.Time.SpanNs),
					Detail: "only collectives ran for " + shareOf(d, d.Time.Collectives).text() + " of the time",
				})
			}
		}
	}
	sortEvidence(list)
	h.Evidence = append(h.Evidence, list[:min(len(list), maxRankEvidence)]...)
	return nil
}
