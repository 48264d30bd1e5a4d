package straggler

import (
	"cmp"
	"math"
	"slices"
)

// Cause is why a rank is late.
type Cause uint8

// Causes.
const (
	CauseUnknown Cause = iota // the recorded times do not say it
	CauseHost                 // the host was late
	CauseGPU                  // the same kernels took longer
	CauseCopies               // copies took longer
	CauseWork                 // it had more kernels
)

// causeTexts are the causes as reports print them.
var causeTexts = [...]string{
	CauseUnknown: "cannot say", CauseHost: "host", CauseGPU: "GPU", CauseCopies: "copies", CauseWork: "uneven work",
}

// String returns the cause as reports print it.
func (c Cause) String() string { return causeTexts[c] }

// Reason is a cause with its part of the lateness.
type Reason struct {
	Cause Cause
	Ns    float64 // a step, more than on the other ranks
	// Factor is the quantity as a multiple of the other ranks': time in kernels, their number, time in copies.
	// 0: unknown.
	Factor float64
	// Bytes is the number of bytes that CauseCopies copies in a step, more than on the other ranks. 0: no more, or the
	// times of the copies explain the lateness.
	Bytes float64
}

// Verdict says that a rank is late.
type Verdict struct {
	Series int // index of the series
	// LateNs is the median of own time less that of the others, a step. Of StepNs, it is the part Share.
	LateNs, StepNs, Share float64
	// OwnNs and OthersNs are the medians of the own times of the rank, and of the others.
	OwnNs, OthersNs float64
	// GainNs estimates how much shorter a step were if the rank had the own time of the others: the mean
	// distance to the next latest rank, at most LateNs.
	GainNs float64
	// FromStep and ToStep are the steps in which it is late, as indices of the compared steps. SinceNs is the
	// time of the first, Unix ns; 0: it is late from the beginning.
	FromStep, ToStep int
	SinceNs          int64
	FromNs, ToNs     int64    // times of these steps, Unix ns
	Reasons          []Reason // the largest first; never empty
	Basis            Basis
}

// explain returns the verdict about rank r, which is late in the steps from to to.
func (g *group) explain(own *table, r, from, to int) (v Verdict, ok bool) {
	buffer := make([]float64, g.steps)
	late := median(own.excess[r][from:to], buffer)
	from, to, since := g.refine(own.excess[r], late, from, to)
	if to-from < leastSteps/2 {
		return v, false
	}
	s := g.list[r]
	v = Verdict{
		Series: g.members[r], LateNs: median(own.excess[r][from:to], buffer), StepNs: g.stepNs(r, from, to),
		OthersNs: median(own.typical[r][from:to], buffer), FromStep: from, ToStep: to, Basis: g.basis,
		FromNs: s.Steps[from].AtNs, ToNs: s.Steps[to-1].AtNs + s.Steps[to-1].DurNs,
	}
	if since {
		v.SinceNs = v.FromNs
	}
	v.OwnNs, v.Share = v.OthersNs+v.LateNs, v.LateNs/max(1, v.StepNs)
	v.GainNs = g.gain(own, r, from, to, v.LateNs)
	v.Reasons = g.reasons(r, from, to, v.LateNs)
	return v, true
}

// refine moves the ends of a span to where the lateness begins and ends. since reports that the rank was not
// late before.
func (g *group) refine(excess []float64, late float64, from, to int) (begin, end int, since bool) {
	begin, end = from, to
	reach := min(windowSteps, to-from)
	if low := max(0, from-reach); from > 0 {
		begin = low + bestSplit(excess[low:from+reach/2], late/2, true)
	} else if split := bestSplit(excess[:reach], late/2, true); split >= reach/3 {
		begin = split
	}
	if high := min(g.steps, to+reach); to < g.steps {
		end = to - reach/2 + bestSplit(excess[to-reach/2:high], late/2, false)
	}
	const leastBefore = 20 // steps that show that it was not late
	return begin, max(begin, end), begin >= leastBefore
}

// bestSplit returns the index that best divides values into those below and above a limit: below first if
// rising.
func bestSplit(values []float64, limit float64, rising bool) (best int) {
	sum, most := 0, 0
	for i, v := range values {
		if (v < limit) == rising {
			sum++
		} else {
			sum--
		}
		if sum > most {
			best, most = i+1, sum
		}
	}
	return best
}

// gain returns the mean distance of a rank to the next latest one.
func (g *group) gain(own *table, r, from, to int, late float64) float64 {
	sum := 0.0
	for i := from; i < to; i++ {
		mine, next := g.list[r].value(i, MeasureOwn), math.Inf(-1)
		for q, s := range g.list {
			if q != r {
				next = max(next, s.value(i, MeasureOwn))
			}
		}
		sum += max(0, min(mine-next, 2*late)) // a single pause of the rank is not its lateness
	}
	return min(late, sum/float64(max(1, to-from)))
}

