package steps

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/hostcause"
	"github.com/gpurec/gpurec/analyze/units"
)

// causeTimes is the time of each cause on the host, ns.
type causeTimes [hosttime.Causes]int64

func (c *causeTimes) add(parts hosttime.Parts) {
	for i := range parts {
		c[parts[i].Cause] += parts[i].Ns
	}
}

// hostSteps has how the thread with the most calls of the steps spent its time in complete steps.
type hostSteps struct {
	breakdown *hosttime.Breakdown
	entries   []*hosttime.Entry
	typical   causeTimes // of the steps that are no outliers
	steps     int64      // number of these
}

// addHostTime reads how the threads of the steps spent their time, if the recording has rows of class host.
func (sc *scan) addHostTime() error {
	if !hosttime.HasRows(sc.t) {
		return nil
	}
	h, err := hosttime.Of(sc.t)
	if err != nil {
		return err
	}
	for _, s := range sc.processes {
		if tid, ok := s.mainThread(); ok && h.Knows(s.Pid, tid) {
			s.addHostTime(h, origin.Thread{Pid: s.Pid, Tid: tid}, sc.t.SiteOfStack)
		}
	}
	return h.Err()
}

// mainThread returns the thread with the most calls in steps.
func (s *processScan) mainThread() (tid int32, ok bool) {
	s.callsOf[s.lastTid] += s.lastCalls
	s.lastCalls = 0
	most := int64(0)
	for t, calls := range s.callsOf {
		if calls > most || calls == most && t < tid {
			most, tid, ok = calls, t, true
		}
	}
	return tid, ok
}

// addHostTime adds the time of a thread in the steps of its process.
func (s *processScan) addHostTime(h *hosttime.History, th origin.Thread, siteOf func(int32) string) {
	s.host = &hostSteps{breakdown: hosttime.NewBreakdown(h, siteOf)}
	for i := range s.Steps {
		st := &s.Steps[i]
		if st.IsCut {
			continue
		}
		s.host.breakdown.Add(s, th, st.BeginNs, st.EndNs, 1)
		parts := s.host.breakdown.LastParts()
		if o := s.outlierOf[i]; o != nil {
			o.host = slices.Clone(parts)
		} else if st.DurNs() <= s.limitNs {
			s.host.typical.add(parts)
			s.host.steps++
		}
	}
	s.host.entries = s.host.breakdown.Finish()
}

// hostCause returns what the host did longer in an outlier than in a typical step, and for how long, if it
// explains a quarter of the extra time. GPU times explain waits for the GPU.
func (s *processScan) hostCause(o *outlier) (at hosttime.Place, ns int64) {
	if s.host == nil {
		return at, 0
	}
	var times causeTimes
	times.add(o.host)
	for c := range times {
		cause := hosttime.Cause(c)
		longerNs := times[c] - s.host.typical[c]/max(1, s.host.steps)
		if cause.IsKnown() && cause != hosttime.CauseCUDA && longerNs > ns {
			at, ns = hosttime.Place{Cause: cause}, longerNs
		}
	}
	if excessNs := s.Steps[o.step].DurNs() - s.medianNs(); 4*ns < excessNs || ns == 0 {
		return at, 0
	}
	longest := slices.IndexFunc(o.host, func(p hosttime.Part) bool { return p.Cause == at.Cause && p.Stack != 0 })
	if longest >= 0 { // the parts are sorted
		return o.host[longest].Place, ns
	}
	if line, ok := s.host.breakdown.LineOf(s, at.Cause); ok {
		return line, ns
	}
	return at, ns
}

// hostText says what the host did longer in an outlier; "" if nothing is known.
func (sc *scan) hostText(s *processScan, o *outlier) string {
	at, ns := s.hostCause(o)
	if ns == 0 {
		return ""
	}
	return fmt.Sprintf("%s, %s longer", hostcause.Text(sc.t, &at), units.FormatDuration(ns))
}

// outlierHostColumn is a column of the outliers with rows of class host.
var outlierHostColumn = report.Column{
	Key: "host", Title: "THE HOST", Unit: report.UnitText,
	About: "what the launching thread did longer than in a typical step, if that explains a quarter of LONGER BY",
}

// hostColumns are the columns of the table host.
var hostColumns = []report.Column{
	{Key: "host_pct", Title: "SHARE", Unit: report.UnitPercent, About: "share of the steps' time"},
	{Key: "host_ns", Title: "A STEP", Unit: report.UnitNs, About: "the same time for a step, on average"},
	{
		Key: "certain_pct", Title: "CERTAIN", Unit: report.UnitPercent,
		About: "the part of the time that is measured; lines of CPU time come from samples, so they are estimated",
	},
	{Key: "in_steps", Title: "STEPS", Unit: report.UnitCount, About: "number of steps with the cause"},
	{Key: "longest_ns", Title: "LONGEST", Unit: report.UnitNs, About: "longest time of the cause in a step"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{
		Key:   "cause",
		Title: "THE HOST",
		Unit:  report.UnitText,
		About: "what the thread with the most calls of the steps did. Unknown: waits that are too short for a " +
			"row, or " +
			"lost rows",
	},
	{
		Key:   "line",
		Title: "LINE",
		Unit:  report.UnitText,
		About: "line of the program in which it did so; absent: unknown",
	},
	{
		Key: "evidence", Title: "EVIDENCE", Unit: report.UnitText,
		About: "what it waited for, as in the table host of the report gaps",
	},
}

// hostTable returns a table with one row per process, cause and line.
func (sc *scan) hostTable() report.Table {
	table := report.Table{
		Name: "host", Title: "the host's time in a step", Columns: hostColumns, Keys: []string{"cause", "line"},
		HideFirst: []string{"certain_pct", "pid", "in_steps", "longest_ns"},
	}
	hostcause.AddChainColumns(sc.t, &table)
	for _, s := range sc.processes {
		if s.host == nil || s.complete == 0 {
			continue
		}
		for _, e := range s.host.entries {
			row := table.Add(report.JoinValues(hostcause.ChainValues(sc.t, e), report.Values{
				"host_pct": min(100, 100*e.Ns/max(1, float64(s.sumNs))), "host_ns": units.RoundInt(e.Ns) / s.complete,
				"certain_pct": 100 * e.CertainNs / max(1, e.Ns), "in_steps": e.Spans, "longest_ns": e.LongestNs,
				"pid": int64(s.Pid), "cause": hostcause.Predicate(sc.t, e), "line": hostcause.LineOf(sc.t, e.Stack),
				"evidence": units.TextOrNil(hostcause.Evidence(sc.t, e)),
			}))
			row.StackID = e.Stack
		}
	}
	table.Sort("host_ns", "-pid", "cause")
	return table
}
