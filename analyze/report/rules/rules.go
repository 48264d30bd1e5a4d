package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/idle"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
)

// Rule checks a Scan for one problem. A rule only applies thresholds to numbers that other
// reports also show. The thresholds are constants next to the rule, with their reasons.
type Rule struct {
	ID     string // name of the rule; stable, because scripts use it
	About  string // the condition under which the rule fires, with its thresholds
	Report string // arguments of gpurec analyze for the report with the details
	advice string // recommended action, in at most two sentences
	check  func(*Scan) ([]Hit, error)
	// needsGPUTimes reports that recordings without GPU times are not checked.
	needsGPUTimes bool
	// needsRanks reports that recordings without operations of several ranks, and without counters of NCCL, are not
	// checked.
	needsRanks bool
	// needsJob reports that recordings without operations of ranks are checked only if two processes have ranks.
	needsJob bool
	// needsHost reports that recordings without rows of class host are not checked.
	needsHost bool
	// needsArguments reports that recordings without arguments of launches are not checked.
	needsArguments bool
}

// Hit is a problem that a rule found, or several similar ones.
type Hit struct {
	Rule       *Rule
	Severity   int        // SeverityProblem, SeverityNotice or SeverityInfo
	Summary    string     // the problem in one phrase, with its main number
	Advice     string     // recommended action: the rule's advice, or a more specific one
	Evidence   []Evidence // the most important row first
	Confidence string     // report.ConfidenceHigh, ConfidenceMedium or ConfidenceLow
	Reasons    []string   // reasons for a confidence below high
	// FoldedInto is the rule of the finding that has this hit as a symptom; nil: the hit is a finding of its own.
	FoldedInto *Rule
	// IsOfJob reports that Summary says what happens to the job, and Evidence what its ranks do.
	IsOfJob bool
	// Explains has the IDs of the rules whose hits are folded into this one.
	Explains []string

	cause      *Hit         // the hit that this one is folded into; only valid until hits are sorted
	places     int64        // rows of evidence that the rule found, at least 1
	sharePct   float64      // share of the time that the problem costs, in percent; 0: unknown
	pid        int32        // the process, or one of a GPU; 0: several processes
	idleDevice *idle.Device // of rule gpu-idle with GPU times, otherwise nil
}

// Pid returns the process that the hit concerns, 0 for several processes.
func (h *Hit) Pid() int32 { return h.pid }

// Evidence is one row of evidence for a hit: a call site, a GPU or a process, with its numbers.
type Evidence struct {
	Where   string // name of the call site, GPU or process
	Stack   int32  // id of the call stack; 0 means none
	Via     int32  // stack.Pair.Via of the call stack
	Count   any    // int64: calls, blocks or samples; nil if the row has no count
	Ns      any    // int64: time lost or observed, ns; nil if the row has no time
	Bytes   any    // int64: bytes concerned; nil if the row has no size
	FirstNs int64  // first occurrence, Unix ns; 0 means unknown
	lastNs  int64  // last occurrence, Unix ns; 0 means unknown
	Detail  string // further facts, as a phrase
	Pid     int32  // the process; 0: several, or unknown
}

// Severities of hits, the worst first. They are indexes into gpu.VerdictLevels.
const (
	SeverityProblem = iota
	SeverityNotice
	SeverityInfo
	NumSeverities
)

// kind says what the problems of a rule cost. It orders findings of equal severity.
type kind uint8

// Kinds of rules, the worst first.
const (
	kindFailure kind = iota // the program or a GPU fails
	kindHang                // the program makes no progress
	kindGrowth              // memory grows, or is nearly used up
	kindTime                // time is lost
	kindCount
)

// rulesOf returns the rules of a kind, in the order of AllRules.
func rulesOf(k kind) []*Rule {
	switch k {
	case kindFailure:
		return []*Rule{
			&xidRule,
			&brokenContextRule,
			&OutOfMemoryRule,
			&oomFragmentationRule,
			&allocRetryRule,
			&InvalidFreeRule,
			&useAfterFreeRule,
			&UncheckedErrorRule,
			&gpuHealthRule,
		}
	case kindHang:
		return []*Rule{&HangRule, &rankMissingRule, &collectiveMismatchRule}
	case kindGrowth:
		return []*Rule{
			&growingSiteRule,
			&cacheGrowthRule,
			&objectLeakRule,
			&exitLeakRule,
			&memoryFullRule,
			&unevenMemoryRule,
		}
	}
	return []*Rule{
		&throttlingRule,
		&changeRule,
		&gpuIdleRule,
		&exposedCopyRule,
		&exposedCommunicationRule,
		&stragglerRule,
		&smallCollectivesRule,
		&dataLoaderRule,
		&gcPauseRule,
		&gilRule,
		&cpuThrottledRule,
		&oversubscribedRule,
		&ioBoundRule,
		&launchBoundRule,
		&syncLoopRule,
		&allocLoopRule,
		&pageableCopyRule,
		&smallCopyRule,
		&moduleLoopRule,
		&tinyKernelRule,
		&lowSMActivityRule,
		&lowOccupancyRule,
		&unusedTensorCoresRule,
	}
}

