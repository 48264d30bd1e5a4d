package gaps

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/idle"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/symbolize"
)

// deviceGaps reports the gaps of devices with GPU times.
type deviceGaps struct {
	t    *timeline.Timeline
	idle *idle.Result
	min  int64 // gaps that are shorter are not listed, ns
}

// collectDevices computes GPU times next to the survey, for the report on the idle time of devices. If they show no
// device, launches make the report, in a survey of their own.
func collectDevices(sv *survey.Survey, opt Options) report.FinishFunc {
	s := deviceGaps{t: sv.Timeline}
	if opt.MinGapNs != DefaultMinGapNs {
		s.min = opt.MinGapNs
	}
	sv.Add(survey.Observer{Alongside: func() (err error) {
		s.idle, err = idle.Of(s.t, &opt.Filter, opt.MaxTimedCalls)
		return err
	}})
	return func() (*report.Report, error) {
		if len(s.idle.Devices) > 0 {
			return s.report(sv, &opt)
		}
		launches := func(sv *survey.Survey, _ query.Options) (report.FinishFunc, error) {
			return collectLaunches(sv, opt), nil
		}
		return report.RunSurvey(s.t, opt.Options, launches)
	}
}

// report returns the report on the idle time of devices after the survey.
func (s *deviceGaps) report(sv *survey.Survey, opt *Options) (*report.Report, error) {
	t := s.t
	r := &report.Report{
		Command: "gaps",
		Window:  opt.Filter.NarrowWindow(t.RecordingWindow()),
		Quality: quality.OfRecording(t, sv.Counts),
		Notes:   t.Facts.Notes,
	}
	r.Facts = report.NewFacts(factColumns, report.Values{"result": s.resultSentence(), "min_gap_ns": s.min})
	r.Totals = s.totals()
	devices, causes, gaps := s.deviceTable(), s.causeTable(), s.idleTable()
	slices, phases := s.sliceTable(), s.phaseTable()
	if err := gaps.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	if err := causes.SortAndCut("", opt.Top); err != nil {
		return nil, err
	}
	frames.FillRowStacks(t, &gaps, &opt.Options)
	r.Tables = []report.Table{devices, causes, gaps, slices, phases}
	if s.hasHost() {
		host := s.hostTable()
		if err := host.SortAndCut("", opt.Top); err != nil {
			return nil, err
		}
		r.Totals = append(r.Totals, s.hostTotals()...)
		r.Tables = []report.Table{devices, causes, host, gaps, slices, phases}
	}
	for i := range r.Tables {
		processes.AddRankColumn(t, &r.Tables[i])
	}
	return r, nil
}

// sum returns the times of all devices.
func (dg *deviceGaps) sum() (sum idle.Time, isLimited bool) {
	for _, d := range dg.idle.Devices {
		sum.Add(d.Time)
		isLimited = isLimited || d.IsLimited()
	}
	return sum, isLimited
}

// resultSentence says how long the GPUs were idle, and how certain that is.
func (dg *deviceGaps) resultSentence() string {
	sum, isLimited := dg.sum()
	text := "the GPU ran nothing for %s of the time between its first and its last operation"
	if len(dg.idle.Devices) > 1 {
		text = "the GPUs ran nothing for %s of the time between their first and last operations"
	}
	text = fmt.Sprintf(text, shareText(&sum, sum.Idle, isLimited))
	if dg.idle.Activity.UntilNs != 0 {
		text += ", in the first " + units.FormatDuration(dg.idle.Activity.UntilNs-dg.t.RecordingWindow().FromNs)
	}
	if len(dg.idle.Devices) == 1 {
		text += dg.mainCauseText(dg.idle.Devices[0])
	}
	return text
}

