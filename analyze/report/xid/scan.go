package xid

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// SelectXids returns the Xids that pass the filter and are in the window. It includes Xids from
// before the recording unless the filter sets a start.
func SelectXids(t *timeline.Timeline, f *query.Filter, w query.Window) []facts.Xid {
	var list []facts.Xid
	for _, x := range t.Facts.Xids {
		early := x.AtNs < w.FromNs && (f.FromNs != 0 || !x.Before)
		if early || x.AtNs > w.ToNs || len(f.Pids) > 0 && !slices.Contains(f.Pids, x.Pid) ||
			len(f.Devices) > 0 && !slices.Contains(f.Devices, x.Device) {
			continue
		}
		list = append(list, x)
	}
	return list
}

// explainNoMatch returns the condition of the filter that no Xid meets.
func explainNoMatch(t *timeline.Timeline, f *query.Filter) *query.NoMatchError {
	pids, devices := make(map[int32]bool), make(map[int32]bool)
	for _, x := range t.Facts.Xids {
		pids[x.Pid], devices[x.Device] = true, true
	}
	return query.FirstNoMatchError(
		f.ExplainNoProcess(pids),
		query.NewNoMatchError("device", f.Devices, devices, query.FormatPid),
	)
}

// namesProcess reports whether an Xid names a process whose launches may be in the recording.
func namesProcess(x *facts.Xid) bool { return x.Pid != 0 && !x.Before && !x.Sxid }

// launchesBeforeXids returns the launches before each Xid that names a process.
func launchesBeforeXids(t *timeline.Timeline, list []facts.Xid, f *query.Filter) ([][]fault.Launch, error) {
	var moments []fault.ContextMoment
	for i := range list {
		if x := &list[i]; namesProcess(x) {
			moments = append(moments, fault.ContextMoment{AtNs: x.AtNs, Pid: x.Pid})
		}
	}
	return fault.FindLaunchesBefore(t, moments, f)
}
