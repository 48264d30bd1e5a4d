package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/gpurec/gpurec/analyze/units"
)

// A rule is something that experts look for in a recording. It is a function of a survey: rules compute nothing of which there is a
// report, they say when what the report counts is worth somebody's time. Each rule has its own thresholds, as constants beside it
// that say where they come from. Most of them ask for worthPct of the time: what costs less is not worth a change of a program.

// worthPct is from which share of the time on something is worth telling, %: windows of one and the same training differ by more.
const worthPct = 1.0

// Rule is one check. Its id is stable: scripts and people's notes name it.
type Rule struct {
	Id string
	// About says when it fires, with its thresholds.
	About string
	// Report is the name of the report that shows more.
	Report string
	// advice says what to do, in at most two sentences.
	advice string
	check  func(*Survey) ([]Hit, error)
}

// Hit is what a rule has found.
type Hit struct {
	Rule     *Rule
	Severity int // index into gpu.VerdictLevels
	What     string
	Advice   string // if it is not the rule's
	Places   []Place
	Level    string // confidence
	Reasons  []string
}

// Place is a row of evidence: where it is, and numbers of it. What is not known is nil.
type Place struct {
	Where            string // site, GPU or process
	Stack            int32
	Count, Ns, Bytes any
	FirstNs, lastNs  int64 // Unix ns; 0: it has no time
	Detail           string
}

// Severities of hits, which index gpu.VerdictLevels.
const (
	SeverityProblem = iota
	SeverityNotice
	SeverityInfo
	NumSeverities
)

// All are all rules, in the order in which hits of equal severity are told: what ends programs first, then what costs most.
func All() []*Rule {
	return []*Rule{
		&ruleXid, &ruleBrokenContext, &RuleHang, &RuleOOM, &ruleOOMFragmentation, &ruleAllocRetry, &RuleInvalidFree, &RuleUncheckedError, &ruleGrowing, &ruleExitLeak, &ruleMemoryFull,
		&ruleGPUHealth, &ruleThrottling, &ruleGPUIdle, &ruleLaunchBound, &ruleLowSM, &ruleLowOccupancy, &ruleTensorUnused,
		&ruleTinyKernels, &ruleSyncLoop, &ruleAllocLoop, &rulePageable, &ruleSmallCopies, &ruleModuleLoop,
	}
}

// Info describes a rule to people.
type Info struct{ Name, About string }

// List lists the rules.
func List() (list []Info) {
	for _, r := range All() {
		list = append(list, Info{r.Id, r.About})
	}
	return list
}

// UnknownError says that there is no rule of a name.
type UnknownError struct {
	Name  string
	Known []string
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("there is no rule %q; there are %s", e.Name, strings.Join(e.Known, ", "))
}

// chosenRules returns the rules of some names, all of them for none.
func chosenRules(names []string) ([]*Rule, error) {
	all := All()
	var known []string
	for _, r := range all {
		known = append(known, r.Id)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, &UnknownError{name, known}
		}
	}
	return slices.DeleteFunc(all, func(r *Rule) bool { return len(names) > 0 && !slices.Contains(names, r.Id) }), nil
}

// Options shape the report of rules.
type Options struct {
	query.Options
	// Rules are the names of the rules that are checked; none: all.
	Rules []string
}

// Run checks all rules, as RunWith does.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return RunWith(t, Options{Options: opt})
}

// RunWith checks a recording as experts do. It returns a *RuleError for a rule that there is not, and a *SortError for a column.
func RunWith(t *timeline.Timeline, opt Options) (*report.Report, error) {
	t = t.View()
	opt.GroupBy = ""
	chosen, err := chosenRules(opt.Rules)
	if err != nil {
		return nil, err
	}
	s, err := NewSurvey(t, &opt.Options)
	if err != nil {
		return nil, err
	}
	if err := s.Run(nil, nil); err != nil {
		return nil, err
	}
	checked := Checkable(t, chosen)
	hits, err := s.Check(checked)
	if err != nil {
		return nil, err
	}
	r := &report.Report{Command: "rules", Window: s.Window, Quality: s.Quality, Notes: append(slices.Clone(t.Facts.Notes), s.Quality.Notes()...)}
	if len(s.Calls.Calls) == 0 && t.Scan.Events > 0 {
		r.NoMatch = s.Calls.Seen.Explain(&opt.Filter)
	}
	r.Facts, r.Totals = facts(checked, len(chosen)-len(checked), hits), totals(hits)
	table, evidence := hitTable(t, hits), evidenceTable(t, hits, opt.Top)
	if err := table.Arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	frames.Fill(t, &table, &opt.Options)
	r.Tables = []report.Table{table, evidence}
	if used := s.Leaks.Grouping.Suppress.Table(); len(used.Rows) > 0 {
		r.Tables = append(r.Tables, used)
	}
	return r, nil
}

