//go:build linux

package record

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/overhead"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/sampling"
)

// fastGovernor returns a policy with short windows and pauses.
func fastGovernor() overhead.GovernorPolicy {
	p := overhead.DefaultGovernorPolicy
	p.Window, p.MinPeriod, p.MaxPeriod = 100*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond
	p.MinWindow, p.MostInSecond = 100*time.Millisecond, 1000
	return p
}

// isSampled returns the functions whose calls may be missing when launches are sampled.
func isSampled() map[string]bool {
	sampled := make(map[string]bool)
	for cookie := range bpf.NumDriverCookies() {
		call, name, _, _ := bpf.FunctionByCookie(uint16(cookie))
		sampled[name] = call.SamplesReturnProbes()
	}
	return sampled
}

// period is a time from begin to end in Unix ns, the end excluded.
type period struct{ fromNs, toNs int64 }

// recordedPeriods returns the periods in which launches were recorded, from a recording's notes.
func recordedPeriods(t *testing.T, path string) []period {
	t.Helper()
	return recordedWindows(t, path, format.SampledLaunch)
}

// recordedWindows returns the periods in which calls of a class of samplings were recorded.
func recordedWindows(t *testing.T, path, class string) []period {
	t.Helper()
	list := []period{{0, math.MaxInt64}}
	for _, note := range factRows(t, path, format.KindNote) {
		if note.Name != format.NoteSampling {
			continue
		}
		var s format.Sampling
		if err := json.Unmarshal([]byte(note.Message), &s); err != nil {
			t.Fatal(err)
		}
		if s.OverheadPct < 0 || s.MaxOverheadPct != 0.1 {
			t.Errorf("note %s", note.Message)
		}
		if s.Class != class {
			continue
		}
		switch last := &list[len(list)-1]; {
		case s.What != format.SampledCalls:
		case s.Recorded && last.toNs < note.StartNs:
			list = append(list, period{note.StartNs, math.MaxInt64})
		case !s.Recorded && last.toNs == math.MaxInt64 && last.fromNs < note.StartNs:
			last.toNs = note.StartNs
		default:
			t.Fatalf("the notes of the governor do not alternate: %s", note.Message)
		}
	}
	return list
}

func within(list []period, ns int64) bool {
	return slices.ContainsFunc(list, func(s period) bool { return s.fromNs <= ns && ns < s.toNs })
}

// withoutMissing removes the launches from a ledger that a recording does not have according to its
// notes. The ledger's time of a call is slightly later than the probe's. Near a switch of the
// governor, the recorded rows decide which launches are removed.
func withoutMissing(
	ledger map[int32][]ledgerCall,
	rows map[int32][]format.Row,
	recorded []period,
	clockOffset int64,
) (dropped, unsure int) {
	sampled := isSampled()
	for tid, calls := range ledger {
		var kept []ledgerCall
		before := calls[0].startNs + clockOffset
		for _, c := range calls {
			at := c.startNs + clockOffset
			isThere := within(recorded, at)
			if sampled[c.name] && isThere != within(recorded, before) {
				unsure++
				i, _ := slices.BinarySearchFunc(
					rows[tid],
					before,
					func(r format.Row, ns int64) int { return int(r.StartNs - ns) },
				)
				isThere = i < len(rows[tid]) && rows[tid][i].StartNs <= at
			}
			before = c.endNs + clockOffset
			if sampled[c.name] && !isThere {
				dropped++
				continue
			}
			kept = append(kept, c)
		}
		ledger[tid] = kept
	}
	return dropped, unsure
}

