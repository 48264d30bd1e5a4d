package summary

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// Shares of the window from which a GPU bounds the speed of a program, and below which it does not. Between
// them, short pauses of the GPU may have many reasons.
const (
	leastBoundPct = 90
	mostIdlePct   = 70
)

// gpuFactColumns are the facts of a recording with GPU times.
var gpuFactColumns = []report.Column{
	{
		Key:   "gpu_busy",
		Title: "GPU busy",
		Unit:  report.UnitText,
		About: "bounds of the share of the window in which each GPU ran operations of the recorded processes. Of a " +
			"recording with more than 100,000 calls, only the first part is read. Bound by " +
			"the GPU: " +
			"at least 90%. Bound by the host: at most 70%. Else the reason is not clear",
	},
	{
		Key: "gpu_busy_min_pct", Title: "", Unit: report.UnitPercent,
		About: "lower bound of the busy share of the GPU with the lowest one",
	},
	{
		Key: "gpu_busy_max_pct", Title: "", Unit: report.UnitPercent,
		About: "upper bound of the busy share of the GPU with the highest one",
	},
}

// newGPUFacts returns the facts about the busy time of the GPUs. It returns none without GPU times, or if no
// GPU passes the filter.
func newGPUFacts(t *timeline.Timeline, f *query.Filter, w query.Window) ([]report.Fact, error) {
	if len(t.Facts.Channels) == 0 || w.DurNs() == 0 {
		return nil, nil
	}
	a, err := activity.OfPart(t, w, query.QuickTimedCalls)
	if err != nil {
		return nil, err
	}
	part := ""
	if a.UntilNs != 0 {
		part = " in the first " + units.FormatDuration(a.UntilNs-w.FromNs)
		w.ToNs = a.UntilNs
	}
	shares := busyShares(a, f, w)
	if len(shares) == 0 {
		return nil, nil
	}
	var texts []string
	lowest, highest := 100.0, 0.0
	for _, device := range slices.Sorted(maps.Keys(shares)) {
		s := shares[device]
		text := s.String()
		if len(shares) > 1 {
			text = t.DeviceLabel(device) + ": " + text
		}
		texts = append(texts, text)
		lowest, highest = min(lowest, s.lowPct), max(highest, s.highPct)
	}
	return report.NewFacts(gpuFactColumns, report.Values{
		"gpu_busy": strings.Join(texts, "; ") + part, "gpu_busy_min_pct": lowest, "gpu_busy_max_pct": highest,
	}), nil
}

// busyShare bounds the share of a window in which a GPU was busy, in percent.
type busyShare struct{ lowPct, highPct float64 }

// String returns the bounds, and what bounds the speed if that is clear.
func (s busyShare) String() string {
	text := fmt.Sprintf("%.0f-%.0f%%", s.lowPct, s.highPct)
	switch {
	case s.lowPct >= leastBoundPct:
		return text + ", bound by the GPU"
	case s.highPct <= mostIdlePct:
		return text + ", bound by the host"
	}
	return text
}

// busyShares returns the busy shares by device. Processes on one GPU may run at the same time, so the highest
// lower bound of any process holds, and the sum of their upper bounds.
func busyShares(a *activity.Activity, f *query.Filter, w query.Window) map[int32]busyShare {
	shares := make(map[int32]busyShare)
	for i := range a.Devices {
		d := &a.Devices[i]
		if d.Device < 0 || !f.PassesCaller(d.Pid, 0, d.Device, 0) {
			continue
		}
		busy := a.BusyTimeOf(d)
		s := shares[d.Device]
		s.lowPct = max(s.lowPct, 100*float64(busy.LoNs)/float64(w.DurNs()))
		s.highPct = min(100, s.highPct+100*float64(busy.HiNs)/float64(w.DurNs()))
		s.lowPct = min(s.lowPct, s.highPct)
		shares[d.Device] = s
	}
	return shares
}
