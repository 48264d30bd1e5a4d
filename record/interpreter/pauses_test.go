//go:build linux

package interpreter

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/hoststack/cpython"
)

// TestPauses finds pauses in readings every 10 ns. Each reading is written as the state of the collector, the
// holder of the GIL, and the counts of the generations.
func TestPauses(t *testing.T) {
	testclass.Unit(t)
	for name, test := range map[string]struct {
		readings []string
		want     string
	}{
		"none":       {[]string{"- 1 0 0 0", "- 1 4 1 0"}, ""},
		"short":      {[]string{"- 1 5 0 0", "c 1 5 0 0", "- 1 6 0 0"}, "5+10 gen 0 tid 1;"},
		"long":       {[]string{"- 1 0 0 8", "c 7 0 0 8", "c 7 0 0 8", "c 3 0 0 8", "- 1 0 0 9"}, "5+30 gen 2 tid 7;"},
		"two mixed":  {[]string{"- 1 0 0 0", "c 1 0 0 0", "- 1 1 1 0"}, "5+10 gen -1 tid 1;"},
		"two in one": {[]string{"- 1 0 0 0", "c 1 0 0 0", "c 2 0 1 0", "- 1 0 1 1"}, "5+10 gen 1 tid 1;15+10 gen 2 tid 2;"},
		"counted before its end": {
			[]string{"- 1 0 0 0", "c 1 0 0 0", "c 1 0 0 1", "- 1 0 0 1"}, "5+20 gen 2 tid 1;",
		},
		"three in one": {
			[]string{"- 1 0 0 0", "c 1 0 0 0", "c 1 1 0 0", "c 1 1 0 1", "- 1 1 0 1"}, "5+10 gen 0 tid 1;15+20 gen 2 tid 1;",
		},
		"no holder":      {[]string{"- 0 5 0 0", "c 0 5 0 0", "- 0 6 0 0"}, "5+10 gen 0 tid 0;"},
		"exec":           {[]string{"- 1 50 5 5", "c 1 50 5 5", "- 1 1 0 0"}, "5+10 gen 0 tid 1;"},
		"open":           {[]string{"- 1 0 0 0", "c 1 0 0 0", "c 1 0 0 0"}, "5+15 gen -1 tid 1 open;"},
		"from the start": {[]string{"c 1 0 0 0", "c 1 0 0 0", "- 1 0 1 0"}, "0+15 gen 1 tid 1;"},
	} {
		var p pauses
		var all []pause
		for i, text := range test.readings {
			now := reading{fromNs: int64(10 * i), toNs: int64(10 * i), hasGC: true}
			var state string
			var holder int32
			if _, err := fmt.Sscan(
				text, &state, &holder, &now.gc.Collections[0], &now.gc.Collections[1], &now.gc.Collections[2],
			); err != nil {
				t.Fatal(err)
			}
			now.gc.Collecting = state == "c"
			all = append(all, p.add(now, holder)...)
		}
		all = append(all, p.end(int64(10*(len(test.readings)-1)))...)
		got := ""
		for _, p := range all {
			got += fmt.Sprintf("%d+%d gen %d tid %d", p.startNs, p.endNs-p.startNs, p.generation, p.tid)
			if p.isOpen {
				got += " open"
			}
			got += ";"
		}
		if got != test.want {
			t.Errorf("%s: %s, not %s", name, got, test.want)
		}
	}
}

// TestPace checks that the rate falls while readings cost too much, and rises again.
func TestPace(t *testing.T) {
	testclass.Unit(t)
	const second = int64(1e9)
	p := newPace(false)
	p.wakeNs.Store(100_000)
	now, readNs := second, int64(0)
	step := func() float64 {
		hz, _ := p.hz()
		now, readNs = now+second, readNs+int64(hz)*3000
		p.adapt(now, int64(hz), readNs)
		hz, _ = p.hz()
		return hz
	}
	p.adapt(now, 0, 0)
	for range 10 {
		step()
	}
	if hz, lowest := p.hz(); hz < 35 || hz > 50 || lowest > hz {
		t.Errorf("%v Hz with dear wake-ups, lowest %v", hz, lowest)
	}
	p.wakeNs.Store(2000)
	p.costNs = readNs + p.wakeCostNs()
	for range 10 {
		step()
	}
	if hz, lowest := p.hz(); hz != AutoHz || lowest >= hz {
		t.Errorf("%v Hz with cheap wake-ups, lowest %v", hz, lowest)
	}
	full := newPace(true)
	full.wakeNs.Store(1e6)
	full.adapt(second, 0, 0)
	full.adapt(2*second, 1000, 1e9)
	if hz, _ := full.hz(); hz != FullHz {
		t.Errorf("%v Hz in full mode", hz)
	}
}

// TestTimes checks that readings come once in an interval, and at different times of it.
func TestTimes(t *testing.T) {
	testclass.Unit(t)
	p := newPace(false)
	interval := p.intervalNs.Load()
	now := int64(1e18)
	early := 0
	for range 1000 {
		next := p.next(now)
		if next <= now || next/interval != now/interval+1 || next%interval >= interval/2 {
			t.Fatalf("%d, then %d", now, next)
		}
		if next%interval < interval/4 {
			early++
		}
		now = next
	}
	if early < 400 || early > 600 {
		t.Errorf("%d of 1000 readings are early", early)
	}
}

func TestTexts(t *testing.T) {
	testclass.Unit(t)
	futex := fmt.Sprint(unix.SYS_FUTEX)
	for text, want := range map[string]uint64{
		futex + " 0x7f01 0x189 0x0 0x0 0x0 0x0 0x7ffe 0x7f\n": 0x7f01,
		"running\n": 0, "-1 0x7ffe 0x7f\n": 0, "": 0, futex: 0, futex + " x y": 0, "230 0x1 0x2": 0,
	} {
		if got, ok := parseFutex(text); got != want || ok != (want != 0) {
			t.Errorf("%q: %#x, %v", text, got, ok)
		}
	}
	for text, want := range map[string]string{
		"Name:\tNSpid:\\n1\nNSpid:\t4026\t7\n": "[4026 7]", "NSpid:\t9": "[9]", "NSpid:\tx": "[]", "": "[]", "NSpid:": "[]",
		"NSpid:\t99999999999": "[]",
	} {
		if got := fmt.Sprint(parseNamespaceTids(text)); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}

// TestTotals checks counters over an exec, and the limit of threads.
func TestTotals(t *testing.T) {
	testclass.Unit(t)
	totals := newTotals()
	last := reading{hasGC: true, gc: cpython.GC{Collections: [3]uint64{50, 5, 1}}}
	totals.add(&last, &reading{}, false, 0, nil)
	now := reading{hasGC: true, gc: cpython.GC{Collecting: true, Collections: [3]uint64{2, 5, 3}}}
	totals.add(&now, &last, true, 7, []int32{8})
	if totals.collections != [3]int64{2, 0, 2} || totals.collecting != 1 || totals.held[7] != 1 ||
		totals.waited[8] != 1 {
		t.Errorf("%+v", totals)
	}
	for tid := range int32(2 * maxHolders) {
		count(totals.held, tid)
	}
	if len(totals.held) != maxHolders {
		t.Errorf("%d threads", len(totals.held))
	}
}