// TestSampledLaunchesEqualTheLedger checks a recording in which the governor switches launches off
// and on: it has all launches of the recorded periods, once, no other launches, and all other
// calls.
func TestSampledLaunchesEqualTheLedger(t *testing.T) {
	testclass.Root(t)
	needMulti(t)
	for _, stacks := range []string{probe.StacksFP, probe.StacksAuto} {
		t.Run(stacks, func(t *testing.T) {
			const calls = 200_000
			p := startSim(
				t,
				nil,
				"storm",
				"--calls",
				fmt.Sprint(calls),
				"--threads",
				"3",
				"--seed",
				"5",
				"--rate",
				"40000",
				"--wait",
			)
			p.expect("ready")
			opt := testOptions(t, p.pid())
			opt.Attach, opt.Stacks, opt.KeepReturns, opt.MaxOverheadPct = privilege.AttachMulti, stacks, false, 0.1
			opt.returns = sampling.ReturnPolicy{
				On:      100 * time.Millisecond,
				Period:  300 * time.Millisecond,
				MaxRate: 100,
			}
			opt.governor = fastGovernor()
			s := start(t, opt)
			if err := s.StacksError(); err != nil {
				testclass.Missing(t, err.Error())
			}
			var since int64
			result := runWhile(t, s, func() {
				since = monotonic()
				p.step()
				p.expect("done")
			})
			p.finish()
			total := result.Meta.Totals()
			if total.Lost != 0 || total.Seen != total.Recorded || total.Open != 0 || total.Abandoned != 0 {
				t.Errorf("counts %+v", total)
			}
			recorded, rows := recordedPeriods(t, result.Output), recordedCalls(t, result.Output)
			ledger := readLedger(t, p.ledger, since)
			dropped, unsure := withoutMissing(ledger, rows, recorded, result.Meta.ClockOffsetNs)
			if n := compare(t, result.Output, ledger); int64(n) != total.Recorded {
				t.Errorf("%d calls compared, %d recorded", n, total.Recorded)
			}
			launches, bare := checkPeriods(t, rows, recorded)
			areRationed := stacks == probe.StacksAuto
			if len(recorded) < 3 || dropped < 500 || launches < 500 || areRationed != (bare > 0) || bare == launches ||
				unsure > 2*3*len(recorded) {
				t.Errorf("%d times with launches, %d launches left out, %d recorded, %d of them without stack; %d "+
					"around switches", len(recorded), dropped, launches, bare, unsure)
			}
			t.Logf("%d times with launches, %d launches left out, %d recorded, %d of them without stack; %d around "+
				"switches", len(recorded), dropped, launches, bare, unsure)
		})
	}
}

// checkPeriods checks that no launch is outside the periods in which launches were recorded.
func checkPeriods(t *testing.T, rows map[int32][]format.Row, recorded []period) (launches, bare int) {
	t.Helper()
	sampled, outside := isSampled(), 0
	for _, thread := range rows {
		for i := range thread {
			r := &thread[i]
			if !sampled[r.Name] {
				continue
			}
			launches++
			if r.StackStatus == format.StackNone || r.StackStatus == format.StackRationed {
				bare++
			}
			if !within(recorded, r.StartNs) {
				outside++
			}
		}
	}
	if outside > 0 {
		t.Errorf("%d launches in periods that the notes exclude", outside)
	}
	return launches, bare
}

