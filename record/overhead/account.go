//go:build linux

package overhead

import "github.com/gpurec/gpurec/format"

// Account sums the overhead of probes in each second: probe hits times their price, and unwinding, of the busiest
// thread. It is not safe for concurrent use.
type Account struct {
	format.ProbeCost
	sumPct  float64 // of the finished seconds
	present float64 // cost of the present second, in percent · s
	left    float64 // of the present second, s

	parts []accountPart // the last second and a little more, in order of time
}

// accountPart is a short time with a constant overhead.
type accountPart struct{ seconds, pct float64 }

// NewAccount returns an empty account. limitPct is the limit, in percent.
func NewAccount(limitPct float64) *Account {
	return &Account{ProbeCost: format.ProbeCost{LimitPct: limitPct}, left: 1}
}

// Add adds a time with an overhead in percent.
func (a *Account) Add(pct, seconds float64) {
	a.parts = append(a.parts, accountPart{seconds, pct})
	total := 0.0
	for i := len(a.parts) - 1; i >= 0; i-- {
		if total += a.parts[i].seconds; total >= 1 {
			a.parts = append(a.parts[:0], a.parts[i:]...)
			break
		}
	}
	for seconds >= a.left {
		a.present += pct * a.left
		seconds -= a.left
		a.endSecond()
	}
	a.present += pct * seconds
	a.left -= seconds
}

// endSecond ends the present second.
func (a *Account) endSecond() {
	if a.Seconds++; len(a.SecondsPct) < format.MaxProbeCostSeconds {
		a.SecondsPct = append(a.SecondsPct, format.RoundPct(a.present))
	}
	a.sumPct += a.present
	a.MeanPct = format.RoundPct(a.sumPct / float64(a.Seconds))
	if a.Seconds > 1 { // the first second has the attach, and no price yet
		a.WorstPct = max(a.WorstPct, format.RoundPct(a.present))
		if a.present > a.LimitPct {
			a.OverLimit++
		}
	}
	a.present, a.left = 0, 1
}

// LastSecondPct returns the overhead of the last second.
func (a *Account) LastSecondPct() (pct float64) {
	left := 1.0
	for i := len(a.parts) - 1; i >= 0 && left > 0; i-- {
		pct += min(left, a.parts[i].seconds) * a.parts[i].pct
		left -= a.parts[i].seconds
	}
	return pct
}
