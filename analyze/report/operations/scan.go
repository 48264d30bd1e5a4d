package operations

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/symbolize"
)

// scan has the activity of a recording, and selects the rows of the tables.
type scan struct {
	t        *timeline.Timeline
	filter   *query.Filter
	window   query.Window
	activity *activity.Activity
}

// passesStream reports whether a stream passes the filter.
func (s *scan) passesStream(stream *activity.Stream) bool {
	return s.filter.PassesCaller(stream.Pid, stream.Tid, stream.Device, activity.RecordedHandle(stream.Handle))
}

// passesChannel reports whether a channel, or one of its streams, passes the filter.
func (s *scan) passesChannel(c *activity.ChannelActivity) bool {
	if len(c.Streams) == 0 {
		return s.filter.PassesCaller(c.Pid, 0, c.Device, 0)
	}
	return slices.ContainsFunc(c.Streams, func(i int32) bool { return s.passesStream(&s.activity.Streams[i].Stream) })
}

// streamLabel returns the name of a stream in the tables.
func streamLabel(s *activity.Stream) string {
	switch {
	case s.Copies == activity.OpCopyToDevice:
		return "copies to the device"
	case s.Copies == activity.OpCopyToHost:
		return "copies to the host"
	case s.Handle == activity.LegacyStream:
		return "legacy default"
	case s.Handle == activity.PerThreadStream:
		return fmt.Sprintf("default of thread %d", s.Tid)
	}
	return query.StreamName(s.Handle)
}

// streamLabels returns the names of the first four streams of a channel, and counts the others.
func (s *scan) streamLabels(streams []int32) string {
	const most = 4
	text, names := "", 0
	for _, i := range streams {
		name := streamLabel(&s.activity.Streams[i].Stream)
		if names == most {
			return fmt.Sprintf("%s and %d more", text, len(streams)-most)
		}
		if names > 0 {
			text += ", "
		}
		text += name
		names++
	}
	return text
}

// sizeLabel returns the size of copies and fills with a label.
func (s *scan) sizeLabel(label int32) string {
	if label < 0 || int(label) >= len(s.activity.Labels) {
		return ""
	}
	return units.FormatBytes(s.activity.Labels[label].Bytes)
}

// siteLabel returns the call site of kernels and graphs with a label.
func (s *scan) siteLabel(label int32) any {
	if label < 0 || int(label) >= len(s.activity.Labels) {
		return nil
	}
	return units.TextOrNil(s.activity.Labels[label].Site)
}

// operationLabel returns the name of the operations of a duration.
func (s *scan) operationLabel(d *activity.Duration) (name, grid string) {
	switch d.Op {
	case activity.OpFill, activity.OpCopyOnDevice, activity.OpCopyToDevice, activity.OpCopyToHost:
		return d.Op.String(), s.sizeLabel(d.Label)
	case activity.OpRecordEvent:
		return d.Op.String(), ""
	}
	if d.Label < 0 || int(d.Label) >= len(s.activity.Labels) {
		return "other kernels", ""
	}
	label := &s.activity.Labels[d.Label]
	if d.Op == activity.OpGraph {
		return fmt.Sprintf("graph 0x%x", label.Graph), ""
	}
	if label.Grid[0] < 0 {
		return symbolize.ShortKernel(label.Kernel), "other"
	}
	return symbolize.ShortKernel(label.Kernel), fmt.Sprintf("%dx%dx%d", label.Grid[0], label.Grid[1], label.Grid[2])
}

// sum returns the counts of all channels that pass the filter.
func (s *scan) sum() (sum activity.ChannelCounts, paired, all int64, residualNs int64) {
	for i := range s.activity.Channels {
		c := &s.activity.Channels[i]
		if !s.passesChannel(c) {
			continue
		}
		all++
		if len(c.Streams) == 0 {
			continue
		}
		paired++
		sum.Operations += c.Operations
		sum.Measured += c.Measured
		sum.Bounded += c.Bounded
		sum.Estimated += c.Estimated
		sum.Unknown += c.Unknown
		sum.Ended += c.Ended
		sum.Extra += c.Extra
		sum.Slips += c.Slips
		sum.Conflicts += c.Conflicts
		residualNs = max(residualNs, c.ClockResidualNs)
	}
	return sum, paired, all, residualNs
}

// resultSentence describes the result in one sentence.
func (s *scan) resultSentence() string {
	if len(s.t.Facts.Channels) == 0 {
		return "the recording has no GPU times: record with --gpu-time"
	}
	sum, paired, all, residualNs := s.sum()
	if paired == 0 {
		return fmt.Sprintf("no channel has a stream: the counters of %s do not rise by the calls of any stream",
			units.CountWithNoun(all, "channel"))
	}
	return fmt.Sprintf(
		"the starts of %.1f%% of the operations are measured within %s, and those of %.1f%% are bounded; "+
			"the ends of %.1f%% are measured",
		units.Percent(sum.Measured, sum.Operations),
		units.FormatDuration(residualNs),
		units.Percent(sum.Bounded, sum.Operations),
		units.Percent(sum.Ended, sum.Operations),
	)
}
