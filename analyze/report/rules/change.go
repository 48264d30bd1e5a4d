package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/change"
	"github.com/gpurec/gpurec/analyze/report/changes"
	"github.com/gpurec/gpurec/analyze/report/gaps"
)

// Rule change divides the launches of the window, and the samples of each series, into at most this many parts.
// The report changes uses more parts and more series.
const (
	changeParts       = 256
	changeSampleParts = 128
)

var changeRule = Rule{
	ID: "change",
	About: "clocks or the PCIe link of a GPU fell, its temperature rose, or it began to have errors, all at one " +
		"time of the job: a notice. Other changes of the launch rate, memory, power or links are an info. Warm-up, " +
		"drifts and repeating patterns are no change. A series of noise makes the rule fire in at most 0.1% of the " +
		"cases",
	Report: "changes",
	advice: "Look at what else changed at that time with gpurec analyze changes, which also shows step times, new " +
		"kernels and threads. If the program itself began other work, this is expected.",
	check: checkChanges,
}

// Advice for causes outside of the program.
const (
	clockAdvice = "Find out what limits the clocks from that time on: a power cap, heat, or another process on the " +
		"GPU. gpurec analyze changes lists what else happened then."
	linkAdvice = "The link works worse than before: check dmesg, cables and slot, and drain the GPU if errors " +
		"continue. gpurec analyze changes lists what else happened then."
	heatAdvice = "Check the cooling and the load of the neighboring GPUs from that time on."
)

// worseChanges are the series for which a change in one direction is a notice, with the advice.
var worseChanges = map[string]struct {
	isRise bool
	advice string
}{
	"sm_clock_mhz":               {false, clockAdvice},
	"memory_clock_mhz":           {false, clockAdvice},
	"pcie_link_width_lanes":      {false, linkAdvice},
	"temperature_celsius":        {true, heatAdvice},
	"memory_temperature_celsius": {true, heatAdvice},
}

func checkChanges(s *Scan) ([]Hit, error) {
	var launches []change.Launches
	for _, track := range s.gaps.SortedTracks() {
		if found := s.gaps.Tracks[track]; track.Device != gaps.AllDevicesOfProcess || len(s.tracksByGPU) == 0 {
			launches = append(launches, change.Launches{
				Pid: track.Pid, Device: track.Device, FirstNs: found.FirstNs, LastNs: found.UntilNs,
			})
		}
	}
	search := change.NewSearch(s.t, s.Window, launches)
	search.AddSamples(s.series)
	search.AddLaunches(s.launchCounts)
	var hits []Hit
	for _, e := range change.Events(search.Find(changeSampleParts, false)) {
		if !isStop(e) {
			hits = append(hits, s.newChangeHit(e))
		}
	}
	return hits, nil
}

// isStop reports whether a process launches nothing after an event. Rules hang and gpu-idle look for that.
func isStop(e *change.Event) bool {
	const minRest = 0.05
	return slices.ContainsFunc(e.Changes, func(l change.Located) bool {
		return l.Metric == change.MetricLaunchRate && l.Change.To < minRest*l.Change.From
	})
}

// newChangeHit returns the hit of an event. Its evidence has one row for each series.
func (s *Scan) newChangeHit(e *change.Event) Hit {
	lead := 0
	severity, advice := SeverityInfo, ""
	for i := range e.Changes {
		if text := worseAdvice(&e.Changes[i]); text != "" {
			lead, severity, advice = i, SeverityNotice, text
			break
		}
	}
	reasons := s.clockReasonsAt(e)
	if slices.Contains(reasons, "gpu idle began") { // the GPU had less to do, and lowered its clocks
		severity, advice = SeverityInfo, ""
	}
	h := s.newHit(severity, "%s at %s%s", changes.Describe(&e.Changes[lead]), changes.TimeText(s.t, e.AfterNs),
		alsoChanged(e, lead, reasons))
	h.Advice = advice
	level, why := changes.Confidence(s.t, &e.Changes[lead])
	for _, reason := range why {
		h.lowerConfidence(level, "%s", reason)
	}
	for i := range e.Changes {
		l := &e.Changes[i]
		detail := changes.Describe(l)
		if l.IsErrorCounter {
			if links := changes.LinksText(s.series, l, l.Change.BeforeNs); links != "" {
				detail += ": " + links
			}
		}
		if i == lead && len(reasons) > 0 {
			detail += "; clock reason " + strings.Join(reasons, ", ")
		}
		h.Evidence = append(h.Evidence, Evidence{
			Where: changes.Where(
				s.t,
				l.Subject,
			),
			FirstNs: l.Change.AfterNs,
			Count:   int64(l.Change.After),
			Detail:  detail,
		})
	}
	if lead > 0 {
		h.Evidence[0], h.Evidence[lead] = h.Evidence[lead], h.Evidence[0]
	}
	return h
}

// worseAdvice returns the advice for a change for the worse that the program does not cause, or "".
func worseAdvice(l *change.Located) string {
	isRise := l.Change.To > l.Change.From
	if l.IsErrorCounter && isRise {
		return linkAdvice
	}
	if w, ok := worseChanges[l.Metric]; ok && w.isRise == isRise {
		return w.advice
	}
	return ""
}

// clockReasonsAt returns the clock reasons that began or ended on the GPUs of an event.
func (s *Scan) clockReasonsAt(e *change.Event) (list []string) {
	for i := range e.Changes {
		device := e.Changes[i].Device
		if device < 0 || i > 0 && e.Changes[i-1].Device == device {
			continue
		}
		for _, r := range changes.ClockReasonsAt(s.series, device, e.BeforeNs, e.AfterNs) {
			if text := r.Text(); !slices.Contains(list, text) {
				list = append(list, text)
			}
		}
	}
	return list
}

// alsoChanged returns the clock reasons and other changes of an event as the end of a sentence.
func alsoChanged(e *change.Event, but int, reasons []string) string {
	const most = 2
	list := slices.Clone(reasons[:min(len(reasons), most)])
	for i := range e.Changes {
		if i != but && len(list) < 2*most {
			list = append(list, changes.DescribeBriefly(&e.Changes[i]))
		}
	}
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf(": %s", strings.Join(list, ", "))
}
