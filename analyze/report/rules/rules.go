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

// Rule is one check. Its id is stable: scripts and people's notes name it.
type Rule struct {
	ID string
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
		&ruleXid, &ruleBrokenContext, &Hang, &OOM, &ruleOOMFragmentation, &ruleAllocRetry, &InvalidFree, &UncheckedError, &ruleGrowing, &ruleExitLeak, &ruleMemoryFull,
		&ruleGPUHealth, &ruleThrottling, &ruleGPUIdle, &ruleLaunchBound, &ruleLowSM, &ruleLowOccupancy, &ruleTensorUnused,
		&ruleTinyKernels, &ruleSyncLoop, &ruleAllocLoop, &rulePageable, &ruleSmallCopies, &ruleModuleLoop,
	}
}

// Info describes a rule to people.
type Info struct{ Name, About string }

// List lists the rules.
func List() (list []Info) {
	for _, r := range All() {
		list = append(list, Info{r.ID, r.About})
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
