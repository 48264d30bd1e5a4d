package cpu

import (
	"fmt"
	"math"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Run reports what threads did outside of CUDA calls. A recording without class host has one sentence
// instead of tables. Run returns a *report.SortError for an unknown opt.Sort, which sorts the table
// of waits.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.NewView()
	var s *scan
	counts, err := calls.CountReplayWhile(t, func() (err error) {
		s, err = newScan(t, &opt.Filter)
		return err
	})
	if err != nil {
		return nil, err
	}
	r := &report.Report{
		Command:   "cpu",
		Window:    s.window,
		Quality:   quality.OfRecording(t, counts),
		Notes:     t.Facts.Notes,
		Sentences: []string{"result", "confidence"},
	}
	if len(s.threads) == 0 && len(s.selection.Pids) > 0 {
		r.NoMatch = s.explainNoMatch()
	}
	r.Facts, r.Totals = s.facts(&r.Quality), s.totals()
	waits := s.waitTable()
	if err := waits.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	tables := []report.Table{
		s.threadTable(), s.reasonTable(), waits, s.lineTable(), s.collectionTable(), s.interpreterTable(),
		s.limitTable(), s.inputTable(), s.pressureTable(),
	}
	for i := range tables {
		table := &tables[i]
		if table.Name != waits.Name {
			if err := table.SortAndCut("", opt.Top); err != nil {
				return nil, err
			}
		}
		if table.Name == "waits" || table.Name == "lines" {
			frames.FillRowStacks(t, table, &opt)
			for k := range table.Rows {
				table.Rows[k].Brief = k >= maxPrintedStacks
			}
		}
	}
	r.Tables = tables
	for i := range r.Tables {
		processes.AddRankColumn(t, &r.Tables[i])
	}
	return r, nil
}

// explainNoMatch returns the condition of the filter that no row fulfils.
func (s *scan) explainNoMatch() *query.NoMatchError {
	seen := query.NewSeenCallers()
	for pid := range s.selection.Pids {
		seen.AddCaller(pid, 0, 0, 0)
	}
	return seen.ExplainNoMatch(s.selection.Filter)
}

// facts returns the facts of the report.
func (s *scan) facts(q *report.Quality) []report.Fact {
	fact := s.t.Facts.Host
	values := report.Values{
		"result": s.resultSentence(), "confidence": nil, "mode": nil, "min_wait_ns": nil, "sample_hz": nil,
	}
	if fact != nil {
		values["mode"] = units.TextOrNil(fact.Mode)
		values["min_wait_ns"] = countCell(fact.MinWaitNs)
		if fact.SampleHz > 0 && !math.IsInf(fact.SampleHz, 0) {
			values["sample_hz"] = fact.SampleHz
		}
	}
	if hosttime.HasTimes(s.t) {
		level, reasons := s.confidence(q)
		values["confidence"] = strings.TrimSuffix(level+": "+strings.Join(reasons, ", "), ": ")
	}
	return report.NewFacts(factColumns, values)
}

// resultSentence returns how threads with waits spent their time, or how to record it.
func (s *scan) resultSentence() string {
	if !hosttime.HasTimes(s.t) {
		return "the recording does not have what threads did outside of CUDA: record it with gpurec record --host auto"
	}
	var sum [4]float64
	n := int64(0)
	for th, of := range s.threads {
		m := s.metrics.threads[th]
		if of.waits.count == 0 && of.launches == 0 || m == nil {
			continue
		}
		n++
		for i, name := range stateCounters {
			sum[i] += m.number(name)
		}
	}
	all := sum[0] + sum[1] + sum[2] + sum[3]
	if all == 0 {
		return ""
	}
	var parts []string
	for i, text := range []string{"on a processor", "in the run queue", "sleeping", "in uninterruptible waits"} {
		parts = append(parts, fmt.Sprintf("%.0f%% %s", 100*sum[i]/all, text))
	}
	return fmt.Sprintf("%s with launches or waits: %s", units.CountWithNoun(n, "thread"), strings.Join(parts, ", "))
}

// stateCounters are the counters of the time of a thread in each state.
var stateCounters = [4]string{
	format.HostRunning, format.HostRunnable, format.HostSleeping, format.HostUninterruptible,
}

// totals returns the totals of the report.
func (s *scan) totals() []report.Fact {
	var sum [4]any
	for i, name := range stateCounters {
		for _, m := range s.metrics.threads {
			if m.count(name) != nil {
				before, _ := sum[i].(int64)
				sum[i] = units.EndOfRange(before, roundCell(m.number(name)))
			}
		}
	}
	var pauses, pauseNs int64
	for _, p := range s.pauses {
		pauses += p.count
		pauseNs = units.EndOfRange(pauseNs, p.ns)
	}
	var throttled any
	for _, m := range s.metrics.cgroups {
		throttled = report.MaxCell(throttled, m.number(format.HostThrottledNs))
	}
	if v, ok := throttled.(float64); ok {
		throttled = roundCell(v)
	}
	return report.NewFacts(totalColumns, report.Values{
		"threads":            int64(len(s.threads)),
		"on_cpu_ns":          sum[0],
		"run_queue_ns":       sum[1],
		"sleeping_ns":        sum[2],
		"uninterruptible_ns": sum[3],
		"waits":              s.all.count,
		"wait_ns":            s.all.ns,
		"stack_pct":          percentCell(float64(s.all.stackNs), float64(s.all.ns)),
		"reason_pct":         percentCell(float64(s.all.reasonNs), float64(s.all.ns)),
		"samples":            s.samples.count,
		"sampled_ns":         s.samples.ns,
		"gc_pauses":          pauses,
		"gc_ns":              pauseNs,
		"throttled_ns":       throttled,
		"lost_rows":          s.lostRows(),
		"bad_rows":           s.selection.Bad,
	})
}

// lostRows returns the number of lost rows of class host.
func (s *scan) lostRows() int64 {
	if n := s.t.Rec.Meta.HostRows; n != nil {
		return n.Lost
	}
	return 0
}

// leastStackPct is the share of waiting with a stack below which the confidence is not high.
const leastStackPct = 50

// confidence returns the confidence in the report, and the reasons that lower it.
func (s *scan) confidence(q *report.Quality) (level string, reasons []string) {
	level = report.ConfidenceHigh
	lower := func(to, text string) {
		if level == report.ConfidenceHigh || to == report.ConfidenceLow {
			level = to
		}
		reasons = append(reasons, text)
	}
	if n := s.lostRows(); n > 0 {
		to := report.ConfidenceMedium
		if n > s.all.count+s.samples.count {
			to = report.ConfidenceLow
		}
		lower(to, units.CountWithNoun(n, "row")+" of class host lost")
	}
	if s.selection.Bad > 0 {
		lower(report.ConfidenceMedium, units.CountWithNoun(s.selection.Bad, "row")+" with impossible values")
	}
	if q.TruncatedTail {
		lower(report.ConfidenceMedium, "the recording was cut off")
	}
	if pct, ok := percentCell(float64(s.all.stackNs), float64(s.all.ns)).(float64); ok && pct < leastStackPct {
		lower(report.ConfidenceMedium, fmt.Sprintf("only %.0f%% of the time in waits has a stack", pct))
	}
	if fact := s.t.Facts.Host; fact != nil {
		for _, text := range fact.Missing {
			lower(report.ConfidenceMedium, "not recorded: "+text)
		}
	}
	return level, reasons
}

// standardErrorPct returns the largest standard error of a share of n readings, in percent.
func standardErrorPct(n float64) any {
	if n <= 0 {
		return nil
	}
	return 50 / math.Sqrt(n)
}
