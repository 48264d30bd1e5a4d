//go:build linux

package overhead

import (
	"fmt"
	"strings"
	"testing"
)

// constant is a program with constant overhead, in percent: launches (of which stacks is a part)
// and other calls.
type constant struct{ launches, stacks, others float64 }

// measured returns the measurement of an interval with a Step.
func (c constant) measured(step SamplingStep, whole bool) Measurement {
	launches, ns := c.launches, 2000.0
	switch {
	case whole:
	case step == StepSampleLaunches:
		launches = 0
	case step == StepSampleStacks:
		launches -= c.stacks
		ns *= launches / c.launches
	}
	return Measurement{OverheadPct: launches + c.others, OthersPct: c.others, hitNs: ns}
}

// steps runs a governor for some intervals of each program and returns one letter per interval. n,
// s and l mean sampling nothing, stacks and launches. Full intervals are upper case. "!" means that
// the governor gave up.
func steps(g *Governor, looks int, programs ...constant) string {
	var b strings.Builder
	for _, c := range programs {
		for range looks {
			letter := string("nsl"[g.Step])
			if g.RecordsAll() {
				letter = strings.ToUpper(letter)
			}
			gaveUp := g.DecideNextInterval(c.measured(g.Step, g.RecordsAll()))
			b.WriteString(letter)
			if gaveUp {
				b.WriteByte('!')
			}
		}
	}
	return b.String()
}

func TestGovernorPolicy(t *testing.T) {
	cheap := constant{launches: 3}
	for name, c := range map[string]struct {
		limit    float64
		most     SamplingStep
		looks    int
		programs []constant
		want     string
	}{
		"below the limit":   {5, StepSampleLaunches, 12, []constant{cheap}, "NNNNNNNNNNNN"},
		"a moment above it": {5, StepSampleLaunches, 2, []constant{{launches: 20}, cheap, {launches: 20}, cheap}, "NNNNNNNN"},
		"stacks are enough": {
			5, StepSampleLaunches, 25,
			[]constant{{launches: 8, stacks: 5}},
			"NNN" + "sssssssssS" + "sssssssssS" + "ss",
		},
		"launches too": {
			5, StepSampleLaunches, 17,
			[]constant{{launches: 20, stacks: 5}},
			"NNN" + "sss" + "lllllllllL" + "l",
		},
		"launches cannot be": {
			5, StepSampleStacks, 17,
			[]constant{{launches: 20, stacks: 5}},
			"NNN" + "sss!ssssssS" + "ssss",
		},
		"others are too much alone": {
			5, StepSampleLaunches, 22,
			[]constant{{launches: 20, stacks: 5, others: 12}},
			"NNN" + "sss" + "lll!llllllL" + "llllll",
		},
		"back when it falls": {
			5, StepSampleLaunches, 40,
			[]constant{{launches: 20, stacks: 10}, cheap},
			"NNN" + "sss" + strings.Repeat("lllllllllL", 3) + "llll" + "lllllL" + "lllllllllL" + "sssssssssS" + "sssssssssS" + "NNNN",
		},
		"not back for less than a third below": {
			5, StepSampleLaunches, 30,
			[]constant{{launches: 8, stacks: 5}, {launches: 4}},
			"NNN" + strings.Repeat("sssssssssS", 5) + "sssssss",
		},
		"back at once where nothing runs": {
			5, StepSampleLaunches, 23,
			[]constant{{launches: 8, stacks: 5}, {}},
			"NNN" + strings.Repeat("sssssssssS", 4) + "NNN",
		},
	} {
		g := NewGovernor(DefaultGovernorPolicy, c.limit, c.most)
		if got := steps(g, c.looks, c.programs...); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

// ComputeMeasurement multiplies the rates of hits by the duration of a hit.
func TestLoadOfHits(t *testing.T) {
	l := ComputeMeasurement(HitRates{Launches: 20_000, Allocator: 5_000, Others: 1_000}, 2000)
	if got := fmt.Sprintf("%.2f %.2f %.2f", l.OverheadPct, l.OthersPct, l.AllocatorPct); got != "5.20 1.20 1.00" {
		t.Errorf("got %s", got)
	}
}
