//go:build linux

package record

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// TestReviewsSeeTheRecordingSoFar freezes a running recording many times, whole and for its last second, and checks the
// counts of each part. The recording itself must equal the ledger of the program.
func TestReviewsSeeTheRecordingSoFar(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needMulti(t)
	const calls = 200_000
	p := startSim(
		t,
		nil,
		"storm",
		"--calls",
		fmt.Sprint(calls),
		"--threads",
		"4",
		"--seed",
		"11",
		"--rate",
		"40000",
		"--wait",
	)
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.Attach, opt.SegmentInterval = privilege.AttachMulti, 300*time.Millisecond
	path := t.TempDir()
	opt.Output = filepath.Join(path, "r.parquet")
	folder, err := os.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	judged := make(chan Review, 100)
	opt.Reviews = &Reviews{Folder: folder, Judge: func(_ context.Context, r Review) (time.Duration, bool) {
		checkFrozen(t, filepath.Join(path, r.Name), r.IsWhole)
		judged <- r
		return 0, false
	}}
	s := start(t, opt)
	var since int64
	omitted := 0
	result := runWhile(t, s, func() {
		since = monotonic()
		p.step()
		for i := range 20 {
			awaitCalls(t, s, uint64(i+1)*calls/25)
			trigger := format.Trigger{ID: fmt.Sprint("part", i), Kind: "manual", AtNs: s.clock.NowNs()}
			if trigger.BeforeNs = time.Hour.Nanoseconds(); i%2 == 1 {
				trigger.BeforeNs = time.Second.Nanoseconds()
			}
			done := make(chan error, 1)
			s.takeCapture(folder, &trigger, func(err error) { done <- err })
			if err := <-done; err != nil {
				t.Errorf("part %d: %v", i, err)
				continue
			}
			omitted += int(checkFrozen(t, filepath.Join(path, trigger.ID+format.SealingSuffix), i%2 == 0))
		}
		p.expect("done")
		select { // storm makes calls that fail
		case r := <-judged:
			if !r.IsUrgent {
				t.Errorf("the review is not urgent: %+v", r)
			}
		case <-time.After(time.Minute):
			t.Error("no review within a minute")
		}
	})
	p.finish()
	if omitted == 0 {
		t.Error("no part left out old calls")
	}
	total := result.Meta.Totals()
	if total.Lost != 0 || total.Seen != total.Recorded {
		t.Errorf("counts %+v", total)
	}
	if n := compare(t, result.Output, readLedger(t, p.ledger, since)); int64(n) != total.Recorded {
		t.Errorf("%d calls compared, %d recorded", n, total.Recorded)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "r.parquet" && !strings.HasPrefix(e.Name(), "part") {
			t.Errorf("%s is left", e.Name())
		}
	}
}

// checkFrozen checks the counts of a frozen part of a recording, and returns the number of calls that it leaves out.
func checkFrozen(t *testing.T, folder string, whole bool) (dropped int64) {
	t.Helper()
	rec, err := format.OpenCapture(folder)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer rec.Close()
	var rows int64
	count := func(*format.Row) error { rows++; return nil }
	if err := rec.Rows(count, format.ClassMemory, format.ClassCall, format.ClassAllocator); err != nil {
		t.Error(err)
	}
	total := rec.Meta.Totals()
	if total.Recorded != rows || total.Seen != rows+total.Dropped || total.Lost != 0 || whole && total.Dropped != 0 {
		t.Errorf("%s has %d rows, counts %+v", filepath.Base(folder), rows, total)
	}
	if rec.Meta.Trigger == nil || len(rec.Damaged) > 0 {
		t.Errorf("%s: trigger %v, damaged %v", filepath.Base(folder), rec.Meta.Trigger, rec.Damaged)
	}
	return total.Dropped
}
