package format

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// blockDisk blocks the disk goroutine of a writer until resume is called.
func blockDisk(w *Writer) (resume func()) {
	gate := make(chan struct{})
	w.disk.enqueue(0, func() { <-gate })
	return func() { close(gate) }
}

// TestWriterDoesNotWaitForTheDisk writes and rotates while the disk goroutine is blocked.
func TestWriterDoesNotWaitForTheDisk(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "r.parquet")
	w, err := Create(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	resume := blockDisk(w)
	for i := range 10 {
		if err := errors.Join(
			w.Write(ClassCall, testRows(ClassCall, 1000)),
			w.Write(ClassFact, noteRows()),
			w.Rotate(Meta{EndNs: int64(i)}),
		); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(w.Dir()); err != nil || len(entries) != 0 || w.FirstPendingRotation() != 0 {
		t.Errorf("%d files, %d rotations while the disk is blocked, %v", len(entries), w.FirstPendingRotation(), err)
	}
	resume()
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(w.Dir()); err != nil || len(entries) != 20 || w.FirstPendingRotation() != 10 {
		t.Errorf("%d files, %d rotations, %v", len(entries), w.FirstPendingRotation(), err)
	}
	if err := w.Finish(Meta{}); err != nil {
		t.Fatal(err)
	}
	if _, got := readAll(t, path); len(got[ClassCall]) != 10_000 {
		t.Errorf("%d calls", len(got[ClassCall]))
	}
}

func TestPendingBytesAreBounded(t *testing.T) {
	testclass.Unit(t)
	w, err := Create(filepath.Join(t.TempDir(), "r.parquet"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Abort() }()
	resume := blockDisk(w)
	file := w.disk.createFile("large")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2 * maxPendingWriteBytes / parquetPageBytes {
			_, _ = file.Write(make([]byte, parquetPageBytes))
		}
		file.queueFinish()
	}()
	for full := false; !full; {
		w.disk.mu.Lock()
		if full = w.disk.pending+parquetPageBytes > maxPendingWriteBytes; w.disk.pending > maxPendingWriteBytes {
			t.Errorf("%d bytes wait", w.disk.pending)
		}
		w.disk.mu.Unlock()
	}
	resume()
	<-done
	w.disk.waitForJobs()
	if info, err := os.Stat(filepath.Join(w.Dir(), "large")); err != nil || info.Size() != 2*maxPendingWriteBytes {
		t.Errorf("%v, %v", info, err)
	}
}

// TestDiskErrorLosesOnlyItsSegments checks that a disk error loses only the segments in the error, by
// rotation and class. All other segments remain.
func TestDiskErrorLosesOnlyItsSegments(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "r.parquet")
	w, err := Create(path, Options{Limits: Limits{Ring: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	full := errors.New("the disk is full")
	files := 0
	w.disk.chown = func(*os.File) error {
		if files++; files == 4 || files == 5 {
			return full
		}
		return nil
	}
	resume := blockDisk(w)
	for range 3 {
		if err := errors.Join(
			w.Write(ClassFact, noteRows()),
			w.Write(ClassCall, testRows(ClassCall, 100)),
			w.Rotate(Meta{}),
		); err != nil {
			t.Fatal(err)
		}
	}
	resume()
	w.disk.waitForJobs()
	var failed *SegmentError
	if err := w.Write(ClassCall, testRows(ClassCall, 7)); !errors.As(err, &failed) || !errors.Is(err, full) {
		t.Fatal(err)
	}
	if want := []LostSegment{{1, ClassCall}, {2, ClassFact}}; !slices.Equal(failed.Segments, want) {
		t.Errorf("lost are %v, want %v", failed.Segments, want)
	}
	if err := w.Finish(Meta{}); err != nil {
		t.Fatal(err)
	}
	if _, got := readAll(t, path); len(got[ClassCall]) != 207 || len(got[ClassFact]) != 2 {
		t.Errorf("%d calls, %d facts", len(got[ClassCall]), len(got[ClassFact]))
	}
}

// TestDroppedFilesStayUntilMetadataIsOnDisk checks that files of dropped rotations remain until
// metadata without their rows is on disk.
func TestDroppedFilesStayUntilMetadataIsOnDisk(t *testing.T) {
	testclass.Unit(t)
	w := newRing(t, Limits{Ring: true, KeepNs: 3e9}, 10, 100)
	if dropped := w.DropOldRotations(9_900_000_000); len(dropped) != 7 {
		t.Fatal(dropped)
	}
	w.disk.chown = func(*os.File) error { return errors.New("the disk is full") }
	err := errors.Join(w.Write(ClassFact, noteRows()), w.Rotate(Meta{}), w.Flush())
	if failed := (*SegmentError)(nil); !errors.As(err, &failed) {
		t.Fatal(err)
	}
	if _, calls := names(t, w.Dir()); calls != 1000 {
		t.Errorf("%d calls", calls)
	}
}

// TestRecoverCountsMissingRowsAsLost checks that the metadata on disk counts calls that no segment
// has: calls of segments that were never written, and 7 calls of class sync that were still in the
// ring buffer. Calls of class api have more losses than seen calls, because seen calls are counted
// first. Ten rows of kind progress are missing.
func TestRecoverCountsMissingRowsAsLost(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "r.parquet")
	w, err := Create(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := errors.Join(
		w.Write(ClassMemory, testRows(ClassMemory, 50)),
		w.Write(ClassCall, testRows(ClassCall, 100)),
		w.Rotate(Meta{}),
		w.Flush(),
	); err != nil {
		t.Fatal(err)
	}
	calls := map[string]CallCount{
		"memory": {Seen: 55, Recorded: 50, Lost: 5},
		"copy":   {Seen: 10, Recorded: 10},
		"launch": {Seen: 130, Recorded: 130, Open: 2},
		"sync":   {Seen: 9, Lost: 2},
		"api":    {Seen: 3, Lost: 4},
	}
	progress := &RowCount{Recorded: 30, Lost: 4, Dropped: 2}
	if err := errors.Join(
		w.WriteProgress(make([]ProgressRow, 20)),
		w.Write(ClassFact, noteRows()),
		w.Rotate(Meta{Calls: calls, Progress: progress}),
		w.Flush(),
	); err != nil {
		t.Fatal(err)
	}
	if _, err := Recover(w.Dir(), path, Options{}); err != nil {
		t.Fatal(err)
	}
	rec, _ := readAll(t, path)
	got := rec.Meta.Totals()
	if got.Recorded != 150 || got.Lost != 58 || got.Seen != 208 || rec.Meta.Calls["memory"] != calls["memory"] {
		t.Errorf("%+v", rec.Meta.Calls)
	}
	if got, want := *rec.Meta.Progress, (RowCount{Recorded: 20, Lost: 14, Dropped: 2}); got != want {
		t.Errorf("progress rows %+v, want %+v", got, want)
	}
}