// Check applies rules; the worst hits come first.
func (s *Survey) Check(chosen []*Rule) ([]Hit, error) {
	var hits []Hit
	for _, r := range chosen {
		found, err := r.check(s)
		if err != nil {
			return nil, err
		}
		for i := range found {
			found[i].Rule = r
			found[i].Advice = cmp.Or(found[i].Advice, r.advice)
		}
		hits = append(hits, found...)
	}
	slices.SortStableFunc(hits, func(a, b Hit) int { return cmp.Compare(a.Severity, b.Severity) })
	return hits, nil
}

// newHit begins a hit with the confidence that the recording as a whole deserves where calls are counted: a loss of a few changes no
// rate, and an inferred stack may be another call's.
func (s *Survey) newHit(severity int, format string, args ...any) Hit {
	h := Hit{Severity: severity, What: fmt.Sprintf(format, args...), Level: report.ConfidenceHigh}
	q := &s.Quality
	switch lost := q.LostEvents; {
	case lost*10 > q.Events:
		h.lower(report.ConfidenceLow, "%s lost", units.Plural(lost, "call"))
	case lost*100 > q.Events:
		h.lower(report.ConfidenceMedium, "%s lost", units.Plural(lost, "call"))
	}
	if n := q.DamagedSegments; n > 0 {
		h.lower(report.ConfidenceMedium, "%s damaged", units.Plural(n, "segment"))
	}
	if d := s.Window.DurNs(); d < int64(3*time.Second) {
		h.lower(report.ConfidenceMedium, "only %s were recorded", units.Duration(d))
	}
	return h
}

// lower lowers the confidence.
func (h *Hit) lower(to, format string, args ...any) {
	if h.Level == report.ConfidenceHigh || to == report.ConfidenceLow {
		h.Level = to
	}
	h.Reasons = append(h.Reasons, fmt.Sprintf(format, args...))
}

// bySite lowers the confidence of hits that blame places of calls whose stacks are inferred.
func (s *Survey) bySite(h *Hit) {
	if pct, ok := sampling.ErrorPct(&s.Quality.Inferred).(float64); ok && pct >= worthPct {
		h.lower(report.ConfidenceMedium, "%.0f%% of inferred stacks are another call's", pct)
	}
}

// sortPlaces puts places with most time first, then most calls.
func sortPlaces(list []Place) {
	slices.SortFunc(list, func(a, b Place) int {
		return cmp.Or(report.CompareCells(a.Ns, b.Ns), report.CompareCells(a.Count, b.Count), report.CompareCells(a.Bytes, b.Bytes), strings.Compare(a.Where, b.Where), strings.Compare(a.Detail, b.Detail))
	})
}

var factColumns = []report.Column{
	{Key: "result", Title: "result", Unit: report.UnitText, About: "set if nothing was found, or not all rules were checked"},
	{Key: "rules_checked", Title: "", Unit: report.UnitCount, About: "rules that were checked"},
}

// facts returns the result, and the number of places of every rule. unchecked is the number of
// chosen rules that this recording has no calls for.
func facts(checked []*Rule, unchecked int, hits []Hit) []report.Fact {
	var result []string
	if len(hits) == 0 {
		result = append(result, fmt.Sprintf("no rule of %d found anything", len(checked)))
	}
	if unchecked > 0 {
		result = append(result, units.Plural(int64(unchecked), "rule")+" not checked: the recording leaves out the calls they need (--record)")
	}
	list := report.Facts(factColumns, report.Values{
		"result":        strings.Join(result, "; "),
		"rules_checked": int64(len(checked)),
	})
	for _, r := range All() {
		var places any
		if slices.Contains(checked, r) {
			n := int64(0)
			for i := range hits {
				if hits[i].Rule == r {
					n += int64(max(1, len(hits[i].Places)))
				}
			}
			places = n
		}
		list = append(list, report.Fact{Column: r.column(), Value: places})
	}
	return list
}

