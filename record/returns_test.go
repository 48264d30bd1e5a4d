//go:build linux

package record

import (
	"fmt"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/sampling"
)

// TestReturnsOfLaunchesAreSampled records a high launch rate, at which return probes of launches
// are removed for a share of the time. Every launch must be recorded once; those without a return
// are marked.
func TestReturnsOfLaunchesAreSampled(t *testing.T) {
	testclass.Root(t)
	needMulti(t)
	for _, stacks := range []string{probe.StacksFP, probe.StacksAuto} {
		t.Run(stacks, func(t *testing.T) {
			const calls = 90_000
			p := startSim(
				t,
				nil,
				"storm",
				"--calls",
				fmt.Sprint(calls),
				"--threads",
				"3",
				"--seed",
				"11",
				"--rate",
				"40000",
				"--wait",
			)
			p.expect("ready")
			opt := testOptions(t, p.pid())
			opt.Attach, opt.Stacks, opt.KeepReturns = privilege.AttachMulti, stacks, false
			opt.returns = sampling.ReturnPolicy{
				On:      200 * time.Millisecond,
				Period:  500 * time.Millisecond,
				MaxRate: 100,
			}
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
			if n := compare(t, result.Output, readLedger(t, p.ledger, since)); int64(n) != total.Recorded {
				t.Errorf("%d calls compared, %d recorded", n, total.Recorded)
			}
			checkUnreturned(t, result.Output)
		})
	}
}

// checkUnreturned checks the rows of launches whose return was not probed.
func checkUnreturned(t *testing.T, path string) {
	t.Helper()
	with, without, bare := 0, 0, 0
	for _, rows := range recordedCalls(t, path) {
		for i := range rows {
			switch {
			case rows[i].Kind == format.KindLaunch && rows[i].Flags&format.FlagNoReturn != 0:
				without++
				if rows[i].StackStatus == format.StackNone {
					bare++
				}
			case rows[i].Kind == format.KindLaunch:
				with++
			case rows[i].Flags&format.FlagNoReturn != 0:
				t.Fatalf("%s has no return", rows[i].Name)
			}
		}
	}
	if with < 100 || without < 1000 {
		t.Errorf("%d launches with and %d without return", with, without)
	}
	if stacks := metaOf(t, path).Stacks; bare > 0 && stacks != probe.StacksOff {
		t.Errorf("%d launches without stack", bare)
	}
	notes := 0
	for _, note := range factRows(t, path, format.KindNote) {
		if note.Name == "returns" {
			notes++
		}
	}
	if notes != 1 {
		t.Errorf("%d notes, want 1", notes)
	}
	t.Logf("%d launches with, %d without return", with, without)
}
