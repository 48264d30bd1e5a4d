package ranksteps

import (
	"cmp"
	"math"
	"slices"
)

// Limits of a rise.
const (
	leastBefore  = 16   // values on each side of a rise
	leastOfAll   = 20   // and one of so many
	leastRise    = 1.5  // times the value before: kernels next to a transfer make it longer, too
	spreadsOfIt  = 3    // median deviations that it exceeds
	leastOfStep  = 0.02 // of a step that it costs
	leastOfSteps = 0.15 // of a step that it costs, if it is slower than other communicators
	leastOfPeers = 3    // times the transfer of other communicators of equal size: the ends of transfers are bounds
	leastPeers   = 3    // communicators of equal size, with the slow one
)

// SlowNetwork is an operation whose transfer is slow. No rank is accused of it: a ring hides where it is slow.
type SlowNetwork struct {
	Operation       int     // index in Survey.Operations
	TransferNs      float64 // median of one operation while it is slow, ns
	UsualNs         float64 // before, or on other communicators of equal size, ns
	CostNs          float64 // a step
	SinceNs         int64   // Unix ns; 0: from the beginning, compared with other communicators
	CommonHosts     []int   // hosts that all slow communicators have, and no fast one; indexes of Job.Hosts
	SlowerThanPeers bool
}

// FindSlowNetwork returns the operations whose transfer rose, or is slower than on other communicators, the most
// expensive first. It needs GPU times. stepNs is the duration of a step.
func (s *Survey) FindSlowNetwork(stepNs float64) (list []SlowNetwork) {
	for i := range s.Operations {
		o := &s.Operations[i]
		perStep := float64(o.Count) / float64(max(1, s.Steps))
		if n, ok := s.findRise(i); ok && n.CostNs >= leastOfStep*stepNs {
			list = append(list, n)
			continue
		}
		if n, ok := s.compareWithPeers(i); ok && (n.TransferNs-n.UsualNs)*perStep >= leastOfSteps*stepNs {
			n.CostNs = (n.TransferNs - n.UsualNs) * perStep
			list = append(list, n)
		}
	}
	slices.SortStableFunc(list, func(a, b SlowNetwork) int { return cmp.Compare(b.CostNs, a.CostNs) })
	hosts := s.commonHosts(list)
	for i := range list {
		list[i].CommonHosts = hosts
	}
	return list
}

// findRise returns the rise of the transfer of an operation over its own past. Equal operations of a step are compared
// apart: the next operation bounds their ends in different ways. The place with the largest rise is named.
func (s *Survey) findRise(i int) (n SlowNetwork, ok bool) {
	cost := 0.0
	for _, place := range s.Operations[i].places() {
		values := make([]float64, len(place))
		for k, t := range place {
			values[k] = float64(t.Ns)
		}
		split, before, after, rises := Rise(values)
		if !rises {
			continue
		}
		cost += after - before
		if !ok || after-before > n.TransferNs-n.UsualNs {
			n = SlowNetwork{Operation: i, TransferNs: after, UsualNs: before, SinceNs: place[split].AtNs}
		}
		ok = true
	}
	n.CostNs = cost
	return n, ok
}

// compareWithPeers compares the transfer of an operation with that on other communicators of equal size.
func (s *Survey) compareWithPeers(i int) (n SlowNetwork, ok bool) {
	o := &s.Operations[i]
	var others []float64
	for k := range s.Operations {
		p := &s.Operations[k]
		if k != i && p.Function == o.Function && p.Bytes == o.Bytes && p.DataType == o.DataType && p.Size == o.Size &&
			p.Communicator != o.Communicator && p.TransferNs > 0 {
			others = append(others, p.TransferNs)
		}
	}
	if o.TransferNs <= 0 || len(others) < leastPeers-1 {
		return n, false
	}
	usual := middle(others)
	return SlowNetwork{Operation: i, TransferNs: o.TransferNs, UsualNs: usual, SlowerThanPeers: true},
		o.TransferNs > leastOfPeers*usual
}

// commonHosts returns the hosts that all slow communicators have, and no other communicator of several ranks.
func (s *Survey) commonHosts(list []SlowNetwork) (hosts []int) {
	slow := make(map[int64]bool)
	for i := range list {
		slow[s.Operations[list[i].Operation].Communicator] = true
	}
	hasFast := false
	inFast, inSlow := make(map[int]bool), make(map[int]map[int64]bool)
	for i := range s.Operations {
		o := &s.Operations[i]
		hasFast = hasFast || !slow[o.Communicator]
		for _, m := range o.Members {
			h := s.Job.Members[m].Host
			if !slow[o.Communicator] {
				inFast[h] = true
				continue
			}
			if inSlow[h] == nil {
				inSlow[h] = make(map[int64]bool)
			}
			inSlow[h][o.Communicator] = true
		}
	}
	for h := range s.Job.Hosts {
		if hasFast && len(slow) > 0 && len(inSlow[h]) == len(slow) && !inFast[h] {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// Rise returns the index from which on values are higher than before, and the medians before and after. ok is false
// if they do not rise clearly.
func Rise(values []float64) (split int, before, after float64, ok bool) {
	n := len(values)
	least := max(leastBefore, n/leastOfAll)
	if n < 2*least {
		return 0, 0, 0, false
	}
	limit := 3 * middle(values) // a pause is no rise
	sums := make([]float64, n+1)
	for i, v := range values {
		sums[i+1] = sums[i] + min(v, limit)
	}
	best := 0.0
	for i := least; i <= n-least; i++ {
		low, high := sums[i]/float64(i), (sums[n]-sums[i])/float64(n-i)
		if gain := (high - low) * math.Sqrt(float64(i)*float64(n-i)); gain > best {
			best, split = gain, i
		}
	}
	if split == 0 {
		return 0, 0, 0, false
	}
	split = bestSplit(values, (middle(values[:split])+middle(values[split:]))/2, least)
	before, after = middle(values[:split]), middle(values[split:])
	noise := max(deviation(values[:split], before), deviation(values[split:], after))
	return split, before, after, after > leastRise*before && after-before > spreadsOfIt*noise
}

// bestSplit returns the index that best divides values into those below a limit and those above it. At least some are
// on each side.
func bestSplit(values []float64, limit float64, least int) (best int) {
	sum, most := 0, math.MinInt
	for i, v := range values {
		if i >= least && i <= len(values)-least && sum > most {
			best, most = i, sum
		}
		if v < limit {
			sum++
		} else {
			sum--
		}
	}
	return best
}

// middle returns the median of values, 0 of none.
func middle(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// deviation returns the median distance of values from a value.
func deviation(values []float64, from float64) float64 {
	away := make([]float64, len(values))
	for i, v := range values {
		away[i] = math.Abs(v - from)
	}
	return middle(away)
}
