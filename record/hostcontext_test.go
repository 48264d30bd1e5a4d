//go:build linux

package record

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/hostcontext"
)

// hostRows returns the rows of class host of a recording.
func hostRows(t *testing.T, path string) (rows []format.Row) {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	if err := rec.Rows(func(r *format.Row) error {
		rows = append(rows, *r)
		return nil
	}, format.ClassHost); err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestHostContext records storm with waits and samples of its threads. The calls are the same as without.
func TestHostContext(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	p := startSim(t, nil, "storm", "--calls", "60000", "--threads", "2", "--seed", "6", "--rate", "20000", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.Host, opt.NoThreadStates = hostcontext.ModeAuto, true
	opt.Warn = func(text string) { t.Log("warning:", text) }
	s := start(t, opt)
	var since int64
	result := runWhile(t, s, func() {
		since = monotonic()
		p.step()
		p.expect("done")
	})
	p.finish()
	compare(t, opt.Output, readLedger(t, p.ledger, since))
	rows := hostRows(t, opt.Output)
	if result.Meta.HostRows == nil || result.Meta.HostRows.Recorded != int64(len(rows)) {
		t.Fatalf("%d rows, counted %+v", len(rows), result.Meta.HostRows)
	}
	workers := make(map[int32]map[string]float64)
	kinds, stacks := make(map[string]int), make(map[string]int)
	for _, row := range rows {
		kinds[row.Kind]++
		if row.Kind == format.KindWait || row.Kind == format.KindCPUSample {
			stacks[row.StackStatus]++
		}
		if row.Kind == format.KindHost && row.Tid != 0 { // not of the process or the machine
			if workers[row.Tid] == nil {
				workers[row.Tid] = make(map[string]float64)
			}
			workers[row.Tid][row.Name] = row.Value
		}
	}
	t.Log("rows", kinds, "stacks", stacks)
	if kinds[format.KindWait] == 0 || kinds[format.KindCPUSample] == 0 || stacks[format.StackComplete] == 0 {
		t.Errorf("rows %v, stacks %v", kinds, stacks)
	}
	for tid, m := range workers {
		// The sums cover the time since the thread is watched, by one clock.
		all := m[format.HostRunning] + m[format.HostRunnable] + m[format.HostSleeping] + m[format.HostUninterruptible]
		if all <= 0 || all > float64(result.Elapsed.Nanoseconds()) {
			t.Errorf("thread %d: %v ns of %v", tid, all, result.Elapsed)
		}
	}
	checkHostNote(t, opt.Output)
}

// checkHostNote checks the note on class host.
func checkHostNote(t *testing.T, path string) {
	t.Helper()
	notes := slices.DeleteFunc(
		factRows(t, path, format.KindNote),
		func(r format.Row) bool { return r.Name != format.NoteHost },
	)
	var fact format.HostFact
	if len(notes) != 2 {
		t.Fatalf("%d notes", len(notes))
	}
	if err := json.Unmarshal([]byte(notes[1].Message), &fact); err != nil {
		t.Fatal(err)
	}
	t.Logf("note %+v", fact)
	if fact.Mode != "auto" || fact.TargetSwitches == 0 || fact.CPUNs == 0 {
		t.Errorf("note %+v", fact)
	}
}
