package hostcause

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// Columns are the columns of Values.
var Columns = []report.Column{
	{
		Key: "host_pct", Title: "SHARE", Unit: report.UnitPercent,
		About: "share of the idle time of the GPU; without GPU times, of the gaps",
	},
	{Key: "host_ns", Title: "TOTAL", Unit: report.UnitNs, About: "probable time of the cause in all gaps"},
	{
		Key:   "certain_ns",
		Title: "CERTAIN",
		Unit:  report.UnitNs,
		About: "the part of TOTAL that is measured: waits with a stack of their own, and the certain part of the " +
			"gap. " +
			"Lines of CPU time come from samples, so they are estimated",
	},
	{Key: "gaps", Title: "GAPS", Unit: report.UnitCount, About: "number of gaps with the cause"},
	{Key: "longest_ns", Title: "LONGEST", Unit: report.UnitNs, About: "longest time of the cause in a gap"},
	{
		Key: "cause", Title: "THE HOST", Unit: report.UnitText,
		About: "what the launching thread did in the gaps. Unknown: waits that are too short for a row, or lost rows",
	},
	{
		Key:   "line",
		Title: "LINE",
		Unit:  report.UnitText,
		About: "line of the program in which it did so; absent: unknown",
	},
	{
		Key: "evidence", Title: "EVIDENCE", Unit: report.UnitText,
		About: "what it waited for: the thread that held the lock, what ran instead, the file, what a worker did, or " +
			"the CPU limit",
	},
}

// Values returns the cells of an entry. wholeNs is the time that its share is of.
func Values(t *timeline.Timeline, e *hosttime.Entry, wholeNs float64) report.Values {
	return report.Values{
		"host_pct": min(100, 100*e.Ns/max(1, wholeNs)), "host_ns": units.RoundInt(e.Ns),
		"certain_ns": units.RoundInt(e.CertainNs), "gaps": e.Spans, "longest_ns": e.LongestNs,
		"cause": Predicate(t, e), "line": LineOf(t, e.Stack), "evidence": units.TextOrNil(Evidence(t, e)),
	}
}

// LineOf returns the line of a stack; nil: unknown.
func LineOf(t *timeline.Timeline, stack int32) any {
	if stack == 0 {
		return nil
	}
	return units.TextOrNil(t.SiteOfStack(stack))
}

// Text returns what the host did, and where.
func Text(t *timeline.Timeline, at *hosttime.Place) string {
	return withLine(t, predicate(t, at, 1), at.Stack)
}

// EntryText is Text of an entry, whose chains can end at several threads.
func EntryText(t *timeline.Timeline, e *hosttime.Entry) string {
	return withLine(t, Predicate(t, e), e.Stack)
}

// withLine adds the line of a stack to a text, if it is known.
func withLine(t *timeline.Timeline, text string, stack int32) string {
	if stack != 0 {
		text += " at " + t.SiteOfStack(stack)
	}
	return text
}

// Evidence returns what the host waited for; "" if nothing is known.
func Evidence(t *timeline.Timeline, e *hosttime.Entry) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	owner := ownerText(t, e.Owner, e.OwnerName)
	during := ""
	if e.OwnerStack != 0 {
		during = t.SiteOfStack(e.OwnerStack)
	}
	switch e.Cause {
	case hosttime.CauseLoader:
		if during != "" {
			add("a worker was at %s", during)
		}
	case hosttime.CauseGIL, hosttime.CauseLock:
		if owner != "" {
			add("held by %s", owner)
		}
		if during != "" {
			add("at %s", during)
		}
	case hosttime.CauseRunQueue:
		if owner != "" {
			add("%s ran instead", owner)
		}
	case hosttime.CauseThrottled:
		if e.Target != "" {
			add("CPU limit of cgroup %s", e.Target)
		}
	case hosttime.CauseFile, hosttime.CauseNetwork, hosttime.CausePipe:
		if e.Target != "" {
			add("%s", e.Target)
		}
	case hosttime.CauseChild:
		if owner != "" {
			add("%s", owner)
		}
	case hosttime.CauseCPU, hosttime.CauseDriver:
		if e.Samples > 0 {
			add("%s", units.CountWithNoun(e.Samples, "sample"))
		}
	}
	if e.Chain.IsOther() {
		add("%s", chainText(t, &e.Chain))
	}
	if e.Waker.Tid != 0 {
		add("ended by %s", ownerText(t, e.Waker, e.WakerName))
	}
	if e.InLoader {
		add("the DataLoader reads the data set in this process")
	}
	return strings.Join(parts, ", ")
}

// ownerText names a thread; "" if it is unknown.
func ownerText(t *timeline.Timeline, th origin.Thread, name string) string {
	if name == "" {
		name = t.Facts.Threads[th]
	}
	switch {
	case th.Tid != 0 && name != "":
		return fmt.Sprintf("%s (thread %d)", name, th.Tid)
	case th.Tid != 0:
		return fmt.Sprintf("thread %d", th.Tid)
	case th.Pid != 0 && name != "":
		return fmt.Sprintf("%s (process %d)", name, th.Pid)
	case th.Pid != 0:
		return fmt.Sprintf("process %d", th.Pid)
	}
	return name
}
