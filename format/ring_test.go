package format

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

func TestSegmentNames(t *testing.T) {
	testclass.Unit(t)
	for name, want := range map[string]segmentName{
		"000001-call.parquet":          {class: ClassCall, first: 1, last: 1},
		"1000000-fact.parquet":         {class: ClassFact, first: 1000000, last: 1000000},
		"000002-000040-stack.parquet":  {class: ClassStack, first: 2, last: 40},
		"1-call.parquet":               {},
		"000001-call.parquet.tmp":      {},
		"000001-call-other.parquet":    {},
		"x000001-call.parquet":         {},
		"000001-memory.parquet/../../": {},
		"notes-000001-fact.parquet":    {},
		"000001--000002-fact.parquet":  {},
	} {
		got, ok := parseSegmentName(name)
		if ok != (want != segmentName{}) || ok && got != want {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
	if !isSegmentFileName("000001-call.parquet.tmp") || isSegmentFileName("call.parquet") {
		t.Error("names of open segments")
	}
}

// newRing writes rotations with one fact, one stack, one sample and n calls each. Rotations are one
// second apart.
func newRing(t *testing.T, limits Limits, rotations, n int) *Writer {
	t.Helper()
	w, err := Create(filepath.Join(t.TempDir(), "r.parquet"), Options{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	for i := range rotations {
		writeRotation(t, w, i, n)
	}
	return w
}

func writeRotation(t *testing.T, w *Writer, i, n int) {
	t.Helper()
	at := int64(i) * 1e9
	rows := make([]Row, n)
	for k := range rows {
		rows[k] = Row{
			Kind:    KindLaunch,
			StartNs: at + int64(k),
			DurNs:   10,
			StackID: int32(i),
			Ptr:     int64(k) * 0x9e3779b97f4a7c1,
		}
	}
	for c, rows := range map[Class][]Row{
		ClassFact:  {{Kind: KindThread, Pid: int32(i % 2), Tid: int32(i), Name: fmt.Sprint("thread ", i)}},
		ClassStack: {{Kind: KindStack, StackID: int32(i)}},
		ClassCall:  rows, ClassSample: {{Kind: KindNVML, Name: "power_milliwatts", StartNs: at + 5e8}},
	} {
		if err := w.Write(c, rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Rotate(Meta{EndNs: at + 1e9}), w.Flush()); err != nil {
		t.Fatal(err)
	}
}

// names returns the thread names in a recording, in file order, and its number of calls.
func names(t *testing.T, path string) (threads []string, calls int) {
	t.Helper()
	rec, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	err = rec.Rows(func(r *Row) error {
		switch r.Kind {
		case KindThread:
			threads = append(threads, r.Name)
		case KindLaunch:
			calls++
		}
		return nil
	}, ClassFact, ClassCall)
	if err != nil {
		t.Fatal(err)
	}
	return threads, calls
}

func TestRingDropsTheOldestRotations(t *testing.T) {
	testclass.Unit(t)
	w := newRing(t, Limits{Ring: true, KeepNs: 3e9}, 10, 100)
	dropped := w.DropOldRotations(9_900_000_000) // rows that ended before 6.9 s: seven rotations
	if len(dropped) != 7 || dropped[0].Number != 0 || dropped[6].LastNs != 6_000_000_109 ||
		dropped[6].Rows["call"] != 100 ||
		dropped[6].Rows["sample"] != 1 {
		t.Fatalf("%+v", dropped)
	}
	if _, calls := names(t, w.Dir()); calls != 1000 {
		t.Errorf("%d calls: dropped before the metadata says so", calls)
	}
	if err := errors.Join(w.Rotate(Meta{EndNs: 1e10, StartNs: dropped[6].LastNs}), w.Flush()); err != nil {
		t.Fatal(err)
	}
	if _, calls := names(t, w.Dir()); calls != 1000 {
		t.Errorf("%d calls: dropped, and no segment was written whose metadata would say so", calls)
	}
	writeRotation(t, w, 10, 100)
	if threads, calls := names(t, w.Dir()); calls != 400 || len(threads) != 11 {
		t.Errorf("%d calls, facts of %v", calls, threads)
	}
	if err := w.Finish(Meta{EndNs: 1e10, StartNs: dropped[6].LastNs}); err != nil {
		t.Fatal(err)
	}
	if threads, calls := names(t, w.path); calls != 400 || len(threads) != 11 {
		t.Errorf("finished: %d calls, facts of %v", calls, threads)
	}
}

func TestRingStaysBelowMaxBytes(t *testing.T) {
	testclass.Unit(t)
	w := newRing(t, Limits{Ring: true, MaxBytes: 4 << 20}, 0, 0)
	for i := range 40 {
		w.DropOldRotations(0)
		writeRotation(t, w, i, 4000)
		if w.ShouldCompact() {
			if err := w.Compact(Meta{}, func(*Row) bool { return false }); err != nil {
				t.Fatal(err)
			}
		}
		if w.Bytes() > 4<<20/2 || w.Full() {
			t.Fatalf("rotation %d: %d bytes of %d, full: %v", i, w.Bytes(), w.segmentBudgetBytes(), w.Full())
		}
	}
	if len(w.rotations) < 3 || len(w.rotations) > 55 {
		t.Errorf("%d rotations remain", len(w.rotations))
	}
	if _, calls := names(t, w.Dir()); calls != 4000*len(w.rotations) {
		t.Errorf("%d calls in %d rotations", calls, len(w.rotations))
	}
}

// TestSegmentsAreJoinedWithoutARing checks that a recording that tracks rotations has few segments of facts and stacks,
// writes each row at most twice, and loses none.
func TestSegmentsAreJoinedWithoutARing(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "r.parquet")
	w, err := Create(path, Options{TracksRotations: true})
	if err != nil {
		t.Fatal(err)
	}
	const rotations = 10*segmentsBeforeCompaction + 7
	var want []string
	joins := 0
	for i := range rotations {
		writeRotation(t, w, i, 1)
		want = append(want, fmt.Sprint("thread ", i))
		if w.ShouldCompact() {
			joins++
			if err := errors.Join(w.Compact(Meta{}, func(*Row) bool { return false }), w.Flush()); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []Class{ClassFact, ClassStack} {
			if n := len(w.retained[c]); n > rotations/segmentsBeforeCompaction+segmentsBeforeCompaction {
				t.Fatalf("rotation %d: %d segments of class %s", i, n, c)
			}
		}
	}
	if joins != rotations/segmentsBeforeCompaction {
		t.Errorf("%d joins of %d rotations", joins, rotations)
	}
	check := func(path string) {
		t.Helper()
		if threads, calls := names(t, path); !slices.Equal(threads, want) || calls != rotations {
			t.Errorf("%d calls, %d threads, want %d", calls, len(threads), rotations)
		}
	}
	check(w.Dir())
	if err := w.Finish(Meta{}); err != nil {
		t.Fatal(err)
	}
	check(path)
}

func TestFullWithoutARing(t *testing.T) {
	testclass.Unit(t)
	w := newRing(t, Limits{MaxBytes: 4 << 20}, 0, 0)
	i := 0
	for ; !w.Full(); i++ {
		if w.DropOldRotations(1e18) != nil || i > 1000 {
			t.Fatal("not a ring, and never full")
		}
		writeRotation(t, w, i, 4000)
	}
	if err := w.Finish(Meta{}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(w.path)
	if err != nil || info.Size()*2 > 4<<20 || info.Size()*5 < 4<<20 {
		t.Errorf("a file of %d bytes, %v", info.Size(), err)
	}
}

// TestCrashBetweenJoinAndDelete lets Compact write a joined segment. Then the recorder crashes before
// it deletes the segments that the joined one replaces.
func TestCrashBetweenJoinAndDelete(t *testing.T) {
	testclass.Unit(t)
	w := newRing(t, Limits{Ring: true}, segmentsBeforeCompaction, 1)
	if !w.ShouldCompact() {
		t.Fatal("ShouldCompact is false")
	}
	old := make(map[string][]byte)
	for _, k := range w.retained[ClassFact] {
		data, err := os.ReadFile(k.path)
		if err != nil {
			t.Fatal(err)
		}
		old[k.path] = data
	}
	before := w.Bytes()
	forget := func(r *Row) bool { return r.Kind == KindThread && r.Pid == 1 }
	if err := errors.Join(w.Compact(Meta{EndNs: 1e12}, forget), w.Flush()); err != nil {
		t.Fatal(err)
	}
	if len(w.retained[ClassFact]) != 1 || w.Bytes() >= before || w.ShouldCompact() {
		t.Errorf("%d segments of facts, %d bytes of %d", len(w.retained[ClassFact]), w.Bytes(), before)
	}
	writeRotation(t, w, 1000, 1)
	want := []string{}
	for i := 0; i < segmentsBeforeCompaction; i += 2 {
		want = append(want, fmt.Sprint("thread ", i))
	}
	want = append(want, "thread 1000")
	check := func(path string) {
		t.Helper()
		if threads, calls := names(t, path); !slices.Equal(threads, want) || calls != segmentsBeforeCompaction+1 {
			t.Errorf("%d calls, threads %v, want %v", calls, threads, want)
		}
	}
	check(w.Dir())
	for path, data := range old {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check(w.Dir())
	saved := filepath.Join(t.TempDir(), "saved.parquet")
	if damaged, err := Recover(w.Dir(), saved, Options{}); err != nil || damaged != nil {
		t.Fatal(damaged, err)
	}
	check(saved)
	if _, err := os.Stat(w.Dir()); !os.IsNotExist(err) {
		t.Error("the folder was not removed")
	}
}
