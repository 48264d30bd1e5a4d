package report

import (
	"github.com/gpurec/gpurec/analyze/model/sampling"
)

// SamplingColumns are the facts of the quality block of recordings in which launches were sampled.
var SamplingColumns = []Column{
	{"launches_recorded_ns", "", UnitNs, "time of the recording in which launches of kernels were recorded; in this " +
		"and the three below absent, unless --max-overhead made the recorder leave some out. Launches of graphs and " +
		"all other calls are always recorded"},
	{"launch_stacks_recorded_ns", "", UnitNs, "time in which stacks of these launches were recorded too"},
	{"max_overhead_pct", "", UnitPercent, "the limit: share of its time that probes may cost the busiest thread"},
	{"overhead_seen_pct", "", UnitPercent, "most that they cost by the recorder's measurement, at a switch"},
}

// EstimatedLaunches and EstimatedCalls are columns and totals of reports on recordings in which
// launches were sampled.
var (
	EstimatedLaunches = Column{"estimated_launches", "~LAUNCHES", UnitCount, "estimate, only where --max-overhead " +
		"left some out: launches if in the times without there were as many for every other call as just before and " +
		"after (where there are fewer than 30 other calls: as many a second)"}
	EstimatedCalls = Column{"estimated_calls", "~CALLS", UnitCount, "estimate: calls with the launches that " +
		"--max-overhead left out, if in the times without there were as many for every other call as just before " +
		"and after (where there are fewer than 30 other calls: as many a second)"}
)

// EstimateOf returns an estimate, in thousandths, as a total.
func EstimateOf(c Column, title string, thousandths int64) Fact {
	c.Title = title
	return Fact{c, sampling.Whole(thousandths)}
}

// launchSamplingFacts returns the facts of a recording in which launches were sampled; none for
// others.
func launchSamplingFacts(l *sampling.Coverage) []Fact {
	if !l.Sampled {
		return nil
	}
	return Facts(SamplingColumns, Values{
		"launches_recorded_ns":      l.LaunchesNs,
		"launch_stacks_recorded_ns": l.StacksNs,
		"max_overhead_pct":          l.MaxPct,
		"overhead_seen_pct":         l.OverheadPct,
	})
}
