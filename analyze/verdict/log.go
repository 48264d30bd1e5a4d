package verdict

import (
	"time"

	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/report"
)

const (
	// certainHang is how long a process must hang. Pauses of some seconds are usual: a checkpoint, a compilation.
	certainHang = 4500 * time.Millisecond
	// certainLeak is the time for which memory must be found to grow. A cache grows in the first seconds, too.
	certainLeak = 6 * time.Second
	// certainUnseen is certainLeak for a leak whose site was not seen: its site is worth some time.
	certainUnseen = 20 * time.Second
	// certainLength is the shortest part of a recording that proves a leak.
	certainLength = 10 * time.Second
)

// Look has the findings about a running recording at one time.
type Look struct {
	AtNs    int64         // end of what was seen, Unix ns
	Length  time.Duration // of what was seen
	IsWhole bool          // it was long enough for memory to be judged
	IsLast  bool          // the recording has ended: nothing can change any more
	List    []Finding
}

// Log decides which findings are certain, over several looks. It is not safe for concurrent use.
type Log struct {
	states  map[place]*state
	order   []place // in the order in which they were first seen
	waiting bool
}

// place identifies a finding over several looks.
type place struct{ rule, where string }

// state is a finding over several looks.
type state struct {
	firstNs int64 // first look of the current series of looks that have it, Unix ns
	verdict live.Verdict
	isSeen  bool // the latest look has it
	isKnown bool // it was returned by Add
}

// NewLog returns a Log that has seen nothing.
func NewLog() *Log { return &Log{states: make(map[place]*state)} }

// Add adds a look, and returns the verdicts that have become certain by it. Each is returned once, a hang again when it
// recurs.
func (l *Log) Add(look Look) (fresh []live.Verdict) {
	l.waiting = false
	for _, s := range l.states {
		if look.IsWhole || s.verdict.Kind != KindLeak {
			s.isSeen = false
		}
	}
	for i := range look.List {
		f := &look.List[i]
		if !f.counts(&look) {
			continue
		}
		s := l.stateOf(f)
		if s == nil {
			continue
		}
		if s.firstNs == 0 {
			s.firstNs = look.AtNs
		}
		s.isSeen = true
		s.describe(f, look.IsLast)
		switch {
		case s.isKnown:
		case f.Where == origin.UnseenSite && (l.hasLeak() || time.Duration(look.AtNs-s.firstNs) < certainUnseen):
			l.waiting = l.waiting || !l.hasLeak()
		case s.isCertain(f, &look):
			s.isKnown, s.verdict.AtNs = true, look.AtNs
			fresh = append(fresh, s.verdict)
		default:
			l.waiting = true
		}
	}
	l.keepUnseenSites()
	for _, s := range l.states {
		if !s.isSeen {
			s.firstNs = 0
			s.isKnown = s.isKnown && s.verdict.Kind != KindHang
		}
	}
	return fresh
}

// counts reports whether a finding of a look can become a verdict. Failures have happened, whatever is known about their
// cause.
func (f *Finding) counts(look *Look) bool {
	switch f.Kind {
	case KindLeak:
		return look.IsWhole && f.Confidence != report.ConfidenceLow
	case KindHang:
		return f.Confidence != report.ConfidenceLow
	}
	return true
}

// keepUnseenSites lets a growth without a site confirm the sites of earlier looks: windows of allocator events do not
// see every site.
func (l *Log) keepUnseenSites() {
	hasUnseen := false
	for at, s := range l.states {
		hasUnseen = hasUnseen || s.isSeen && at.where == origin.UnseenSite
	}
	if !hasUnseen {
		return
	}
	for _, s := range l.states {
		s.isSeen = s.isSeen || s.verdict.Kind == KindLeak && s.firstNs != 0
	}
}

// hasLeak reports whether a leak with a site is seen.
func (l *Log) hasLeak() bool {
	for at, s := range l.states {
		if s.isSeen && s.verdict.Kind == KindLeak && at.where != origin.UnseenSite {
			return true
		}
	}
	return false
}

// maxStates bounds the findings of a recording.
const maxStates = 1000

// stateOf returns the state of a finding, nil if there are too many.
func (l *Log) stateOf(f *Finding) *state {
	at := place{f.Rule, f.Where}
	s := l.states[at]
	if s == nil && len(l.order) < maxStates {
		s = new(state)
		l.states[at] = s
		l.order = append(l.order, at)
	}
	return s
}

// describe takes over the text of a finding.
func (s *state) describe(f *Finding, isLast bool) {
	s.verdict = live.Verdict{
		Rule: f.Rule, Kind: f.Kind, Severity: f.Severity, Confidence: f.Confidence, What: f.What, Where: f.Where,
		Pid: f.Pid, AtNs: s.verdict.AtNs, SoFar: !isLast && (f.Kind == KindLeak || f.Kind == KindHang),
	}
}

// isCertain reports whether a finding can be shown.
func (s *state) isCertain(f *Finding, look *Look) bool {
	seen := time.Duration(look.AtNs - s.firstNs)
	switch {
	case f.Kind == KindLeak:
		return seen >= certainLeak && look.Length >= certainLength
	case f.Kind == KindHang:
		return f.LastsNs >= certainHang.Nanoseconds() || seen >= certainHang
	}
	return true
}

// IsWaiting reports whether the latest look had a finding that another look may make certain.
func (l *Log) IsWaiting() bool { return l.waiting }

// Current returns the certain verdicts that the latest looks confirm, the newest last.
func (l *Log) Current() (list []live.Verdict) {
	for _, at := range l.order {
		if s := l.states[at]; s.isKnown && s.isSeen {
			list = append(list, s.verdict)
		}
	}
	return list
}