// column is the number of places that a rule blames, for --fail-on.
func (r *Rule) column() report.Column {
	return report.Column{Key: strings.ReplaceAll(r.Id, "-", "_"), Title: "", Unit: report.UnitCount, About: "rows of evidence of " + r.Id + ", 0: it did not fire, absent: it was not checked. " + r.About}
}

// ruleColumns explain all rules.
func ruleColumns() (list []report.Column) {
	for _, r := range All() {
		list = append(list, r.column())
	}
	return list
}

var totalColumns = []report.Column{
	{Key: "hits", Title: "hits", Unit: report.UnitCount, About: "rules that found something; of GPUs, per GPU"},
	{Key: "problems", Title: "problems", Unit: report.UnitCount, About: "hits of severity problem: the program fails, hangs or leaks, or a GPU is in trouble"},
	{Key: "notices", Title: "notices", Unit: report.UnitCount, About: "hits of severity notice: it costs time or memory"},
	{Key: "infos", Title: "infos", Unit: report.UnitCount, About: "hits of severity info: worth knowing"},
}

// CountBySeverity returns how many hits there are of each severity.
func CountBySeverity(hits []Hit) (n [NumSeverities]int64) {
	for i := range hits {
		n[hits[i].Severity]++
	}
	return n
}

func totals(hits []Hit) []report.Fact {
	n := CountBySeverity(hits)
	return report.Facts(totalColumns, report.Values{
		"hits":     int64(len(hits)),
		"problems": n[SeverityProblem],
		"notices":  n[SeverityNotice],
		"infos":    n[SeverityInfo],
	})
}

var hitColumns = []report.Column{
	{Key: "rule", Title: "RULE", Unit: report.UnitText, About: "name of the rule"},
	{Key: "severity", Title: "SEVERITY", Unit: report.UnitText, About: "problem: the program fails, hangs or leaks, or a GPU is in trouble; notice: it costs time or memory; info: worth knowing"},
	{Key: "confidence", Title: "CONFIDENCE", Unit: report.UnitText, About: "high, medium or low"},
	{Key: "confidence_reasons", Title: "", Unit: report.UnitText, About: "what lowers it: lost calls, a short or damaged recording, inferred stacks, calls of which only the entry is known, too few samples"},
	{Key: "places", Title: "", Unit: report.UnitCount, About: "rows of evidence; the most important ones are in the table evidence"},
	{Key: "first_ns", Title: "", Unit: report.UnitNs, About: "when it was first seen, from the recording's start; absent if it has no time"},
	{Key: "advice", Title: "", Unit: report.UnitText, About: "what to do"},
	{Key: "more", Title: "", Unit: report.UnitText, About: "the command that shows more"},
	{Key: "what", Title: "WHAT", Unit: report.UnitText, About: "what was found"},
	{Key: "where", Title: "WHERE", Unit: report.UnitText, About: "the place in the program, GPU or process with most of it"},
}

// hitTable has a row per hit.
func hitTable(t *timeline.Timeline, hits []Hit) report.Table {
	table := report.Table{Name: "hits", Title: "what experts would look at", Columns: hitColumns, Spare: []string{"confidence"}, Keys: []string{"rule", "where"}}
	for i := range hits {
		h := &hits[i]
		where, stack, first := h.Where(), int32(0), any(nil)
		for k := range h.Places {
			if at := h.Places[k].FirstNs; at != 0 && (first == nil || at-t.Recording().FromNs < first.(int64)) {
				first = at - t.Recording().FromNs
			}
		}
		if len(h.Places) > 0 {
			stack = h.Places[0].Stack
		}
		more := "gpurec analyze " + h.Rule.Report + " " + ShellWord(t.Rec.Path)
		row := table.Add(report.Values{
			"rule":               h.Rule.Id,
			"severity":           gpu.VerdictLevels[h.Severity],
			"confidence":         h.Level,
			"confidence_reasons": h.Reasons,
			"places":             int64(len(h.Places)),
			"first_ns":           first,
			"advice":             h.Advice,
			"more":               more,
			"what":               h.What,
			"where":              where,
		})
		row.StackID, row.Evidence = stack, fmt.Sprintf("%s. %s C%s. More: %s", h.What, h.Advice, report.ConfidenceText(h.Level, h.Reasons)[1:], more)
	}
	return table
}

// Where is the place with most of a hit, and how many more there are.
func (h *Hit) Where() any {
	switch n := len(h.Places); {
	case n == 0 || h.Places[0].Where == "":
		return nil
	case n > 1:
		return fmt.Sprintf("%s, and %d more", h.Places[0].Where, n-1)
	}
	return h.Places[0].Where
}

