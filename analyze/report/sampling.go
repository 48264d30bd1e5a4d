package report

import (
	"github.com/gpurec/gpurec/analyze/model/sampling"
)

// LaunchSamplingColumns are the facts of the quality block of a recording with sampled kernel
// launches.
var LaunchSamplingColumns = []Column{
	{
		Key:   "launches_recorded_ns",
		Title: "",
		Unit:  UnitNs,
		About: "time of the recording in which kernel launches were recorded. This value " +
			"and the next one exist only if --max-overhead made the recorder skip launches. Graph launches are " +
			"always recorded",
	},
	{
		Key:   "launch_stacks_recorded_ns",
		Title: "",
		Unit:  UnitNs,
		About: "time in which the call stacks of kernel launches were recorded too",
	},
	{
		Key:   "max_overhead_pct",
		Title: "",
		Unit:  UnitPercent,
		About: "the --max-overhead limit: share of the busiest thread's time that probes " +
			"may cost. This value and the next one exist only if the recorder skipped launches or allocator events",
	},
	{
		Key:   "overhead_seen_pct",
		Title: "",
		Unit:  UnitPercent,
		About: "highest probe cost that the recorder measured, as a share of the busiest " +
			"thread's time",
	},
}

// EstimatedLaunchesColumn and EstimatedCallsColumn are columns and totals of reports on recordings
// with sampled kernel launches.
var (
	EstimatedLaunchesColumn = Column{
		Key:   "estimated_launches",
		Title: "~LAUNCHES",
		Unit:  UnitCount,
		About: "estimated number of launches, " +
			"including those that --max-overhead skipped" + estimateMethod,
	}
	EstimatedCallsColumn = Column{
		Key:   "estimated_calls",
		Title: "~CALLS",
		Unit:  UnitCount,
		About: "estimated number of calls, including the " +
			"launches that --max-overhead skipped" + estimateMethod,
	}
)

// estimateMethod describes how launches are estimated.
const estimateMethod = ". The estimate assumes the same number of launches per memory call, copy, wait, event, " +
	"collective and graph launch as just before and after. With fewer than 30 of these calls there, it uses all such " +
	"times together. With fewer than 10 in all of them, it assumes the same launches per second, which is too low if " +
	"recording slows the program down"

// EstimateFact returns an estimated number of calls as a total. thousandths is 1000 times the
// estimate.
func EstimateFact(c Column, title string, thousandths int64) Fact {
	c.Title = title
	return Fact{c, sampling.RoundToLaunches(thousandths)}
}

// launchSamplingFacts returns the facts of a recording with sampled kernel launches. It returns nil
// for other recordings.
func launchSamplingFacts(l *sampling.SamplingCoverage) []Fact {
	if !l.Sampled {
		return nil
	}
	return NewFacts(LaunchSamplingColumns, Values{
		"launches_recorded_ns":      l.LaunchesNs,
		"launch_stacks_recorded_ns": l.StacksNs,
		"max_overhead_pct":          l.MaxPct,
		"overhead_seen_pct":         l.OverheadPct,
	})
}