// reasons explains a lateness. Causes that explain a small part of it are left out.
func (g *group) reasons(r, from, to int, late float64) []Reason {
	host, _ := g.excess(MeasureHost, r, from, to)
	list := []Reason{{Cause: CauseHost, Ns: host}}
	switch g.basis {
	case BasisArrivals:
		list = append(list, g.reasonOfSums(r, from, to, late))
	default:
		ns, factor := g.excess(MeasureCopyNs, r, from, to)
		list = append(list, Reason{Cause: CauseCopies, Ns: ns, Factor: factor})
		if g.basis == BasisGPU {
			ns, factor = g.excess(MeasureKernelNs, r, from, to)
			_, operations := g.excess(MeasureKernels, r, from, to)
			list = append(list, Reason{Cause: causeOfKernels(factor, operations), Ns: ns, Factor: factor})
		}
	}
	list = slices.DeleteFunc(list, func(r Reason) bool { return r.Ns < leastExplained*late })
	sum := 0.0
	for i := range list {
		list[i].Ns = min(list[i].Ns, late) // operations overlap, and wait for each other
		sum += list[i].Ns
	}
	if sum < leastAltogether*late {
		rest := Reason{Cause: CauseUnknown, Ns: late}
		if g.basis == BasisArrivals && host < leastExplained*late {
			// Its GPU gets to the collectives late, and neither its host nor its copies say why.
			_, launches := g.excessOfSums(r, from, to, kernelCount)
			rest.Cause = causeOfKernels(leastMore, launches)
		}
		return []Reason{rest}
	}
	sortReasons(list)
	return list
}

// leastMore is the factor of the number of launches from which on a rank has more work, if the times of its kernels are not
// known.
const leastMore = 1.4

// causeOfKernels returns the cause of a longer time in kernels, by the factors of the time and of the number of launches.
func causeOfKernels(time, launches float64) Cause {
	if launches-1 > (time-1)/2 {
		return CauseWork
	}
	return CauseGPU
}

// excess returns by how much a measure of rank r exceeds that of the others in the median step, and the quantity as a
// multiple of theirs; 0: unknown.
func (g *group) excess(m Measure, r, from, to int) (more, factor float64) {
	t, buffer := g.compare(m), make([]float64, g.steps)
	more = median(t.excess[r][from:to], buffer)
	if typical := median(t.typical[r][from:to], buffer); typical > 0 {
		factor = (typical + more) / typical
	}
	return more, factor
}

const (
	// fastestCopy is an upper bound of the speed of copies between host and device in bytes/ns: PCIe 5.0 with 16 lanes,
	// without the overhead of its packets.
	fastestCopy = 63
	// leastOfBytes is the part of a lateness that copies of more bytes take at the fastest, from which on they are the
	// cause: others are slower.
	leastOfBytes = 0.25
)

// LeastCopyNs returns the time that copies of a number of bytes take at least, ns.
func LeastCopyNs(bytes float64) float64 { return bytes / fastestCopy }

// reasonOfSums compares the work of the GPU of rank r with that of the others. Bytes are exact. The times of kernels are
// means, and those of copies have waits for kernels in them.
func (g *group) reasonOfSums(r, from, to int, late float64) Reason {
	ns, factor := g.excessOfSums(r, from, to, copyNs)
	copies := Reason{Cause: CauseCopies, Ns: ns, Factor: factor}
	ns, factor = g.excessOfSums(r, from, to, kernelNs)
	_, launches := g.excessOfSums(r, from, to, kernelCount)
	kernels := Reason{Cause: causeOfKernels(factor, launches), Ns: ns, Factor: factor}
	bytes, byBytes := g.excessOfSums(r, from, to, copyBytes)
	switch least := LeastCopyNs(bytes); {
	case least >= leastOfBytes*late && copies.Ns >= least:
		return copies
	case least >= leastOfBytes*late:
		return Reason{Cause: CauseCopies, Ns: late, Factor: byBytes, Bytes: bytes}
	case kernels.Factor > 0 && kernels.Factor < leastMore && copies.Factor >= leastMore && copies.Ns > kernels.Ns:
		return copies
	}
	return kernels
}

// kernelNs, kernelCount, copyNs and copyBytes return quantities of a step, and the time in which they were recorded, ns.
func kernelNs(s *Step) (value, ofNs int64)    { return s.KernelNs, s.CoveredNs }
func kernelCount(s *Step) (value, ofNs int64) { return int64(s.Kernels), s.CoveredNs }
func copyNs(s *Step) (value, ofNs int64)      { return s.CopyNs, s.DurNs }
func copyBytes(s *Step) (value, ofNs int64)   { return s.CopyBytes, s.DurNs }

// excessOfSums is excess for a quantity that most steps have in part only. It compares the mean quantity of a step.
func (g *group) excessOfSums(r, from, to int, quantity func(*Step) (value, ofNs int64)) (more, factor float64) {
	means := make([]float64, 0, len(g.list))
	mine := 0.0
	for q, s := range g.list {
		var sum, of, all int64
		for i := from; i < to; i++ {
			value, ns := quantity(&s.Steps[i])
			sum, of, all = sum+value, of+ns, all+s.Steps[i].DurNs
		}
		mean := float64(sum) / float64(max(1, of)) * float64(all) / float64(max(1, to-from))
		if q == r {
			mine = mean
		} else {
			means = append(means, mean)
		}
	}
	typical := median(means, nil)
	if typical > 0 {
		factor = mine / typical
	}
	return mine - typical, factor
}

// sortReasons orders reasons by their part, the largest first.
func sortReasons(list []Reason) {
	slices.SortStableFunc(list, func(a, b Reason) int { return cmp.Compare(b.Ns, a.Ns) })
}
