package format

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
)

// testCaptures opens a folder of captures in the same file system as newRing's recording.
func testCaptures(t *testing.T) (*os.Root, string) {
	t.Helper()
	dir := t.TempDir()
	captures, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { captures.Close() })
	return captures, dir
}

// finishCapture ends a capture and waits for the disk.
func finishCapture(t *testing.T, f *Frozen, trigger *Trigger, rows FrozenRows) error {
	t.Helper()
	done := make(chan error, 1)
	f.Finish(Meta{EndNs: 5e9, Trigger: trigger}, rows, func(err error) { done <- err })
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("the disk did not finish the capture")
	}
	return nil
}

// TestCaptureKeepsWhatTheRingDrops freezes a ring, continues until the ring has dropped all that it had then, and
// seals the capture.
func TestCaptureKeepsWhatTheRingDrops(t *testing.T) {
	testclass.Unit(t)
	captures, dir := testCaptures(t)
	w := newRing(t, Limits{Ring: true, KeepNs: 4e9}, 5, 100) // rotations end at 1 to 5 s
	trigger := &Trigger{ID: "a", Kind: "oom", AtNs: 5e9, BeforeNs: 3e9, AfterNs: 2e9}
	f := w.Freeze(captures, trigger)
	for i := 5; i < 7; i++ {
		writeRotation(t, w, i, 100)
	}
	w.DropOldRotations(20e9)
	writeRotation(t, w, 7, 100) // deletes the files of the dropped rotations, and is a part of the capture
	omitted := f.OmitBefore(2e9)
	err := finishCapture(t, f, trigger, FrozenRows{
		ClassFact: {trigger.Note()}, ClassCall: {{Kind: KindLaunch, StartNs: 6e9, Flags: FlagOpen}},
	})
	writeRotation(t, w, 8, 100) // after the capture
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	if len(omitted) != 2 || omitted[0].Rows["call"] != 100 {
		t.Errorf("omitted %+v", omitted)
	}
	path := filepath.Join(dir, "a.parquet")
	sealed, damaged, err := Seal(filepath.Join(dir, "a.sealing"), path, Owner{})
	if err != nil || len(damaged) > 0 || sealed.Kind != "oom" {
		t.Fatal(sealed, damaged, err)
	}
	rec, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	if rec.Meta.Complete != CompleteFrozen || !rec.Meta.HasEnd() || rec.Meta.Trigger.ID != "a" {
		t.Errorf("complete %s, trigger %+v", rec.Meta.Complete, rec.Meta.Trigger)
	}
	threads, calls := names(t, path)
	if len(threads) != 8 || calls != 6*100+1 {
		t.Errorf("%d threads %q, %d calls", len(threads), threads, calls)
	}
	list, err := ListCaptures(captures)
	if err != nil || len(list) != 2 || list[0].State != CaptureSuffix || list[1].Trigger.Kind != "oom" {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, c := range list {
		if err := RemoveCapture(captures, c); err != nil {
			t.Error(err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestCaptureOfKilledRecorder seals a capture whose recorder did not finish it.
func TestCaptureOfKilledRecorder(t *testing.T) {
	testclass.Unit(t)
	captures, dir := testCaptures(t)
	w := newRing(t, Limits{Ring: true, KeepNs: 100e9}, 3, 10)
	w.Freeze(captures, &Trigger{ID: "b", Kind: "xid", AtNs: 2e9, BeforeNs: 1e9, AfterNs: 10e9})
	writeRotation(t, w, 3, 10)
	if err := w.Close(); err != nil { // the folder of the ring stays, as after a kill
		t.Fatal(err)
	}
	path := filepath.Join(dir, "b.parquet")
	for range 2 { // a seal that is interrupted before the folder is removed is repeated
		sealed, _, err := Seal(filepath.Join(dir, "b.pending"), path, Owner{})
		if err != nil || !sealed.Cut {
			t.Fatal(sealed, err)
		}
	}
	threads, calls := names(t, path)
	if len(threads) != 4 || calls != 40 {
		t.Errorf("%d threads, %d calls", len(threads), calls)
	}
	rec, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	if rec.Meta.Complete != CompleteRecovered || rec.Meta.Trigger.Kind != "xid" {
		t.Errorf("complete %s, trigger %+v", rec.Meta.Complete, rec.Meta.Trigger)
	}
}

// TestFailedCaptureDoesNotEndTheRecording uses a folder of captures that has the name already.
func TestFailedCaptureDoesNotEndTheRecording(t *testing.T) {
	testclass.Unit(t)
	captures, dir := testCaptures(t)
	if err := os.Mkdir(filepath.Join(dir, "c.pending"), 0o700); err != nil {
		t.Fatal(err)
	}
	w := newRing(t, Limits{Ring: true, KeepNs: 100e9}, 2, 10)
	trigger := &Trigger{ID: "c", Kind: "exit"}
	f := w.Freeze(captures, trigger)
	writeRotation(t, w, 2, 10)
	if err := finishCapture(t, f, trigger, FrozenRows{ClassFact: {trigger.Note()}}); !errors.Is(err, os.ErrExist) {
		t.Errorf("error %v", err)
	}
	writeRotation(t, w, 3, 10)
	if err := w.Finish(Meta{EndNs: 4e9}); err != nil {
		t.Fatal(err)
	}
}

// TestCompactionDuringCapture joins facts while a capture is pending: the capture keeps rows that the ring leaves out.
func TestCompactionDuringCapture(t *testing.T) {
	testclass.Unit(t)
	captures, dir := testCaptures(t)
	w := newRing(t, Limits{Ring: true, KeepNs: 100e9}, 4, 10)
	trigger := &Trigger{ID: "d", Kind: "hang"}
	f := w.Freeze(captures, trigger)
	if err := w.Compact(Meta{EndNs: 5e9}, func(r *Row) bool { return r.Pid == 1 }); err != nil {
		t.Fatal(err)
	}
	writeRotation(t, w, 4, 10)
	if err := finishCapture(t, f, trigger, FrozenRows{ClassFact: {trigger.Note()}}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "d.parquet")
	if _, _, err := Seal(filepath.Join(dir, "d.sealing"), path, Owner{}); err != nil {
		t.Fatal(err)
	}
	threads, calls := names(t, path)
	slices.Sort(threads)
	if len(threads) != 5 || calls != 50 || threads[1] != "thread 1" {
		t.Errorf("threads %q, %d calls", threads, calls)
	}
	if err := w.Finish(Meta{EndNs: 6e9}); err != nil {
		t.Fatal(err)
	}
}
