package straggler

import (
	"cmp"
	"math"
	"slices"
)

// Limits of a verdict. They were tried on simulated jobs: see the test.
const (
	windowSteps     = 64    // most steps in a window
	windowsOfAll    = 4     // windows that a short recording is divided into
	leastSteps      = 32    // steps of a group, below which nothing is said
	leastShare      = 0.02  // of the step, and of the time of all steps, below which a rank is not late
	leastEnded      = 0.1   // of the time of all steps, below which an episode that ended is not late
	falseAlarm      = 0.001 // chance of a wrong window among all ranks
	manyRanks       = 8     // from which on the ranks' own spread is known
	rankSpreads     = 5     // spreads of ranks that a late rank exceeds
	usualShare      = 0.8   // of the steps in which one of few ranks is late
	leastExplained  = 0.3   // of the lateness, below which a cause is not one
	leastAltogether = 0.5   // of the lateness that all causes together explain
	leastOfSpread   = 1.0   // times the spread of the windows in which a rank is late
	leastOfOthers   = 3     // times the median deviation of the other windows from 0
	leastOthers     = 3     // other windows, below which their spread is unknown
)

// Figures are the medians of a rank over all compared steps, ns.
type Figures struct {
	StepNs, OwnNs float64
	LateNs        float64 // own time less that of the other ranks of its group; negative: it is faster
	WaitNs        float64 // StepNs less OwnNs: waits and transfers
	HostNs        float64 // host not blocked
	KernelFactor  float64 // time in kernels, as a multiple of the other ranks'; 0: unknown
	CopyFactor    float64 // the same for copies
	LastShare     float64 // share of the steps in which it has the longest own time of its group
	Steps         int     // compared steps
	Group         int     // number of its group
}

// Result is the outcome of Find.
type Result struct {
	Figures []Figures // by series
	// Lateness has the compared steps of each series.
	Lateness [][]StepLateness
	Verdicts []Verdict // the latest first
	// Groups has the number of ranks of each group. Ranks in a group of one are not compared.
	Groups []int
	// IsTooShort reports that no group has enough steps for a verdict.
	IsTooShort bool
	Basis      Basis // of all groups, BasisHost if they differ
}

// StepLateness is how late a rank is in a step.
type StepLateness struct {
	AtNs   int64   // Step.AtNs
	LateNs float64 // own time less the median of the other ranks of its group in the step; negative: it is faster
}

// Find compares the ranks of a job.
func Find(all []Series) *Result {
	out := &Result{
		Figures: make([]Figures, len(all)), Lateness: make([][]StepLateness, len(all)), IsTooShort: true,
	}
	for n, g := range groupsOf(all) {
		out.Groups = append(out.Groups, len(g.list))
		if n == 0 {
			out.Basis = g.basis
		} else if g.basis != out.Basis {
			out.Basis = BasisHost
		}
		own := g.compare(MeasureOwn)
		for r, i := range g.members {
			out.Figures[i] = g.figures(r, &own)
			out.Figures[i].Group = n
			for k, late := range own.excess[r] {
				out.Lateness[i] = append(out.Lateness[i], StepLateness{g.list[r].Steps[k].AtNs, late})
			}
		}
		g.addFactors(out.Figures)
		if g.steps < leastSteps || len(g.list) < 2 {
			continue
		}
		out.IsTooShort = false
		out.Verdicts = append(out.Verdicts, g.judge(&own)...)
	}
	slices.SortStableFunc(out.Verdicts, func(a, b Verdict) int { return cmp.Compare(b.LateNs, a.LateNs) })
	return out
}

// figures computes the medians of rank r of the group.
func (g *group) figures(r int, own *table) Figures {
	s, buffer := g.list[r], make([]float64, g.steps)
	f := Figures{Steps: g.steps, LateNs: median(own.excess[r], buffer)}
	column := make([]float64, g.steps)
	medianOf := func(value func(i int) float64) float64 {
		for i := range column {
			column[i] = value(i)
		}
		return median(column, buffer)
	}
	f.StepNs = medianOf(func(i int) float64 { return float64(s.Steps[i].DurNs) })
	f.OwnNs = medianOf(func(i int) float64 { return s.value(i, MeasureOwn) })
	f.HostNs = medianOf(func(i int) float64 { return s.value(i, MeasureHost) })
	f.WaitNs = max(0, f.StepNs-f.OwnNs)
	last := 0
	for i := range g.steps {
		isLast := true
		for q := range g.list {
			isLast = isLast && own.excess[r][i] >= own.excess[q][i]
		}
		if isLast {
			last++
		}
	}
	f.LastShare = float64(last) / float64(max(1, g.steps))
	return f
}

