package analyze

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

// A rule is something that experts look for in a recording. It is a function of a survey: rules compute nothing of which there is a
// report, they say when what the report counts is worth somebody's time. Each rule has its own thresholds, as constants beside it
// that say where they come from. Most of them ask for worthPct of the time: what costs less is not worth a change of a program.

// worthPct is from which share of the time on something is worth telling, %: windows of one and the same training differ by more.
const worthPct = 1.0

// rule is one check. Its id is stable: scripts and people's notes name it.
type rule struct {
	id string
	// about says when it fires, with its thresholds.
	about string
	// report is the name of the report that shows more.
	report string
	// advice says what to do, in at most two sentences.
	advice string
	check  func(*survey) ([]hit, error)
}

// hit is what a rule has found.
type hit struct {
	rule     *rule
	severity int // index into verdictLevels
	what     string
	advice   string // if it is not the rule's
	places   []place
	level    string // confidence
	reasons  []string
}

// place is a row of evidence: where it is, and numbers of it. What is not known is nil.
type place struct {
	where            string // site, GPU or process
	stack            int32
	count, ns, bytes any
	firstNs, lastNs  int64 // Unix ns; 0: it has no time
	detail           string
}

// Severities, as verdictLevels has them.
const (
	aProblem = iota
	aNotice
	anInfo
)

// rules are all rules, in the order in which hits of equal severity are told: what ends programs first, then what costs most.
func rules() []*rule {
	return []*rule{
		&ruleXid, &ruleBrokenContext, &ruleHang, &ruleOOM, &ruleOOMFragmentation, &ruleAllocRetry, &ruleInvalidFree, &ruleUncheckedError, &ruleGrowing, &ruleExitLeak, &ruleMemoryFull,
		&ruleGPUHealth, &ruleThrottling, &ruleGPUIdle, &ruleLaunchBound, &ruleLowSM, &ruleLowOccupancy, &ruleTensorUnused,
		&ruleTinyKernels, &ruleSyncLoop, &ruleAllocLoop, &rulePageable, &ruleSmallCopies, &ruleModuleLoop,
	}
}

// RuleInfo describes a rule to people.
type RuleInfo struct{ Name, About string }

// Rules lists the rules.
func Rules() (list []RuleInfo) {
	for _, r := range rules() {
		list = append(list, RuleInfo{r.id, r.about})
	}
	return list
}

// RuleError says that there is no rule of a name.
type RuleError struct {
	Name  string
	Known []string
}

func (e *RuleError) Error() string {
	return fmt.Sprintf("there is no rule %q; there are %s", e.Name, strings.Join(e.Known, ", "))
}

// chosenRules returns the rules of some names, all of them for none.
func chosenRules(names []string) ([]*rule, error) {
	all := rules()
	var known []string
	for _, r := range all {
		known = append(known, r.id)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, &RuleError{name, known}
		}
	}
	return slices.DeleteFunc(all, func(r *rule) bool { return len(names) > 0 && !slices.Contains(names, r.id) }), nil
}

// RuleOptions shape the report of rules.
type RuleOptions struct {
	query.Options
	// Rules are the names of the rules that are checked; none: all.
	Rules []string
}

// CheckRules checks a recording as experts do. It returns a *RuleError for a rule that there is not, and a *SortError for a column.
func CheckRules(t *timeline.Timeline, opt RuleOptions) (*Report, error) {
	opt.GroupBy = ""
	chosen, err := chosenRules(opt.Rules)
	if err != nil {
		return nil, err
	}
	s, err := newSurvey(t, &opt.Options)
	if err != nil {
		return nil, err
	}
	if err := s.run(nil, nil); err != nil {
		return nil, err
	}
	checked := checkable(t, chosen)
	hits, err := s.check(checked)
	if err != nil {
		return nil, err
	}
	r := &Report{Command: "rules", Window: s.window, Quality: s.quality, Notes: append(slices.Clone(t.Facts.Notes), s.quality.notes()...)}
	if len(s.calls.Calls) == 0 && t.Scan.Events > 0 {
		r.NoMatch = s.calls.Seen.Explain(&opt.Filter)
	}
	r.Facts, r.Totals = ruleFacts(checked, len(chosen)-len(checked), hits), ruleTotals(hits)
	table, evidence := hitTable(t, hits), evidenceTable(t, hits, opt.Top)
	if err := table.arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	addStacks(t, &table, &opt.Options)
	r.Tables = []Table{table, evidence}
	if used := s.leaks.grouping.suppress.table(); len(used.Rows) > 0 {
		r.Tables = append(r.Tables, used)
	}
	return r, nil
}

// check applies rules; the worst hits come first.
func (s *survey) check(chosen []*rule) ([]hit, error) {
	var hits []hit
	for _, r := range chosen {
		found, err := r.check(s)
		if err != nil {
			return nil, err
		}
		for i := range found {
			found[i].rule = r
			found[i].advice = cmp.Or(found[i].advice, r.advice)
		}
		hits = append(hits, found...)
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.severity, b.severity) })
	return hits, nil
}

