package hang

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/rankstate"
	"github.com/gpurec/gpurec/analyze/model/waitgraph"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// otherFaultsText names the faults after the first one, "" if there are none.
func otherFaultsText(s *rankstate.State) string {
	rest := s.Verdict.Faults[1:]
	if len(rest) == 0 {
		return ""
	}
	text := hangText(s, &rest[0])
	if more := len(rest) - 1; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// orderText compares a death with the waits, "" without a death.
func orderText(s *rankstate.State, f *waitgraph.Fault) string {
	lead := units.FormatDuration(max(f.LeadNs, -f.LeadNs))
	clocks := "one clock"
	if s.ClockErrorNs > 0 {
		clocks = "clock error " + units.FormatDuration(s.ClockErrorNs)
	}
	switch {
	case f.Order == waitgraph.NoDeath:
		return ""
	case s.ClockErrorNs == rankstate.UnknownClock && s.ClockProblem != "":
		return "unknown: the clocks of the hosts cannot be compared: " + s.ClockProblem
	case s.ClockErrorNs == rankstate.UnknownClock:
		return "unknown: nothing bounds the difference between the clocks of the hosts"
	case f.Order == waitgraph.DeathFirst:
		return fmt.Sprintf("certain: the death is %s before the first wait, %s", lead, clocks)
	case f.Order == waitgraph.DeathWithin:
		return fmt.Sprintf("within the clock error: %s between the death and the first wait, %s", lead, clocks)
	}
	return fmt.Sprintf("the death is %s after the first wait, %s: the others were ahead", lead, clocks)
}

// absentText says which ranks were not recorded, "" if all were.
func absentText(s *rankstate.State) string {
	if len(s.Absent) == 0 {
		return ""
	}
	text := fmt.Sprintf("%s not recorded (%s)", units.CountWithNoun(int64(len(s.Absent)), "rank"),
		units.FormatNumberSet(s.Absent))
	if len(s.Verdict.Faults) == 0 {
		return text
	}
	if k := s.Verdict.Faults[0].Kind; k == waitgraph.Unrecorded {
		return text + ": the verdict depends on " + verbFor(s.Absent, "it", "them")
	}
	return text + ": the verdict does not depend on " + verbFor(s.Absent, "it", "them")
}

// defaultWatchdogNs is the default timeout of PyTorch's NCCL watchdog: 10 minutes.
const defaultWatchdogNs = 600_000_000_000

// watchdogText says when PyTorch's watchdog aborts the job, "" if its time is over.
func watchdogText(s *rankstate.State) string {
	first, in := s.EndNs, "about"
	for i := range s.Verdict.Faults {
		waits := s.Verdict.Faults[i].Waits
		for k := range waits {
			if first = min(first, waits[k].SinceNs); isByCensus(s, &waits[k]) {
				in = "at most"
			}
		}
	}
	left := defaultWatchdogNs - (s.EndNs - first)
	if left <= 0 {
		return ""
	}
	return fmt.Sprintf("PyTorch's watchdog aborts after 10m (default): in %s %s", in, units.FormatDuration(left))
}

// rankConfidence returns the confidence in a fault and the reasons that lower it.
func rankConfidence(s *rankstate.State, f *waitgraph.Fault) (level string, reasons []string) {
	level = report.ConfidenceHigh
	lower := func(to, reason string) {
		if level == report.ConfidenceHigh || to == report.ConfidenceLow {
			level = to
		}
		reasons = append(reasons, reason)
	}
	switch f.Kind {
	case waitgraph.Unrecorded, waitgraph.UnknownPeer:
		lower(report.ConfidenceLow, "the evidence does not say which rank is the cause")
	case waitgraph.Died:
		if s.ClockErrorNs == rankstate.UnknownClock {
			lower(report.ConfidenceMedium, "the death may be a consequence: the clocks of the hosts are not compared")
		} else if f.Order == waitgraph.DeathWithin && s.ClockErrorNs > 0 {
			lower(report.ConfidenceMedium, "the death may be a consequence: its order is within the clock error")
		}
	case waitgraph.Missing:
		if f.Guessed {
			lower(report.ConfidenceMedium, "nothing shows what the host of the missing rank does")
		}
	case waitgraph.Cycle:
		if f.Guessed {
			lower(report.ConfidenceMedium, "the operations may run at the same time")
		}
	}
	if s.Guessed {
		lower(report.ConfidenceLow, "hosts wait for their GPUs, perhaps not for these operations")
	}
	if s.Lost > 0 {
		lower(report.ConfidenceMedium, units.CountWithNoun(s.Lost, "call")+" lost")
	}
	if s.Truncated > 0 {
		lower(report.ConfidenceMedium, "the end of "+units.CountWithNoun(int64(s.Truncated), "recording")+" is missing")
	}
	if s.Communicators[f.Waits[0].Communicator].Numbering == format.NumberingCounter {
		lower(report.ConfidenceMedium, "numbers of earlier operations come from counters of the library")
	}
	return level, reasons
}