// addFactors adds the times in kernels and copies as multiples of the other ranks'.
func (g *group) addFactors(list []Figures) {
	if len(g.list) < 2 {
		return
	}
	buffer := make([]float64, g.steps)
	if g.basis == BasisArrivals {
		for r, i := range g.members {
			_, list[i].KernelFactor = g.excessOfSums(r, 0, g.steps, kernelNs)
			_, list[i].CopyFactor = g.excessOfSums(r, 0, g.steps, copyNs)
		}
		return
	}
	factor := func(t *table, r int) float64 {
		typical := median(t.typical[r], buffer)
		if typical <= 0 {
			return 0
		}
		return max(0, typical+median(t.excess[r], buffer)) / typical
	}
	copies := g.compare(MeasureCopyNs)
	for r, i := range g.members {
		list[i].CopyFactor = factor(&copies, r)
	}
	if g.basis == BasisHost {
		return
	}
	kernels := g.compare(MeasureKernelNs)
	for r, i := range g.members {
		list[i].KernelFactor = factor(&kernels, r)
	}
}

// judge returns the verdicts about a group.
func (g *group) judge(own *table) (list []Verdict) {
	size := min(windowSteps, max(leastSteps/2, g.steps/windowsOfAll))
	windows := g.steps / size
	limits := g.spreadLimits(own, size, windows)
	for r := range g.list {
		late, all := make([]float64, windows), make([]float64, windows)
		for w := range windows {
			ns, ok := g.isLate(own, r, w*size, (w+1)*size, limits[w])
			if all[w] = ns; ok {
				late[w] = ns
			}
		}
		from, to, sum := latestRun(late)
		if to-from < 2 || sum*float64(size) < leastShare*g.timeNs(r) || isUsual(all, from, to) {
			continue
		}
		end := to * size
		if to == windows {
			end = g.steps
		} else if sum*float64(size) < leastEnded*g.timeNs(r) {
			continue // a recorder that attaches, or another program, makes a rank late for a moment
		}
		if v, ok := g.explain(own, r, from*size, end); ok {
			list = append(list, v)
		}
	}
	return list
}

// isUsual reports whether a run of windows is late only as much as hosts vary for some seconds, for example because another
// program uses a processor: the mean of the run hardly exceeds the spread within it, or that of the other windows around 0.
func isUsual(late []float64, from, to int) bool {
	buffer := make([]float64, len(late))
	mean := 0.0
	for _, ns := range late[from:to] {
		mean += ns / float64(to-from)
	}
	if mean < leastOfSpread*spread(late[from:to], buffer) {
		return true
	}
	var others []float64
	for w, ns := range late {
		if w < from || w >= to {
			others = append(others, math.Abs(ns))
		}
	}
	return len(others) >= leastOthers && mean < leastOfOthers*median(others, buffer)
}

// spreadLimits returns, for each window, what the own spread of many ranks allows.
func (g *group) spreadLimits(own *table, size, windows int) []float64 {
	limits := make([]float64, windows)
	if len(g.list) < manyRanks {
		return limits
	}
	middles, buffer := make([]float64, len(g.list)), make([]float64, max(size, len(g.list)))
	for w := range limits {
		for r := range g.list {
			middles[r] = median(own.excess[r][w*size:(w+1)*size], buffer)
		}
		limits[w] = rankSpreads * spread(middles, buffer)
	}
	return limits
}

// isLate returns by how much rank r is late in the steps from to to, ns, and whether that is enough.
func (g *group) isLate(own *table, r, from, to int, spreadLimit float64) (late float64, ok bool) {
	excess, buffer := own.excess[r][from:to], make([]float64, to-from)
	late = median(excess, buffer)
	z := math.Sqrt2 * math.Erfinv(1-2*falseAlarm/float64(len(g.list)))
	const ofMedian = 1.25 // standard errors of a mean in that of a median
	noise := z * ofMedian * spread(excess, buffer) / math.Sqrt(float64(to-from))
	if late <= max(leastShare*g.stepNs(r, from, to), noise, spreadLimit) {
		return late, false
	}
	if len(g.list) >= manyRanks {
		return late, true
	}
	usual := 0
	for _, e := range excess {
		if e > late/4 {
			usual++
		}
	}
	return late, float64(usual) >= usualShare*float64(to-from)
}

// timeNs returns the time of all compared steps of rank r.
func (g *group) timeNs(r int) (ns float64) {
	for i := range g.list[r].Steps {
		ns += float64(g.list[r].Steps[i].DurNs)
	}
	return ns
}

// stepNs returns the median duration of steps of rank r.
func (g *group) stepNs(r, from, to int) float64 {
	list := make([]float64, 0, to-from)
	for i := from; i < to; i++ {
		list = append(list, float64(g.list[r].Steps[i].DurNs))
	}
	return median(list, make([]float64, len(list)))
}

// latestRun returns the run of values above 0 with the largest sum.
func latestRun(list []float64) (from, to int, sum float64) {
	begin, run := 0, 0.0
	for i := range len(list) + 1 {
		if i < len(list) && list[i] > 0 {
			run += list[i]
			continue
		}
		if run > sum {
			from, to, sum = begin, i, run
		}
		begin, run = i+1, 0
	}
	return from, to, sum
}
