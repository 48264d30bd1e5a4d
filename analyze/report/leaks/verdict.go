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

// Verdict is the classification of a group of allocations. Smaller values are worse.
type Verdict int

const (
	VerdictGrowing  Verdict = iota // the live bytes rise until the end of the recording
	VerdictExitLeak                // the process or its CUDA context ended without freeing the memory
	VerdictRetained                // the memory is live, and no other verdict applies
	VerdictStartup                 // nearly all live bytes were allocated during the warm-up
	VerdictChurn                   // nearly all allocations were freed
	verdictCount
)

func (v Verdict) String() string {
	return [...]string{"growing", "exit leak", "retained", "startup", "churn"}[v]
}

func verdictNames() (list []string) {
	for v := range verdictCount {
		list = append(list, v.String())
	}
	return list
}

// isSuspect reports whether memory with this verdict may be a leak.
func (v Verdict) isSuspect() bool { return v <= VerdictRetained }

// LeakFinding is a group of allocations with its verdict and the statistics behind the verdict.
type LeakFinding struct {
	*groupStats
	Verdict     Verdict
	trend       stats.Trend // trend of the process whose floor changes most
	checkpoints int         // number of checkpoints of that process
	grown       int64       // rise of the floors over the window, bytes, from the slope
	PerMin      float64     // growth, bytes per minute
	Margin      float64     // half width of the 95 % interval of PerMin, if it rests on windows
	medianAge   int64       // median age of the unfreed blocks, ns

	// Reasons why rising memory does not have the verdict Growing.
	slowing           bool // the rise slows down
	explainedByChance bool // random allocation and freeing may explain the rise
	explainedByLoss   bool // lost frees may explain the rise
	replacesEarlier   bool // frees of blocks from before the recording explain the rise

	group        int           // index of Scan.groups
	windowGrowth *windowGrowth // growth that rests on windows; nil: other growth
	windowDoubt  string        // clause: why it does not make the verdict growing

	// earlierDoubt is a reason that lowers the confidence in the verdict growing, see Scan.earlierDoubt.
	earlierDoubt string
}

// ClassifyGroups classifies all groups. It sorts by verdict, worst first, and then by live bytes.
func (s *Scan) ClassifyGroups(q *report.Quality) []LeakFinding {
	var findings []LeakFinding
	for i := range s.groups {
		if s.groups[i].allocs > 0 {
			findings = append(findings, s.classifyGroup(i, lostFreesFor(q, memoryKindLabel(s.t, s.groups[i].memory))))
		}
	}
	if s.windows != nil {
		s.classifyUnseen(findings)
	}
	slices.SortFunc(findings, func(a, b LeakFinding) int {
		return cmp.Or(cmp.Compare(a.Verdict, b.Verdict), cmp.Compare(b.LiveBytes, a.LiveBytes),
			cmp.Compare(b.allocBytes, a.allocBytes), strings.Compare(a.Label, b.Label), strings.Compare(a.Via, b.Via))
	})
	return findings
}

