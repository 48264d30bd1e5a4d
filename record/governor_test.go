//go:build linux

package record

import (
	"fmt"
	"strings"
	"testing"
)

// constant is a program whose calls cost that much, in percent: launches, of which stacks
// are a share, and others.
type constant struct{ launches, stacks, others float64 }

// measured is what a look sees while that much is recorded.
func (c constant) measured(step governorStep, whole bool) load {
	launches, ns := c.launches, 2000.0
	switch {
	case whole:
	case step == sampleLaunches:
		launches = 0
	case step == sampleStacks:
		launches -= c.stacks
		ns *= launches / c.launches
	}
	return load{overheadPct: launches + c.others, othersPct: c.others, hitNs: ns}
}

// steps lets a governor watch programs for some looks each, and writes its steps down: one
// letter per look, n(othing), s(tacks), l(aunches) sampled; upper case where everything is
// recorded, and ! where it gave up.
func steps(g *governor, looks int, programs ...constant) string {
	var b strings.Builder
	for _, c := range programs {
		for range looks {
			letter := string("nsl"[g.step])
			if g.isWhole() {
				letter = strings.ToUpper(letter)
			}
			gaveUp := g.next(c.measured(g.step, g.isWhole()))
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
		most     governorStep
		looks    int
		programs []constant
		want     string
	}{
		"below the limit":   {5, sampleLaunches, 12, []constant{cheap}, "NNNNNNNNNNNN"},
		"a moment above it": {5, sampleLaunches, 2, []constant{{launches: 20}, cheap, {launches: 20}, cheap}, "NNNNNNNN"},
		"stacks are enough": {5, sampleLaunches, 25, []constant{{launches: 8, stacks: 5}},
			"NNN" + "sssssssssS" + "sssssssssS" + "ss"},
		"launches too": {5, sampleLaunches, 17, []constant{{launches: 20, stacks: 5}},
			"NNN" + "sss" + "lllllllllL" + "l"},
		"launches cannot be": {5, sampleStacks, 17, []constant{{launches: 20, stacks: 5}},
			"NNN" + "sss!ssssssS" + "ssss"},
		"others are too much alone": {5, sampleLaunches, 22, []constant{{launches: 20, stacks: 5, others: 12}},
			"NNN" + "sss" + "lll!llllllL" + "llllll"},
		"back when it falls": {5, sampleLaunches, 40, []constant{{launches: 20, stacks: 10}, cheap},
			"NNN" + "sss" + strings.Repeat("lllllllllL", 3) + "llll" + "lllllL" + "lllllllllL" + "sssssssssS" + "sssssssssS" + "NNNN"},
		"not back for less than a third below": {5, sampleLaunches, 30, []constant{{launches: 8, stacks: 5}, {launches: 4}},
			"NNN" + strings.Repeat("sssssssssS", 5) + "sssssss"},
		"back at once where nothing runs": {5, sampleLaunches, 23, []constant{{launches: 8, stacks: 5}, {}},
			"NNN" + strings.Repeat("sssssssssS", 4) + "NNN"},
	} {
		g := newGovernor(defaultGovernor, c.limit, c.most)
		if got := steps(g, c.looks, c.programs...); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

// What the governor adds up is what the cost of a hit and their number come to.
func TestLoadOfHits(t *testing.T) {
	l := loadOf(hitRates{launches: 20_000, allocator: 5_000, others: 1_000}, 2000)
	if got := fmt.Sprintf("%.2f %.2f %.2f", l.overheadPct, l.othersPct, l.allocatorPct); got != "5.20 1.20 1.00" {
		t.Errorf("got %s", got)
	}
}