// TestPerfUprobesSampleStacksOnly checks that with perf uprobes the governor switches only the
// stacks of launches, and that a note says so.
func TestPerfUprobesSampleStacksOnly(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	p := startSim(t, nil, "storm", "--calls", endless, "--threads", "2", "--seed", "5", "--rate", "40000", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.Attach, opt.MaxOverheadPct, opt.Only = privilege.AttachPerf, 0.1, []string{
		"cuMemAlloc_v2",
		"cuMemFree_v2",
		"cuLaunchKernel",
	}
	opt.governor = fastGovernor()
	var warnings []string
	opt.Warn = func(text string) { warnings = append(warnings, text) }
	s := start(t, opt)
	result := runWhile(t, s, func() {
		p.step()
		for range 5 {
			eventually(t, "stacks of launches are left out", func() bool { return skipsStacks(t, s) })
			eventually(t, "stacks of launches are taken again", func() bool { return !skipsStacks(t, s) })
		}
	})
	p.kill()
	if text := strings.Join(
		warnings,
		"; ",
	); !strings.Contains(text, "cannot be sampled with --attach perf") ||
		!strings.Contains(text, "so stacks of kernel launches are recorded for about 33 % of the time") {
		t.Errorf("unexpected warning: %s", text)
	}
	if recorded := recordedPeriods(t, result.Output); len(recorded) != 1 || recorded[0].toNs != math.MaxInt64 {
		t.Errorf("launches recorded in %v", recorded)
	}
	launches, bare := checkPeriods(t, recordedCalls(t, result.Output), recordedPeriods(t, result.Output))
	if bare < 100 || bare == launches {
		t.Errorf("%d launches, %d without stack", launches, bare)
	}
}

// skipsStacks reports whether the BPF programs record launches without stacks now.
func skipsStacks(t *testing.T, s *Session) bool {
	t.Helper()
	var skips uint8
	if err := s.probes.Objects.SkipStacks.Get(&skips); err != nil {
		t.Fatal(err)
	}
	return skips == 1
}

// TestCostOfAnException checks that the measured cost of a probe hit is plausible.
func TestCostOfAnException(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	p := startSim(t, nil, "storm", "--calls", "10", "--wait")
	p.expect("ready")
	for _, how := range slices.Compact([]privilege.AttachMethod{privilege.AttachAuto.ResolveForKernel(), privilege.AttachPerf}) {
		opt := testOptions(t, p.pid())
		opt.Attach, opt.Only = how, []string{"cuMemAlloc_v2"}
		s := start(t, opt)
		ns, err := s.probes.MeasureExceptionNs()
		if err != nil || ns < 50 || ns > 100_000 {
			t.Errorf("%s: %.0f ns, %v", how, ns, err)
		}
		t.Logf("%s: %.0f ns", how, ns)
		runWhile(t, s, func() {})
	}
	p.step()
	p.finish()
}

// TestSamplingContinuesWhenAProcessExits checks that launches are recorded again after a process
// has exited in a period without launches. The third process has probes of its own.
func TestSamplingContinuesWhenAProcessExits(t *testing.T) {
	testclass.Root(t)
	needMulti(t)
	storm := func(calls string) *simProgram {
		p := startSim(t, nil, "storm", "--calls", calls, "--threads", "1", "--seed", "5", "--rate", "20000", "--wait")
		p.expect("ready")
		return p
	}
	long, short, _ := storm(endless), storm(endless), storm("1")
	opt := testOptions(t, long.pid(), short.pid())
	opt.Attach, opt.MaxOverheadPct, opt.KeepReturns = privilege.AttachMulti, 0.1, false
	opt.returns = sampling.ReturnPolicy{On: 100 * time.Millisecond, Period: 300 * time.Millisecond, MaxRate: 100}
	opt.governor = fastGovernor()
	s := start(t, opt)
	var endNs int64
	result := runWhile(t, s, func() {
		long.step()
		short.step()
		eventually(t, "launches are left out", func() bool { return ignoresLaunches(s) })
		short.kill()
		endNs = monotonic()
		eventually(t, "the recorder notices the end", func() bool { return s.targets.Get(short.pid()) == nil })
		eventually(t, "launches are left out again", func() bool { return ignoresLaunches(s) })
		eventually(t, "launches are recorded again", func() bool { return !ignoresLaunches(s) })
	})
	long.kill()
	for _, note := range factRows(t, result.Output, format.KindNote) {
		if (note.Name == sampling.NoteOverhead || note.Name == "returns") &&
			strings.Contains(note.Message, "not found") {
			t.Errorf("%s: %s", note.Name, note.Message)
		}
	}
	after := 0
	for _, r := range recordedPeriods(t, result.Output) {
		if r.fromNs > endNs+result.Meta.ClockOffsetNs {
			after++
		}
	}
	total := result.Meta.Totals()
	if after < 1 || total.Lost != 0 || total.Seen != total.Recorded || total.Abandoned != 0 {
		t.Errorf("%d periods with launches after the exit of a process; counts %+v", after, total)
	}
}

// ignoresLaunches reports whether launches are not recorded now.
func ignoresLaunches(s *Session) bool {
	now := monotonic()
	return s.probes.MissingLaunches.Overlaps(now, now+1)
}
