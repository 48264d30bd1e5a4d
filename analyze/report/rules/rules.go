package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
)

// Rule is a check for a problem that experts look for in a recording. It is a function of a Survey:
// rules compute nothing that no report computes, they decide which of it deserves attention. The
// thresholds of a rule are constants next to it, with their reasons.
type Rule struct {
	ID     string // stable: scripts may use it
	About  string // when it fires, with its thresholds
	Report string // name of the report that shows more
	advice string // what to do, in at most two sentences
	check  func(*Survey) ([]Hit, error)
}

// Hit is a finding of a rule.
type Hit struct {
	Rule     *Rule
	Severity int // index into gpu.VerdictLevels
	What     string
	Advice   string   // that of the rule, unless the rule has set another one
	Places   []Place  // the most important one first
	Level    string   // confidence
	Reasons  []string // what lowers the confidence
}

// Place is a row of evidence. Count, Ns and Bytes are nil or an int64.
type Place struct {
	Where            string // site, GPU or process
	Stack            int32  // stack id; 0: none
	Count, Ns, Bytes any
	FirstNs, lastNs  int64 // Unix ns; 0: no time
	Detail           string
}

// Severities of hits, which index gpu.VerdictLevels.
const (
	SeverityProblem = iota
	SeverityNotice
	SeverityInfo
	NumSeverities
)

// All returns all rules, in the order of their hits of equal severity: failures first, then losses
// of time.
func All() []*Rule {
	return []*Rule{
		&ruleXid,
		&ruleBrokenContext,
		&Hang,
		&OOM,
		&ruleOOMFragmentation,
		&ruleAllocRetry,
		&InvalidFree,
		&UncheckedError,
		&ruleGrowing,
		&ruleExitLeak,
		&ruleMemoryFull,
		&ruleGPUHealth,
		&ruleThrottling,
		&ruleGPUIdle,
		&ruleLaunchBound,
		&ruleLowSM,
		&ruleLowOccupancy,
		&ruleTensorUnused,
		&ruleTinyKernels,
		&ruleSyncLoop,
		&ruleAllocLoop,
		&rulePageable,
		&ruleSmallCopies,
		&ruleModuleLoop,
	}
}

// Info describes a rule.
type Info struct{ Name, About string }

// List returns a description of each rule, in the order of All.
func List() (list []Info) {
	for _, r := range All() {
		list = append(list, Info{r.ID, r.About})
	}
	return list
}

// UnknownError reports a name that no rule has.
type UnknownError struct {
	Name  string
	Known []string
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("there is no rule %q; there are %s", e.Name, strings.Join(e.Known, ", "))
}

// chosenRules returns the rules with these names, all rules if there are no names. It returns an
// *UnknownError for a name that no rule has.
func chosenRules(names []string) ([]*Rule, error) {
	all := All()
	var known []string
	for _, r := range all {
		known = append(known, r.ID)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, &UnknownError{name, known}
		}
	}
	return slices.DeleteFunc(all, func(r *Rule) bool { return len(names) > 0 && !slices.Contains(names, r.ID) }), nil
}

// Options shape the report of rules.
type Options struct {
	query.Options
	// Rules are the names of the rules to check; empty: all.
	Rules []string
}

// Run reports as RunWith does, for all rules.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return RunWith(t, Options{Options: opt})
}

// RunWith checks a recording against rules. It returns an *UnknownError for an unknown name in
// opt.Rules and a *report.SortError for an unknown opt.Sort.
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
	r := &report.Report{
		Command: "rules",
		Window:  s.Window,
		Quality: s.Quality,
		Notes:   append(slices.Clone(t.Facts.Notes), s.Quality.Notes()...),
	}
	if len(s.Calls.Calls) == 0 && t.Scan.Events > 0 {
		r.NoMatch = s.Calls.Seen.Explain(&opt.Filter)
	}
	r.Facts, r.Totals = ruleFacts(checked, len(chosen)-len(checked), hits), totals(hits)
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
