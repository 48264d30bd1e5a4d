//go:build linux

package main

import (
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestDescribeSwitchCost(t *testing.T) {
	testclass.Unit(t)
	fact := &format.HostFact{Switches: 2_760_000, TargetSwitches: 30_000, SwitchNs: 62, TargetSwitchNs: 420}
	want := "cost of --host: 273,000 context switches/s of other programs at 62 ns (1.69 % of a core), " +
		"3,000/s of recorded threads at 420 ns (0.13 %)"
	if got := describeSwitchCost(fact, 10); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	fact.Wakings, fact.TargetWakings, fact.WakingNs, fact.TargetWakingNs = 1_010_000, 10_000, 60, 300
	want += "; 100,000 wake-ups/s of other programs at 60 ns (0.60 % of a core), " +
		"1,000/s of recorded threads at 300 ns (0.03 %)"
	if got := describeSwitchCost(fact, 10); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
