package objects

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/model/objects"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
)

// Verdict is the classification of the objects of a call site. Smaller values are worse.
type Verdict int

// Verdicts.
const (
	VerdictGrowing  Verdict = iota // the number of live objects rises until the end
	VerdictRetained                // objects are live, but their number does not rise
	VerdictBalanced                // the objects were destroyed
	verdictCount
)

func (v Verdict) String() string { return [...]string{"growing", "retained", "balanced"}[v] }

func verdictNames() (list []string) {
	for v := range verdictCount {
		list = append(list, v.String())
	}
	return list
}

// Limits of the verdict growing.
const (
	// minGrown is the smallest rise, per window or per minute if the window is shorter. A program makes
	// some objects late, for example when it uses a library for the first time.
	minGrown = 10
	// minGrownContexts is minGrown for contexts. Few programs make more than one, and each takes hundreds
	// of MiB.
	minGrownContexts = 5
)

// Finding is the objects of one kind from one call site, with their verdict.
type Finding struct {
	*siteStats
	Label       string // name of the call site
	Verdict     Verdict
	PerHour     float64     // growth, objects per hour
	trend       stats.Trend // trend of the process whose floor changes most
	checkpoints int         // number of floors of that process
	grown       float64     // rise of the floors over the window
	medianAge   int64       // median age of the live objects, ns

	// Reasons why a rising number does not have the verdict growing.
	slowing, explainedByChance, explainedByLoss bool
}

// Kind returns the kind of the objects.
func (f *Finding) Kind() objects.Kind { return f.kind }

// LiveCount returns the number of objects that the program had not destroyed at the end of the window,
// or when their process ended.
func (f *Finding) LiveCount() int64 { return f.live }

// Classify returns the findings: the worst verdict first, then the kinds in their order, then the most
// live objects.
func (s *Scan) Classify() []Finding {
	list := make([]Finding, 0, len(s.sites))
	for i := range s.sites {
		list = append(list, s.classifySite(&s.sites[i]))
	}
	slices.SortFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Verdict, b.Verdict), cmp.Compare(a.kind, b.kind), cmp.Compare(b.live, a.live),
			cmp.Compare(b.created, a.created), strings.Compare(a.Label, b.Label))
	})
	return list
}

// classifySite returns the verdict on the objects of a call site. The first whose condition holds
// applies:
//
//	growing   in at least one process, the floor of live objects rises steadily until the end
//	balanced  no object is live, or nine tenths ended and half of the live ones are younger than half of
//	          the window
//	retained  any other case
func (s *Scan) classifySite(g *siteStats) Finding {
	f := Finding{siteStats: g, Label: s.Grouping.Groups[g.group].Label, medianAge: stats.Median(g.ages)}
	ended := g.destroyed + g.withContext
	switch {
	case s.measureGrowth(&f):
		f.Verdict = VerdictGrowing
	case g.live == 0, 10*ended >= 9*g.created && f.medianAge <= s.Window.DurNs()/2:
		f.Verdict = VerdictBalanced
	default:
		f.Verdict = VerdictRetained
	}
	return f
}

// measureGrowth measures the growth of a site and reports whether it leaks. The conditions are those of
// package leaks, with objects in place of bytes: a floor that rises throughout from some checkpoint on,
// does not slow down like a cache that fills up, and rises by more than minGrown, 1 % of the live
// objects, chance, and twice what lost calls explain.
func (s *Scan) measureGrowth(f *Finding) bool {
	var rising, all []movement
	for i := range f.trackers {
		series := s.floorsUntilExit(&f.trackers[i])
		all = append(all, movement{stats.NewTrend(series), series})
		rise := stats.NewRise(series, 1)
		f.slowing = f.slowing || rise.Slowing
		if rise.Steady {
			rising = append(rising, movement{rise.Trend, series})
		}
	}
	if len(rising) == 0 {
		f.addGrowth(s, all)
		return false
	}
	level := f.addGrowth(s, rising)
	least := float64(minGrown)
	if f.kind.IsContext() {
		least = minGrownContexts
	}
	perNs, durNs := f.PerHour/float64(time.Hour), s.checkpoints.StepNs()*float64(f.trend.Steps)
	if !stats.ExceedsNoise(perNs, durNs, level, least) {
		return false
	}
	if !f.kind.HasIdentity() && s.kinds[f.kind].risesBy(s) < f.grown/2 {
		return false
	}
	f.explainedByChance = f.grown < f.randomRise()
	f.explainedByLoss = 2*float64(s.lostCalls(f.kind)) > min(f.grown, f.trend.Recent)
	return !f.explainedByChance && !f.explainedByLoss
}

// risesBy returns how much the floor of a kind's objects rises over the window in one process, at most.
// Without identities, the objects of one call site may count as destroyed in place of those of another.
// Then the number of the first site falls, and that of the second rises.
func (k *kindStats) risesBy(s *Scan) (most float64) {
	for i := range k.trackers {
		if floors := s.floorsUntilExit(&k.trackers[i]); len(floors) > 0 {
			most = max(most, float64(floors[len(floors)-1]-floors[0]))
		}
	}
	return most
}

// movement is the floor of a site's live objects over time in one process.
type movement struct {
	stats.Trend
	series []int64
}

