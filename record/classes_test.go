//go:build linux

package record

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/probe"
)

// TestClassesEqualTheLedger records one program with several --record classes, and compares each
// recording with the calls of the ledger that belong to the classes.
func TestClassesEqualTheLedger(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needMulti(t)
	for _, classes := range [][]string{
		{format.RecordMemory},
		{format.RecordLaunch},
		{format.RecordCopy, format.RecordSync},
		{format.RecordStream, format.RecordModule, format.RecordGraph},
	} {
		t.Run(strings.Join(classes, ","), func(t *testing.T) {
			p := startSim(t, nil, "storm", "--calls", "20000", "--threads", "2", "--seed", "11", "--wait")
			p.expect("ready")
			opt := testOptions(t, p.pid())
			opt.Classes, opt.Allocator, opt.Stacks = classes, library.AllocatorModeOff, probe.StacksOff
			s := start(t, opt)
			var since int64
			result := runWhile(t, s, func() {
				since = monotonic()
				p.step()
				p.expect("done")
			})
			p.finish()
			ledger := readLedger(t, p.ledger, since)
			for tid := range ledger {
				ledger[tid] = slices.DeleteFunc(
					ledger[tid],
					func(c ledgerCall) bool { return !isNamedIn(classes, c.name) },
				)
			}
			total := result.Meta.Totals()
			if n := compare(t, result.Output, ledger); n < 100 || int64(n) != total.Recorded || total.Lost != 0 {
				t.Errorf("%d calls compared, %+v", n, total)
			}
			if !slices.Equal(result.Meta.Classes, classes) {
				t.Errorf("the metadata has classes %v", result.Meta.Classes)
			}
			notes := factRows(t, result.Output, format.KindNote)
			if !slices.ContainsFunc(notes, func(r format.Row) bool {
				return r.Name == "classes" && strings.Contains(r.Message, strings.Join(classes, ", "))
			}) {
				t.Errorf("no note says what is missing: %v", notes)
			}
		})
	}
}

// isNamedIn reports whether a recording of these classes contains calls of an exported function.
func isNamedIn(classes []string, name string) bool {
	for cookie := range bpf.NumDriverCookies() {
		if call, exported, _, _ := bpf.FunctionByCookie(uint16(cookie)); exported == name {
			return probe.IsFunctionNeeded(call, classes)
		}
	}
	return false
}