// newHit begins a hit with the confidence that the recording as a whole deserves where calls are counted: a loss of a few changes no
// rate, and an inferred stack may be another call's.
func (s *survey) newHit(severity int, format string, args ...any) hit {
	h := hit{severity: severity, what: fmt.Sprintf(format, args...), level: confidenceHigh}
	q := &s.quality
	switch lost := q.LostEvents; {
	case lost*10 > q.Events:
		h.lower(confidenceLow, "%s lost", units.Plural(lost, "call"))
	case lost*100 > q.Events:
		h.lower(confidenceMedium, "%s lost", units.Plural(lost, "call"))
	}
	if n := q.DamagedSegments; n > 0 {
		h.lower(confidenceMedium, "%s damaged", units.Plural(n, "segment"))
	}
	if d := s.window.DurNs(); d < int64(3*time.Second) {
		h.lower(confidenceMedium, "only %s were recorded", units.Duration(d))
	}
	return h
}

// lower lowers the confidence.
func (h *hit) lower(to, format string, args ...any) {
	if h.level == confidenceHigh || to == confidenceLow {
		h.level = to
	}
	h.reasons = append(h.reasons, fmt.Sprintf(format, args...))
}

// bySite lowers the confidence of hits that blame places of calls whose stacks are inferred.
func (s *survey) bySite(h *hit) {
	if pct, ok := sampling.ErrorPct(&s.quality.inferred).(float64); ok && pct >= worthPct {
		h.lower(confidenceMedium, "%.0f%% of inferred stacks are another call's", pct)
	}
}

// sortPlaces puts places with most time first, then most calls.
func sortPlaces(list []place) {
	slices.SortFunc(list, func(a, b place) int {
		return cmp.Or(compareCells(a.ns, b.ns), compareCells(a.count, b.count), compareCells(a.bytes, b.bytes), strings.Compare(a.where, b.where), strings.Compare(a.detail, b.detail))
	})
}

var ruleFactColumns = []Column{
	{"result", "result", UnitText, "set if nothing was found, or not all rules were checked"},
	{"rules_checked", "", UnitCount, "rules that were checked"},
}

// ruleFacts has the result, and a number for every rule. Of the rules, unchecked could not be
// applied to this recording.
func ruleFacts(checked []*rule, unchecked int, hits []hit) []Fact {
	var result []string
	if len(hits) == 0 {
		result = append(result, fmt.Sprintf("no rule of %d found anything", len(checked)))
	}
	if unchecked > 0 {
		result = append(result, units.Plural(int64(unchecked), "rule")+" not checked: the recording leaves out the calls they need (--record)")
	}
	facts := fill(ruleFactColumns, strings.Join(result, "; "), int64(len(checked)))
	for _, r := range rules() {
		var places any
		if slices.Contains(checked, r) {
			n := int64(0)
			for i := range hits {
				if hits[i].rule == r {
					n += int64(max(1, len(hits[i].places)))
				}
			}
			places = n
		}
		facts = append(facts, Fact{r.column(), places})
	}
	return facts
}

// column is the number of places that a rule blames, for --fail-on.
func (r *rule) column() Column {
	return Column{strings.ReplaceAll(r.id, "-", "_"), "", UnitCount, "rows of evidence of " + r.id + ", 0: it did not fire, absent: it was not checked. " + r.about}
}

// ruleColumns explain all rules.
func ruleColumns() (list []Column) {
	for _, r := range rules() {
		list = append(list, r.column())
	}
	return list
}

var ruleTotalColumns = []Column{
	{"hits", "hits", UnitCount, "rules that found something; of GPUs, per GPU"},
	{"problems", "problems", UnitCount, "hits of severity problem: the program fails, hangs or leaks, or a GPU is in trouble"},
	{"notices", "notices", UnitCount, "hits of severity notice: it costs time or memory"},
	{"infos", "infos", UnitCount, "hits of severity info: worth knowing"},
}

func ruleTotals(hits []hit) []Fact {
	var n [3]int64
	for i := range hits {
		n[hits[i].severity]++
	}
	return fill(ruleTotalColumns, int64(len(hits)), n[aProblem], n[aNotice], n[anInfo])
}

var hitColumns = []Column{
	{"rule", "RULE", UnitText, "name of the rule"},
	{"severity", "SEVERITY", UnitText, "problem: the program fails, hangs or leaks, or a GPU is in trouble; notice: it costs time or memory; info: worth knowing"},
	{"confidence", "CONFIDENCE", UnitText, "high, medium or low"},
	{"confidence_reasons", "", UnitText, "what lowers it: lost calls, a short or damaged recording, inferred stacks, calls of which only the entry is known, too few samples"},
	{"places", "", UnitCount, "rows of evidence; the most important ones are in the table evidence"},
	{"first_ns", "", UnitNs, "when it was first seen, from the recording's start; absent if it has no time"},
	{"advice", "", UnitText, "what to do"},
	{"more", "", UnitText, "the command that shows more"},
	{"what", "WHAT", UnitText, "what was found"},
	{"where", "WHERE", UnitText, "the place in the program, GPU or process with most of it"},
}