// AllRules returns all rules: first those for failures, then those for hangs, growing memory and lost time. Hits of
// equal severity have the same order.
func AllRules() (list []*Rule) {
	for k := range kindCount {
		list = append(list, rulesOf(k)...)
	}
	return list
}

// FaultRules returns the rules for failures, hangs and growing memory, in the order of AllRules.
func FaultRules() (list []*Rule) {
	for _, k := range []kind{kindFailure, kindHang, kindGrowth} {
		list = append(list, rulesOf(k)...)
	}
	return list
}

// kindsOfRules returns the kind of each rule.
func kindsOfRules() map[*Rule]kind {
	kinds := make(map[*Rule]kind)
	for k := range kindCount {
		for _, r := range rulesOf(k) {
			kinds[r] = k
		}
	}
	return kinds
}

// RuleInfo describes a rule: its ID, and the condition under which it fires.
type RuleInfo struct{ Name, About string }

// ListRules returns a description of each rule, in the order of AllRules.
func ListRules() (list []RuleInfo) {
	for _, r := range AllRules() {
		list = append(list, RuleInfo{r.ID, r.About})
	}
	return list
}

// UnknownRuleError is returned for the name of a rule that does not exist. Known lists all names.
type UnknownRuleError struct {
	Name  string
	Known []string
}

func (e *UnknownRuleError) Error() string {
	return fmt.Sprintf("there is no rule %q; the rules are %s", e.Name, strings.Join(e.Known, ", "))
}

// selectRules returns the rules with these names, or all rules if names is empty. It returns an
// *UnknownRuleError for an unknown name.
func selectRules(names []string) ([]*Rule, error) {
	all := AllRules()
	var known []string
	for _, r := range all {
		known = append(known, r.ID)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, &UnknownRuleError{name, known}
		}
	}
	return slices.DeleteFunc(all, func(r *Rule) bool { return len(names) > 0 && !slices.Contains(names, r.ID) }), nil
}

// Options are the options of the rules report.
type Options struct {
	query.Options
	// Rules are the names of the rules to check. If it is empty, all rules are checked.
	Rules []string
}

// Run checks a recording against all rules. Its errors are those of RunWithOptions.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return RunWithOptions(t, Options{Options: opt})
}

// RunWithOptions checks a recording against the rules that opt selects, and returns the report. It
// returns an *UnknownRuleError for an unknown name in opt.Rules and a *report.SortError for an
// unknown opt.Sort.
func RunWithOptions(t *timeline.Timeline, opt Options) (*report.Report, error) {
	return report.RunSurvey(t, opt.Options, func(sv *survey.Survey, _ query.Options) (report.FinishFunc, error) {
		return collectWithOptions(sv, opt)
	})
}

// Collect adds the observers of the report to a survey. Its errors are those of Run.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	return collectWithOptions(sv, Options{Options: opt})
}

// collectWithOptions adds the observers of the report to a survey. Its errors are those of RunWithOptions.
func collectWithOptions(sv *survey.Survey, opt Options) (report.FinishFunc, error) {
	opt.GroupBy = ""
	chosen, err := selectRules(opt.Rules)
	if err != nil {
		return nil, err
	}
	s, err := NewScan(sv, &opt.Options)
	if err != nil {
		return nil, err
	}
	return func() (*report.Report, error) { return s.report(chosen, &opt.Options) }, nil
}

// report returns the report on the chosen rules after the survey.
func (s *Scan) report(chosen []*Rule, opt *query.Options) (*report.Report, error) {
	t := s.t
	checked := SelectCheckable(t, chosen)
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
		r.NoMatch = s.Calls.Seen.ExplainNoMatch(&opt.Filter)
	}
	r.Facts, r.Totals = newRuleFacts(checked, countUnchecked(t, chosen), hits), newTotalFacts(hits)
	table, evidence := newHitTable(t, hits), newEvidenceTable(t, hits, opt.Top)
	if err := table.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	frames.FillRowStacks(t, &table, opt)
	r.Tables = []report.Table{table, evidence}
	if used := s.Leaks.Grouping.Suppress.Table(); len(used.Rows) > 0 {
		r.Tables = append(r.Tables, used)
	}
	return r, nil
}
