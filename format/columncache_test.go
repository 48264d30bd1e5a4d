package format

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

func TestCachedColumnsEqualColumns(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "r.parquet")
	w, err := Create(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for c, n := range map[Class]int{ClassMemory: 2000, ClassCall: 500, ClassSample: 3000} {
		if err := w.Write(c, testRows(c, n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(Meta{}); err != nil {
		t.Fatal(err)
	}
	rec, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	if len(rec.Groups()) < 3 {
		t.Fatalf("%d row groups", len(rec.Groups()))
	}
	var shared ColumnCache
	own := []int64{7, 7, 7} // memory of the caller, which cached reads must not change
	for _, g := range rec.Groups() {
		s := shared.Wrap(g)
		first, again := s.Int64("start_ns", own), s.Int64("start_ns", nil)
		if !slices.Equal(first, g.Int64("start_ns", nil)) || &first[0] != &again[0] {
			t.Error("start_ns differs, or was decoded twice")
		}
		if got := s.Int64(
			"ptr",
			first,
		); !slices.Equal(got, g.Int64("ptr", nil)) ||
			!slices.Equal(first, g.Int64("start_ns", nil)) {
			t.Error("ptr differs, or was read over another column")
		}
		if !slices.Equal(s.Int32("device", nil), g.Int32("device", nil)) ||
			!slices.Equal(s.Float64("value", nil), g.Float64("value", nil)) ||
			!slices.Equal(s.Int32("not_a_column", nil), make([]int32, g.NumRows())) {
			t.Error("device, value or what is no column differs")
		}
		name, want := s.Strings("name"), g.Strings("name")
		if s.StringsInto(
			"name",
			Strings{},
		); !slices.Equal(name.Index, want.Index) ||
			!slices.Equal(name.Dict, want.Dict) {
			t.Error("name differs")
		}
		if s.NumRows() != g.NumRows() || s.Class() != g.Class() || s.Err() != nil || g.Err() != nil {
			t.Errorf("%d rows of %s, %v", s.NumRows(), s.Class(), s.Err())
		}
	}
	if !slices.Equal(own, []int64{7, 7, 7}) {
		t.Error("memory of a reader was used")
	}
}