// addGrowth adds the growth of movements to the finding. It returns the sum of their last floors.
func (f *Finding) addGrowth(s *Scan, movements []movement) (level float64) {
	for i, m := range movements {
		f.grown += m.Slope * float64(m.Steps)
		if step := s.checkpoints.StepNs(); step > 0 {
			f.PerHour += m.Slope / step * float64(time.Hour)
		}
		if n := len(m.series); n > 0 {
			level += float64(m.series[n-1])
		}
		if i == 0 || math.Abs(m.Slope) > math.Abs(f.trend.Slope) {
			f.trend, f.checkpoints = m.Trend, len(m.series)
		}
	}
	return level
}

// randomRise returns the rise that chance explains: see stats.RandomRise.
func (f *Finding) randomRise() float64 { return stats.RandomRise(f.live, f.destroyed+f.withContext) }

// lostCalls returns the number of lost calls that may have destroyed objects of a kind. Damaged segments
// may hold any number of calls, so lostCalls then returns math.MaxInt64.
func (s *Scan) lostCalls(kind objects.Kind) int64 {
	if len(s.t.Rec.Damaged) > 0 {
		return math.MaxInt64
	}
	return countLostCalls(s.t, kind)
}

// countLostCalls returns the number of lost calls of the class with the calls about a kind.
func countLostCalls(t *timeline.Timeline, kind objects.Kind) int64 {
	class := "api"
	if kind == objects.KindIPCMemory || kind == objects.KindExternalMemory {
		class = "memory"
	}
	return max(t.Rec.Meta.Calls[class].Lost, t.Facts.CountLostCalls(class))
}

// Evidence returns one sentence with the numbers behind the verdict.
func (f *Finding) Evidence() string {
	text := fmt.Sprintf("%s of %s destroyed", units.FormatCount(f.destroyed), units.FormatCount(f.created))
	if f.withContext > 0 {
		text += fmt.Sprintf(", %s ended with their context", units.FormatCount(f.withContext))
	}
	switch {
	case f.Verdict == VerdictGrowing:
		text += fmt.Sprintf(", the lowest number of live %s rose by %s over %d checkpoints (tau %.2f)",
			f.kind.Plural(), units.FormatCount(units.RoundInt(f.grown)), f.trend.Steps, f.trend.Tau)
	case f.explainedByLoss:
		text += ", rises, but lost calls may explain the rise"
	case f.explainedByChance:
		text += ", rises, but chance may explain the rise"
	case f.slowing:
		text += ", rises more and more slowly, like a cache that fills up"
	}
	if f.Verdict != VerdictGrowing && f.live > 0 && 10*f.early >= 9*f.live {
		text += ", the live ones are from the first tenth of the window"
	}
	if f.exited > 0 {
		text += fmt.Sprintf(", %s live when the process or its last context ended", units.FormatCount(f.exited))
	}
	return text
}

// Confidence returns the confidence in a finding's verdict, and the reasons that lower it.
func (s *Scan) Confidence(f *Finding, q *report.Quality) (level string, reasons []string) {
	level = report.ConfidenceHigh
	lower := func(to, format string, args ...any) {
		if level == report.ConfidenceHigh || to == report.ConfidenceLow {
			level = to
		}
		reasons = append(reasons, fmt.Sprintf(format, args...))
	}
	counts := &s.Counts[f.kind]
	if n := countLostCalls(s.t, f.kind); n*1000 > q.Events {
		lower(report.ConfidenceLow, "%s lost", units.CountWithNoun(n, "call"))
	} else if n > 0 {
		lower(report.ConfidenceMedium, "%s lost", units.CountWithNoun(n, "call"))
	}
	if q.DamagedSegments > 0 {
		lower(report.ConfidenceLow, "%s damaged", units.CountWithNoun(q.DamagedSegments, "segment"))
	}
	if counts.LostDestroys > 0 {
		lower(report.ConfidenceMedium, "%s that destroyed %s not recorded",
			units.CountWithNoun(counts.LostDestroys, "call"), f.kind.Plural())
	}
	if counts.Unknown > 0 {
		lower(report.ConfidenceMedium, "%s whose handle is unknown",
			units.CountWithTitle(counts.Unknown, f.kind.Plural()))
	}
	if n := counts.Older; 20*n > s.kinds[f.kind].destroyed+n {
		lower(report.ConfidenceMedium, "%s whose creation was not recorded",
			units.CountWithTitle(n, "destroyed "+f.kind.Plural()))
	}
	if late := s.t.Rec.Meta.Late; late != nil && late.CompleteNs > s.checkpoints.WarmNs {
		lower(report.ConfidenceMedium, "calls are complete only from +%s on", units.FormatDuration(q.CompleteAfterNs))
	}
	if q.TruncatedTail {
		lower(report.ConfidenceMedium, "the recording was cut off")
	}
	if f.Verdict == VerdictBalanced {
		return level, reasons
	}
	if d := s.Window.DurNs(); d < int64(10*time.Second) {
		lower(report.ConfidenceMedium, "only %s of activity was recorded", units.FormatDuration(d))
	}
	if f.Verdict == VerdictGrowing {
		if f.live < stats.MinCountForStatistics {
			lower(report.ConfidenceMedium, "only %d objects are live", f.live)
		}
		if 2*f.trend.Steps <= f.checkpoints {
			lower(report.ConfidenceMedium, "the number rises only in the last %d of %d checkpoints", f.trend.Steps,
				f.checkpoints)
		}
	}
	return level, reasons
}
