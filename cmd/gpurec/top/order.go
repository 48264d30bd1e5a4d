package top

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/live"
)

// order is the order of the processes in the table. It is calm: a row passes the row above it only if its number,
// smoothed over some updates, is clearly better.
type order struct {
	pids   []int32
	smooth map[int32]float64 // numbers of the column, by pid; nil: sort by the next numbers
}

const (
	// smoothing is the weight of a new number.
	smoothing = 0.4
	// clearShare and clearStep are the differences from which on a number is clearly better: a share of the worse
	// number, and a fixed part.
	clearShare, clearStep = 0.1, 0.5
)

// next returns the order after an update. reversed puts first what the column has last.
func (o order) next(list []live.Process, c *column, reversed bool) order {
	if c.number == nil {
		return order{pids: sortByName(list, reversed)}
	}
	n := order{smooth: make(map[int32]float64, len(list))}
	for i := range list {
		p := &list[i]
		value := c.number(p)
		if old, ok := o.smooth[p.Pid]; ok && value >= 0 && old >= 0 && !c.steady {
			value = old + smoothing*(value-old)
		}
		n.smooth[p.Pid] = value
	}
	falling := c.rising == reversed
	if o.smooth == nil || c.steady {
		for i := range list {
			n.pids = append(n.pids, list[i].Pid)
		}
		slices.SortFunc(n.pids, func(a, b int32) int { return n.compare(a, b, falling) })
		return n
	}
	n.pids = slices.DeleteFunc(slices.Clone(o.pids), func(pid int32) bool { _, ok := n.smooth[pid]; return !ok })
	for i := range list {
		if _, ok := o.smooth[list[i].Pid]; !ok {
			n.pids = append(n.pids, list[i].Pid)
		}
	}
	n.moveClearlyBetter(falling)
	return n
}

// compare compares two processes by their numbers. Unknown numbers are last.
func (o *order) compare(a, b int32, falling bool) int {
	x, y := o.smooth[a], o.smooth[b]
	if falling || x < 0 || y < 0 {
		x, y = y, x
	}
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(a, b))
}

// moveClearlyBetter moves each row above those than which it is clearly better.
func (o *order) moveClearlyBetter(falling bool) {
	for i := 1; i < len(o.pids); i++ {
		for j := i; j > 0 && o.isClearlyBetter(o.pids[j], o.pids[j-1], falling); j-- {
			o.pids[j], o.pids[j-1] = o.pids[j-1], o.pids[j]
		}
	}
}

// isClearlyBetter reports whether process a belongs above process b.
func (o *order) isClearlyBetter(a, b int32, falling bool) bool {
	x, y := o.smooth[a], o.smooth[b]
	switch {
	case x < 0 || y < 0:
		return x >= 0 && y < 0
	case falling:
		return x > y+clearShare*math.Abs(y)+clearStep
	}
	return y > x+clearShare*math.Abs(x)+clearStep
}

func sortByName(list []live.Process, reversed bool) []int32 {
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b live.Process) int {
		order := cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Pid, b.Pid))
		if reversed {
			order = -order
		}
		return order
	})
	pids := make([]int32, 0, len(sorted))
	for i := range sorted {
		pids = append(pids, sorted[i].Pid)
	}
	return pids
}
