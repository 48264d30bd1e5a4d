package format

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestSegmentNames(t *testing.T) {
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
	if !isSegmentName("000001-call.parquet.tmp") || isSegmentName("call.parquet") {
		t.Error("names of open segments")
	}
}

// ringOf writes turns of one fact, one stack and n calls each, a second apart.
func ringOf(t *testing.T, limits Limits, turns, n int) *Writer {
	t.Helper()
	w, err := Create(filepath.Join(t.TempDir(), "r.parquet"), Options{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	for i := range turns {
		writeTurn(t, w, i, n)
	}
	return w
}

func writeTurn(t *testing.T, w *Writer, i, n int) {
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

// names returns the threads that a recording names, in order, and its number of calls.
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

func TestRingDropsTheOldestTurns(t *testing.T) {
	w := ringOf(t, Limits{Ring: true, KeepNs: 3e9}, 10, 100)
	dropped := w.Drop(9_900_000_000) // what ended before 6.9 s goes: seven turns
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
	writeTurn(t, w, 10, 100)
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

func TestRingKeepsToItsSize(t *testing.T) {
	w := ringOf(t, Limits{Ring: true, MaxBytes: 4 << 20}, 0, 0)
	for i := range 40 {
		w.Drop(0)
		writeTurn(t, w, i, 4000)
		if w.ShouldCompact() {
			if err := w.Compact(Meta{}, func(*Row) bool { return false }); err != nil {
				t.Fatal(err)
			}
		}
		if w.Bytes() > 4<<20/2 || w.Full() {
			t.Fatalf("turn %d: %d bytes of %d, full: %v", i, w.Bytes(), w.budget(), w.Full())
		}
	}
	if len(w.turns) < 3 || len(w.turns) > 55 {
		t.Errorf("%d turns are kept", len(w.turns))
	}
	if _, calls := names(t, w.Dir()); calls != 4000*len(w.turns) {
		t.Errorf("%d calls in %d turns", calls, len(w.turns))
	}
}

func TestFullWithoutARing(t *testing.T) {
	w := ringOf(t, Limits{MaxBytes: 4 << 20}, 0, 0)
	i := 0
	for ; !w.Full(); i++ {
		if w.Drop(1e18) != nil || i > 1000 {
			t.Fatal("not a ring, and never full")
		}
		writeTurn(t, w, i, 4000)
	}
	if err := w.Finish(Meta{}); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(w.path)
	if err != nil || info.Size()*2 > 4<<20 || info.Size()*5 < 4<<20 {
		t.Errorf("a file of %d bytes, %v", info.Size(), err)
	}
}

// TestJoinedSegmentsSurviveACrash kills, so to say, the recorder between writing a joined
// segment and deleting those that it replaces.
func TestJoinedSegmentsSurviveACrash(t *testing.T) {
	w := ringOf(t, Limits{Ring: true}, maxKeptSegments, 1)
	if !w.ShouldCompact() {
		t.Fatal("nothing is to be joined")
	}
	old := make(map[string][]byte)
	for _, k := range w.kept[ClassFact] {
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
	if len(w.kept[ClassFact]) != 1 || w.Bytes() >= before || w.ShouldCompact() {
		t.Errorf("%d segments of facts, %d bytes of %d", len(w.kept[ClassFact]), w.Bytes(), before)
	}
	writeTurn(t, w, 1000, 1)
	want := []string{}
	for i := 0; i < maxKeptSegments; i += 2 {
		want = append(want, fmt.Sprint("thread ", i))
	}
	want = append(want, "thread 1000")
	check := func(path string) {
		t.Helper()
		if threads, calls := names(t, path); !slices.Equal(threads, want) || calls != maxKeptSegments+1 {
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
