package leaks

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Verdict classifies a group of allocations, the worst first.
type Verdict int

const (
	Growing  Verdict = iota // its live bytes rise until the end
	ExitLeak                // its process or context ended without freeing it
	Retained                // it is live, and none of the others
	Startup                 // nearly all of it was allocated during the warm-up
	Churn                   // nearly all of it was freed
	numVerdicts
)

func (v Verdict) String() string {
	return [...]string{"growing", "exit leak", "retained", "startup", "churn"}[v]
}

func verdictNames() (list []string) {
	for v := range numVerdicts {
		list = append(list, v.String())
	}
	return list
}

// isSuspect reports whether memory with this verdict may be a leak.
func (v Verdict) isSuspect() bool { return v <= Retained }

// Finding is a group with its verdict and the numbers that the verdict rests on.
type Finding struct {
	*groupStats
	Label     string // name of the group
	Verdict   Verdict
	trend     stats.Trend // of the process whose floor moves most
	seen      int         // checkpoints of that process
	grown     int64       // bytes by which the floors rise, by the slope
	PerMin    float64     // growth in bytes per minute
	medianAge int64       // of the unfreed blocks, ns

	// Why a group that rises is not growing.
	slowing   bool // it rises more and more slowly
	noise     bool // it rises by no more than blocks that come and go may by chance
	mayBeLost bool // it rises by no more than lost frees would explain
}

// Findings judges all groups with allocations: the worst verdict first, then by live bytes.
func (s *Scan) Findings(q *report.Quality) []Finding {
	var findings []Finding
	for i := range s.groups {
		if s.groups[i].allocs > 0 {
			findings = append(findings, s.judge(i, lostFor(q, kindLabel(s.t, s.groups[i].memory))))
		}
	}
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Verdict, b.Verdict), cmp.Compare(b.LiveBytes, a.LiveBytes),
			cmp.Compare(b.allocBytes, a.allocBytes), strings.Compare(a.Label, b.Label))
	})
	return findings
}

// lostFor returns the number of lost calls that may have been frees of memory of a kind. The number
// of calls in damaged segments is not known: it counts as infinite.
func lostFor(q *report.Quality, kind string) int64 {
	if q.DamagedSegments > 0 {
		return math.MaxInt64
	}
	switch kind {
	case format.MemoryTorch:
		return q.LostAllocatorEvents
	case "several":
		return q.LostMemoryEvents + q.LostAllocatorEvents
	}
	return q.LostMemoryEvents
}

// judge returns the verdict of group i; lost is the number of frees of its blocks that may be
// missing. The first of these that holds:
//
//	growing    in at least one process the floor of its live bytes rises steadily from
//	           some moment until the end (grows)
//	churn      nothing is left
//	startup    nine tenths of the bytes that are left were allocated during the warm-up
//	churn      nine tenths of the blocks were freed, and half of the rest is younger than
//	           half of the window
//	exit leak  the process, or the last context that it used, ended with the rest
//	retained   anything else
func (s *Scan) judge(i int, lost int64) Finding {
	g := &s.groups[i]
	j := Finding{groupStats: g, Label: s.Grouping.Labels.List[i], medianAge: stats.Median(g.ages)}
	switch {
	case s.grows(&j, lost):
		j.Verdict = Growing
	case g.LiveCount == 0:
		j.Verdict = Churn
	case float64(g.startBytes) >= 0.9*float64(g.LiveBytes):
		j.Verdict = Startup
	case float64(g.frees) >= 0.9*float64(g.allocs) && j.medianAge <= s.Window.DurNs()/2:
		j.Verdict = Churn
	case g.allExited() && kindLabel(s.t, g.memory) != format.MemoryTorch: // Python keeps things until it ends
		j.Verdict = ExitLeak
	default:
		j.Verdict = Retained
	}
	return j
}

// grows measures how the floors of a group move, and reports whether that is a leak. All of these
// must hold in at least one process:
//   - The floors rise all along (stats.Trend.Lasting) since they began to rise (stats.Rise).
//   - They do not slow down, as a cache that fills does.
//   - They rise by at least 1 MiB and 1 % of the group's memory over the window, or over a minute
//     if the window is shorter.
//   - They rise by more than blocks that come and go do by chance (comingAndGoing).
//   - Lost frees do not explain the rise. If every lost call were a free of one of the group's
//     blocks, half of the rise must remain, and half of that in the last quarter, which may be a
//     full cache that seems to go on.
func (s *Scan) grows(j *Finding, lost int64) bool {
	block := float64(j.LiveBytes) / float64(max(1, j.LiveCount))
	var rising, all []movement
	for i := range j.trackers {
		series := s.series(&j.trackers[i])
		all = append(all, movement{stats.NewTrend(series), series})
		switch t := stats.NewTrend(stats.Rise(series)); {
		case !t.Lasting():
		case t.Slowing(block):
			j.slowing = true
		default:
			rising = append(rising, movement{t, series})
		}
	}
	if len(rising) == 0 {
		j.add(s, all)
		return false
	}
	level := j.add(s, rising)
	over := max(s.stepNs()*float64(j.trend.Steps), float64(time.Minute))
	if j.PerMin/float64(time.Minute)*over < max(stats.MinGrowth, level/100) {
		return false
	}
	j.noise = float64(j.grown) < j.comingAndGoing()
	j.mayBeLost = 2*float64(lost)*block > min(float64(j.grown), j.trend.Recent)
	return !j.noise && !j.mayBeLost
}