// mainCauseText names the cause of most of the idle time, if it is at least 1% of the time.
func (dg *deviceGaps) mainCauseText(d *idle.Device) string {
	for _, c := range d.Causes {
		if !c.Reason.IsIdle() || c.Time.ProbableNs < 0.01*d.Time.SpanNs {
			continue
		}
		text := "; mostly: " + CauseText(dg.idle, c)
		if c.Stack != 0 {
			text += ", at " + dg.t.SiteOfStack(c.Stack)
		}
		if c.Reason.IsHost() {
			text += dg.mainHostText(d)
		}
		return text
	}
	return ""
}

// shareText returns a share of the time as an interval, with its probable value if there is an estimate.
func shareText(of *idle.Time, e idle.Estimate, isLimited bool) string {
	low, high := sharePct(of, e.MinNs), sharePct(of, e.MaxNs)
	if isLimited {
		return fmt.Sprintf("%.1f%% to %.1f%% (bounds)", low, high)
	}
	return fmt.Sprintf("%.1f%% (%.1f%% to %.1f%%)", sharePct(of, e.ProbableNs), low, high)
}

func sharePct(of *idle.Time, ns float64) float64 { return min(100, 100*ns/max(1, of.SpanNs)) }

// CauseText returns the reason of a cause in words.
func CauseText(r *idle.Result, c *idle.Cause) string {
	switch c.Reason {
	case idle.ReasonOutside:
		return "host was outside CUDA"
	case idle.ReasonCall:
		return "host was in " + c.Name
	case idle.ReasonWait:
		return "host waited in " + c.Name + ", then launched"
	case idle.ReasonLaunch:
		return "host was launching"
	case idle.ReasonEvent, idle.ReasonStream:
		return "stream waited for " + streamText(r, c)
	case idle.ReasonValue:
		return "stream waited for a value in memory"
	case idle.ReasonHostFunc:
		return "stream waited for a host function"
	case idle.ReasonBetween:
		return "between operations in the queue"
	case idle.ReasonCopy:
		return "only copies ran"
	case idle.ReasonCollective:
		return "only collectives ran"
	}
	return "unknown"
}

// streamText names the stream that another one waited for, and the last kernel before the event.
func streamText(r *idle.Result, c *idle.Cause) string {
	if c.Stream < 0 || int(c.Stream) >= len(r.Activity.Streams) {
		return "an event"
	}
	text := "stream " + streamLabel(r.Activity.Streams[c.Stream].Handle)
	if kernel := kernelOf(r, c.Label); kernel != "" {
		text += ", after " + kernel
	}
	return text
}

func streamLabel(handle int64) string {
	switch handle {
	case activity.LegacyStream:
		return "default"
	case activity.PerThreadStream:
		return "default of a thread"
	}
	return query.StreamName(handle)
}

// kernelOf returns the short name of the kernel of a label; "" if it has none.
func kernelOf(r *idle.Result, label int32) string {
	if label < 0 || int(label) >= len(r.Activity.Labels) {
		return ""
	}
	return symbolize.ShortKernel(r.Activity.Labels[label].Kernel)
}

// operationText names an operation.
func (dg *deviceGaps) operationText(op activity.Op, label int32) string {
	if op != activity.OpKernel {
		return op.String()
	}
	return kernelOf(dg.idle, label)
}

// siteOf returns the line of a stack; nil: unknown.
func (dg *deviceGaps) siteOf(stack int32) any {
	if stack == 0 {
		return nil
	}
	return units.TextOrNil(dg.t.SiteOfStack(stack))
}

// qualityOf says where the idle time of a device comes from.
func qualityOf(d *idle.Device) string {
	low, _, high := d.Time.BusyPct()
	switch {
	case d.IsLimited():
		return "bounded"
	case high-low < 1:
		return "measured"
	}
	return "estimated"
}

// boundText names a bound; nil: unknown.
func boundText(b idle.Bound) any {
	switch b {
	case idle.BoundCPU:
		return "CPU"
	case idle.BoundGPU:
		return "GPU"
	case idle.BoundMixed:
		return "mixed"
	}
	return nil
}