// lostFreesFor returns the number of lost calls that may have freed memory of a kind. Damaged
// segments may hold any number of calls, so lostFreesFor then returns math.MaxInt64.
func lostFreesFor(q *report.Quality, kind string) int64 {
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

// classifyGroup returns group i with its verdict. lost is the number of frees of its blocks that
// may be missing in the recording. The first verdict whose condition holds applies:
//
//	growing    in at least one process, the floor of the live bytes rises steadily
//	           until the end; see grows. The blocks do not replace others from before
//	           the recording; see replacesEarlier
//	churn      no block is live
//	startup    nine tenths of the live bytes were allocated during the warm-up
//	churn      nine tenths of the blocks were freed, and half of the live blocks are
//	           younger than half of the window; or isChurnInWindows
//	exit leak  the process, or its last CUDA context, ended with the blocks live
//	retained   any other case
func (s *Scan) classifyGroup(i int, lost int64) LeakFinding {
	g := &s.groups[i]
	j := LeakFinding{groupStats: g, group: i, medianAge: stats.Median(g.ages)}
	var isGrowing bool
	if s.isInWindows(g) {
		isGrowing = s.measureGrowthInWindows(&j, i)
	} else {
		isGrowing = s.measureGrowth(&j, lost)
		j.replacesEarlier = isGrowing && s.replacesEarlier(g)
	}
	switch {
	case isGrowing && !j.replacesEarlier:
		j.Verdict, j.earlierDoubt = VerdictGrowing, s.earlierDoubt(g)
	case g.LiveCount == 0:
		j.Verdict = VerdictChurn
	case float64(g.startBytes) >= 0.9*float64(g.LiveBytes):
		j.Verdict = VerdictStartup
	case float64(g.frees) >= 0.9*float64(g.allocs) && j.medianAge <= s.Window.DurNs()/2, s.isChurnInWindows(g):
		j.Verdict = VerdictChurn
	case g.allProcessesExited() && memoryKindLabel(s.t, g.memory) != format.MemoryTorch:
		j.Verdict = VerdictExitLeak
	default:
		j.Verdict = VerdictRetained
	}
	return j
}

// measureGrowth measures the growth of a group and reports whether the group leaks. All of these
// conditions must hold in at least one process:
//   - The floor rises without a pause from some checkpoint on, and does not slow down (stats.Rise). A cache that fills
//     up slows down.
//   - The floor rises by at least 1 MiB and 1 % of the group's memory over the window. If the window
//     is shorter than a minute, the rise is extrapolated to a minute.
//   - Random allocation and freeing cannot explain the rise (randomRise).
//   - Lost frees cannot explain the rise. Assume that every lost call freed a block of the group:
//     half of the rise must remain, and half of the rise in the last quarter.
func (s *Scan) measureGrowth(j *LeakFinding, lost int64) bool {
	block := float64(j.LiveBytes) / float64(max(1, j.LiveCount))
	var rising, all []floorMovement
	for i := range j.trackers {
		series := s.floorsUntilExit(&j.trackers[i])
		all = append(all, floorMovement{stats.NewTrend(series), series})
		rise := stats.NewRise(series, block)
		j.slowing = j.slowing || rise.Slowing
		if rise.Steady {
			rising = append(rising, floorMovement{rise.Trend, series})
		}
	}
	if len(rising) == 0 {
		j.addGrowth(s, all)
		return false
	}
	level := j.addGrowth(s, rising)
	perNs, durNs := j.PerMin/float64(time.Minute), s.checkpointStepNs()*float64(j.trend.Steps)
	if !stats.ExceedsNoise(perNs, durNs, level, stats.MinLeakGrowthBytes) {
		return false
	}
	j.explainedByChance = float64(j.grown) < j.randomRise()
	j.explainedByLoss = 2*float64(lost)*block > min(float64(j.grown), j.trend.Recent)
	return !j.explainedByChance && !j.explainedByLoss
}

// floorMovement is the floor of a group's live bytes over time in one process.
type floorMovement struct {
	stats.Trend
	series []int64
}

// addGrowth adds the growth of movements to the finding. It returns the sum of their last floors,
// bytes.
func (f *LeakFinding) addGrowth(s *Scan, movements []floorMovement) (level float64) {
	for i, m := range movements {
		f.grown += units.RoundInt(m.Slope * float64(m.Steps))
		f.PerMin += s.slopePerMinute(m.Slope)
		if n := len(m.series); n > 0 {
			level += float64(m.series[n-1])
		}
		if i == 0 || math.Abs(m.Slope) > math.Abs(f.trend.Slope) {
			f.trend, f.checkpoints = m.Trend, len(m.series)
		}
	}
	return level
}

// randomRise returns the rise of live memory, bytes, that chance explains: see stats.RandomRise.
func (g *groupStats) randomRise() float64 {
	return stats.RandomRise(g.LiveCount, g.frees) * float64(g.LiveBytes) / float64(max(1, g.LiveCount))
}

// checkpointStepNs returns the time between two checkpoints, ns.
func (s *Scan) checkpointStepNs() float64 { return float64(s.Window.ToNs-s.warmNs) / CheckpointCount }

// slopePerMinute converts a slope per checkpoint interval to a slope per minute.
func (s *Scan) slopePerMinute(slope float64) float64 {
	if step := s.checkpointStepNs(); step > 0 {
		return slope / step * float64(time.Minute)
	}
	return 0
}

// Evidence returns one sentence with the numbers behind the verdict.
func (f *LeakFinding) Evidence() string {
	freed := fmt.Sprintf("%s of %s freed", units.FormatCount(f.frees), units.FormatCount(f.allocs))
	switch f.Verdict {
	case VerdictGrowing:
		if f.windowGrowth != nil {
			return freed + ", " + f.windowEvidence()
		}
		return fmt.Sprintf(
			"%s, lowest live bytes rose by %s over %d checkpoints (tau %.2f)",
			freed,
			units.FormatBytes(f.grown),
			f.trend.Steps,
			f.trend.Tau,
		)
	case VerdictExitLeak:
		return freed + f.doubtText() + ", live when the process or its last CUDA context ended"
	case VerdictStartup:
		return fmt.Sprintf("%s, %.0f%% of the live bytes were allocated in the first tenth of the "+
			"window", freed, units.Percent(f.startBytes, f.LiveBytes))
	}
	return fmt.Sprintf("%s%s, tau %.2f", freed, f.doubtText(), f.trend.Tau)
}

// doubtText returns the reason why rising memory does not have the verdict Growing, or "".
func (f *LeakFinding) doubtText() string {
	switch {
	case f.windowDoubt != "":
		return ", " + f.windowEvidence()
	case f.replacesEarlier:
		return ", rises, but the program freed as many blocks of these sizes from before the recording"
	case f.explainedByLoss:
		return ", rises, but lost frees may explain the rise"
	case f.explainedByChance:
		return ", rises, but chance may explain the rise"
	case f.slowing:
		return ", rises more and more slowly, like a cache that fills up"
	}
	return ""
}

// Confidence returns the confidence in the verdict and the reasons that lower it. level and reasons
// are those of the recording. Few blocks, few checkpoints or a short window lower them further.
func (f *LeakFinding) Confidence(level string, reasons []string, w query.Window) (string, []string) {
	if f.Verdict == VerdictChurn {
		return level, reasons
	}
	lower := func(reason string) {
		if level == report.ConfidenceHigh {
			level = report.ConfidenceMedium
		}
		reasons = append(reasons[:len(reasons):len(reasons)], reason)
	}
	if f.earlierDoubt != "" {
		lower(f.earlierDoubt)
	}
	if d := w.DurNs(); d < int64(10*time.Second) {
		lower("only " + units.FormatDuration(d) + " of activity was recorded")
	}
	if f.windowGrowth != nil {
		lower(fmt.Sprintf("allocator events were recorded for %.0f%% of the time", f.windowGrowth.recordedPct))
	}
	if f.Verdict == VerdictGrowing && f.allocs-f.frees < stats.MinCountForStatistics {
		lower(fmt.Sprintf("only %d allocations are live", f.allocs-f.frees))
	}
	if f.Verdict == VerdictGrowing && 2*f.trend.Steps <= f.checkpoints {
		lower(fmt.Sprintf("live bytes rise only in the last %d of %d checkpoints", f.trend.Steps, f.checkpoints))
	}
	return level, reasons
}

// GrowthOnDevice returns the growth of device memory, bytes per minute. It returns 0 for host
// memory and for verdicts other than Growing.
func (f *LeakFinding) GrowthOnDevice() float64 {
	if f.Verdict != VerdictGrowing || f.hostBytes > 0 {
		return 0
	}
	return f.PerMin
}

// TimeUntilOom returns the time until a device is out of memory, an int64 in ns, if its memory
// grows by perMin bytes per minute from atNs (Unix ns) on. It returns nil if perMin is not positive
// or the free memory is unknown.
func TimeUntilOom(t *timeline.Timeline, device int32, perMin float64, atNs int64) any {
	if perMin <= 0 {
		return nil
	}
	total, used, ok := t.DeviceMemoryUse(device, atNs)
	if !ok {
		return nil
	}
	return units.RoundInt(max(0, total-used) / perMin * float64(time.Minute))
}