// hitTable has a row per hit.
func hitTable(t *timeline.Timeline, hits []hit) Table {
	table := Table{Name: "hits", Title: "what experts would look at", Columns: hitColumns, Spare: []string{"confidence"}, Keys: []string{"rule", "where"}}
	for i := range hits {
		h := &hits[i]
		where, stack, first := h.where(), int32(0), any(nil)
		for k := range h.places {
			if at := h.places[k].firstNs; at != 0 && (first == nil || at-t.Recording().FromNs < first.(int64)) {
				first = at - t.Recording().FromNs
			}
		}
		if len(h.places) > 0 {
			stack = h.places[0].stack
		}
		more := "gpurec analyze " + h.rule.report + " " + shellWord(t.Rec.Path)
		table.Rows = append(table.Rows, Row{stack: stack, Evidence: fmt.Sprintf("%s. %s C%s. More: %s", h.what, h.advice, confidenceText(h.level, h.reasons)[1:], more),
			Cells: []any{h.rule.id, verdictLevels[h.severity], h.level, h.reasons, int64(len(h.places)), first, h.advice, more, h.what, where}})
	}
	return table
}

// where is the place with most of a hit, and how many more there are.
func (h *hit) where() any {
	switch n := len(h.places); {
	case n == 0 || h.places[0].where == "":
		return nil
	case n > 1:
		return fmt.Sprintf("%s, and %d more", h.places[0].where, n-1)
	}
	return h.places[0].where
}

// shellWord quotes a path for a shell, if it needs it.
func shellWord(path string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-+,:@%=", r)
	}
	if path != "" && strings.IndexFunc(path, func(r rune) bool { return !plain(r) }) < 0 {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

var evidenceColumns = []Column{
	{"rule", "RULE", UnitText, "the rule that it is evidence for"},
	{"count", "COUNT", UnitCount, "calls, blocks or samples"},
	{"time_ns", "TIME", UnitNs, "time that it took or lasted, of calls whose duration is known"},
	{"bytes", "BYTES", UnitBytes, "bytes that it is about"},
	{"first_ns", "FIRST", UnitNs, "when it was first seen, from the recording's start"},
	{"last_ns", "LAST", UnitNs, "when it was last seen"},
	{"detail", "DETAIL", UnitText, "what else is known"},
	{"where", "WHERE", UnitText, "place in the program, GPU or process"},
}

// mostPlaces is how many rows of evidence are told of a hit, unless all rows are asked for.
const mostPlaces = 5

// evidenceTable has the rows of evidence of all hits.
func evidenceTable(t *timeline.Timeline, hits []hit, top int) Table {
	table := Table{Name: "evidence", Title: "evidence", Columns: evidenceColumns, Aside: true, Keys: []string{"rule", "where", "detail"}, Spare: []string{"last_ns", "first_ns", "bytes"}}
	from := func(ns int64) any {
		if ns == 0 {
			return nil
		}
		return ns - t.Recording().FromNs
	}
	for i := range hits {
		h := &hits[i]
		for k := range h.places {
			if top > 0 && k == mostPlaces {
				table.More += len(h.places) - k
				break
			}
			p := &h.places[k]
			table.Rows = append(table.Rows, Row{Cells: []any{h.rule.id, p.count, p.ns, p.bytes, from(p.firstNs), from(p.lastNs), units.Known(p.detail), units.Known(p.where)}})
		}
	}
	return table
}

var summaryHitColumns = []Column{
	{"severity", "SEVERITY", UnitText, "problem, notice or info: see analyze rules"},
	{"rule", "RULE", UnitText, "name of the rule"},
	{"what", "WHAT", UnitText, "what was found"},
	{"confidence", "CONFIDENCE", UnitText, "high, medium or low; analyze rules says why"},
	{"where", "WHERE", UnitText, "the place in the program, GPU or process with most of it"},
}

// shortHits has one line per hit.
func shortHits(hits []hit) Table {
	table := Table{Name: "hits", Title: "what experts would look at; gpurec analyze rules says why, and what to do", Columns: summaryHitColumns,
		Lead: true, Spare: []string{"confidence"}, Keys: []string{"rule", "where"}}
	for i := range hits {
		h := &hits[i]
		table.Rows = append(table.Rows, Row{Cells: []any{verdictLevels[h.severity], h.rule.id, h.what, h.level, h.where()}})
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
func (s *survey) onlyEntries(h *hit, unknown, launches int64) {
	if unknown > 0 {
		h.lower(confidenceMedium, "of %.0f%% of the launches only the entry is known", units.Percent(unknown, launches))
	}
}