// ShellWord quotes a path for a shell, if it needs it.
func ShellWord(path string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+,:@%=", r)
	}
	if path != "" && strings.IndexFunc(path, func(r rune) bool { return !plain(r) }) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

var evidenceColumns = []report.Column{
	{Key: "rule", Title: "RULE", Unit: report.UnitText, About: "the rule that it is evidence for"},
	{Key: "count", Title: "COUNT", Unit: report.UnitCount, About: "calls, blocks or samples"},
	{Key: "time_ns", Title: "TIME", Unit: report.UnitNs, About: "time that it took or lasted, of calls whose duration is known"},
	{Key: "bytes", Title: "BYTES", Unit: report.UnitBytes, About: "bytes that it is about"},
	{Key: "first_ns", Title: "FIRST", Unit: report.UnitNs, About: "when it was first seen, from the recording's start"},
	{Key: "last_ns", Title: "LAST", Unit: report.UnitNs, About: "when it was last seen"},
	{Key: "detail", Title: "DETAIL", Unit: report.UnitText, About: "what else is known"},
	{Key: "where", Title: "WHERE", Unit: report.UnitText, About: "place in the program, GPU or process"},
}

// mostPlaces is how many rows of evidence are told of a hit, unless all rows are asked for.
const mostPlaces = 5

// evidenceTable has the rows of evidence of all hits.
func evidenceTable(t *timeline.Timeline, hits []Hit, top int) report.Table {
	table := report.Table{Name: "evidence", Title: "evidence", Columns: evidenceColumns, Aside: true, Keys: []string{"rule", "where", "detail"}, Spare: []string{"last_ns", "first_ns", "bytes"}}
	from := func(ns int64) any {
		if ns == 0 {
			return nil
		}
		return ns - t.Recording().FromNs
	}
	for i := range hits {
		h := &hits[i]
		for k := range h.Places {
			if top > 0 && k == mostPlaces {
				table.More += len(h.Places) - k
				break
			}
			p := &h.Places[k]
			table.Add(report.Values{
				"rule":     h.Rule.Id,
				"count":    p.Count,
				"time_ns":  p.Ns,
				"bytes":    p.Bytes,
				"first_ns": from(p.FirstNs),
				"last_ns":  from(p.lastNs),
				"detail":   units.Known(p.Detail),
				"where":    units.Known(p.Where),
			})
		}
	}
	return table
}

var ShortHitColumns = []report.Column{
	{Key: "severity", Title: "SEVERITY", Unit: report.UnitText, About: "problem, notice or info: see analyze rules"},
	{Key: "rule", Title: "RULE", Unit: report.UnitText, About: "name of the rule"},
	{Key: "what", Title: "WHAT", Unit: report.UnitText, About: "what was found"},
	{Key: "confidence", Title: "CONFIDENCE", Unit: report.UnitText, About: "high, medium or low; analyze rules says why"},
	{Key: "where", Title: "WHERE", Unit: report.UnitText, About: "the place in the program, GPU or process with most of it"},
}

// ShortHits has one line per hit.
func ShortHits(hits []Hit) report.Table {
	table := report.Table{Name: "hits", Title: "what experts would look at; gpurec analyze rules says why, and what to do", Columns: ShortHitColumns,
		Lead: true, Spare: []string{"confidence"}, Keys: []string{"rule", "where"}}
	for i := range hits {
		h := &hits[i]
		table.Add(report.Values{
			"severity":   gpu.VerdictLevels[h.Severity],
			"rule":       h.Rule.Id,
			"what":       h.What,
			"confidence": h.Level,
			"where":      h.Where(),
		})
	}
	return table
}

// isWork reports whether a call gives work to the GPU, or gets memory for it: what a program does that goes on, and not one that
// tidies up.
func isWork(name string) bool {
	for _, prefix := range []string{"cuLaunch", "cuGraphLaunch", "cuMemcpy", "cuMemset", "cuMemAlloc", "cuMemCreate"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// onlyEntries says of which share of launches only the entry is known.
func (s *Survey) onlyEntries(h *Hit, unknown, launches int64) {
	if unknown > 0 {
		h.lower(report.ConfidenceMedium, "of %.0f%% of the launches only the entry is known", units.Percent(unknown, launches))
	}
}