// movement is the course of a group's floors in one process.
type movement struct {
	stats.Trend
	series []int64
}

// add adds up movements, and returns the bytes at which they end.
func (j *Finding) add(s *Scan, movements []movement) (level float64) {
	for i, m := range movements {
		j.grown += units.RoundInt(m.Slope * float64(m.Steps))
		j.PerMin += s.perMinute(m.Slope)
		if n := len(m.series); n > 0 {
			level += float64(m.series[n-1])
		}
		if i == 0 || math.Abs(m.Slope) > math.Abs(j.trend.Slope) {
			j.trend, j.seen = m.Trend, len(m.series)
		}
	}
	return level
}

// comingAndGoing returns the bytes by which live memory may rise between two moments by chance, if
// blocks come and go independently of each other: twice the standard deviation of the difference
// of two Poisson numbers whose mean is the number of blocks that are left. It is 0 where nothing
// was freed, and for few blocks: these may be one that is replaced by a larger one again and again.
func (g *groupStats) comingAndGoing() float64 {
	if g.frees == 0 || g.LiveCount < fewBlocks {
		return 0
	}
	return 2 * math.Sqrt(2*float64(g.LiveCount)) * float64(g.LiveBytes) / float64(g.LiveCount)
}

// fewBlocks is the number of blocks below which statistics say nothing.
const fewBlocks = 10

// stepNs returns the time between two checkpoints, ns.
func (s *Scan) stepNs() float64 { return float64(s.Window.ToNs-s.warmNs) / Checkpoints }

// perMinute converts a slope per checkpoint to one per minute.
func (s *Scan) perMinute(slope float64) float64 {
	if step := s.stepNs(); step > 0 {
		return slope / step * float64(time.Minute)
	}
	return 0
}

// Evidence returns what the verdict rests on, in one sentence.
func (j *Finding) Evidence() string {
	freed := fmt.Sprintf("%s of %s freed", units.Count(j.frees), units.Count(j.allocs))
	switch j.Verdict {
	case Growing:
		return fmt.Sprintf(
			"%s, lowest live bytes rose by %s over %d checkpoints (tau %.2f)",
			freed,
			units.Bytes(j.grown),
			j.trend.Steps,
			j.trend.Tau,
		)
	case ExitLeak:
		return freed + j.doubt() + ", live when the process or its last context ended"
	case Startup:
		return fmt.Sprintf("%s, %.0f%% of the live bytes are from the first tenth of the "+
			"window", freed, units.Percent(j.startBytes, j.LiveBytes))
	}
	return fmt.Sprintf("%s%s, tau %.2f", freed, j.doubt(), j.trend.Tau)
}

// doubt returns why memory that rises does not have the verdict growing, in words.
func (j *Finding) doubt() string {
	switch {
	case j.mayBeLost:
		return ", rises, but by no more than lost frees would explain"
	case j.noise:
		return ", rises by no more than blocks that come and go may by chance"
	case j.slowing:
		return ", rises more and more slowly, as a cache that fills"
	}
	return ""
}

// Confidence returns the confidence in the verdict: level and reasons are those of the recording,
// and few blocks, checkpoints or seconds lower them.
func (j *Finding) Confidence(level string, reasons []string, w query.Window) (string, []string) {
	if j.Verdict == Churn {
		return level, reasons
	}
	lower := func(reason string) {
		if level == report.ConfidenceHigh {
			level = report.ConfidenceMedium
		}
		reasons = append(reasons[:len(reasons):len(reasons)], reason)
	}
	if d := w.DurNs(); d < int64(10*time.Second) {
		lower("only " + units.Duration(d) + " of activity was recorded")
	}
	if j.Verdict == Growing && j.allocs-j.frees < fewBlocks {
		lower(fmt.Sprintf("only %d allocations are left", j.allocs-j.frees))
	}
	if j.Verdict == Growing && 2*j.trend.Steps <= j.seen {
		lower(fmt.Sprintf("it rises in the last %d of %d checkpoints only", j.trend.Steps, j.seen))
	}
	return level, reasons
}

// GrowthOnDevice returns the growth of device memory, bytes per minute; 0 for other verdicts than
// Growing and for host memory.
func (j *Finding) GrowthOnDevice() float64 {
	if j.Verdict != Growing || j.hostBytes > 0 {
		return 0
	}
	return j.PerMin
}

// OomIn returns the time until a device is full, an int64 in ns, if memory grows by perMin bytes per
// minute from atNs on. It returns nil if nothing grows or the free memory is not known.
func OomIn(t *timeline.Timeline, device int32, perMin float64, atNs int64) any {
	if perMin <= 0 {
		return nil
	}
	total, used, ok := t.DeviceUse(device, atNs)
	if !ok {
		return nil
	}
	return units.RoundInt(max(0, total-used) / perMin * float64(time.Minute))
}
