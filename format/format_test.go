package format

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/gpurec/gpurec/internal/testclass"
)

// testRows returns n different rows of a class, with negative and extreme values.
func testRows(c Class, n int) []Row {
	kinds := map[Class][]string{
		ClassFact: {KindProcess, KindModule, KindLost}, ClassStack: {KindStack}, ClassSample: {KindNVML},
		ClassMemory:     {KindAlloc, KindFree},
		ClassCall:       {KindLaunch, KindMemcpy, KindSync, KindAPI},
		ClassAllocator:  {KindAllocator},
		ClassHost:       {KindWait, KindCPUSample, KindThreadState, KindGC, KindHost},
		ClassCollective: {KindCollective, KindCommunicatorCall},
		ClassArguments:  {KindKernelArgs},
		ClassBlock:      {KindBlock},
	}[c]
	rows := make([]Row, n)
	if c == ClassProgress {
		for i := range rows { // one channel: rows of several channels change their order
			rows[i] = progressAsRow(&ProgressRow{
				SeenNs: 1_790_000_000_000_000_000 + int64(i)*1000, Pid: 42, Channel: 7,
				Counter: int64(i) * 3, GPUTimeNs: 1_789_999_999_999_000_000 + int64(i)*992,
			})
		}
		return rows
	}
	for i := range rows {
		rows[i] = Row{
			Kind:    kinds[i%len(kinds)],
			StartNs: 1_790_000_000_000_000_000 + int64(i)*1000,
			DurNs:   int64(i % 7),
			Name:    fmt.Sprint("call", i%5),
			Pid:     42,
			Tid:     int32(42 + i%3),
			CPU:     int32(i % 2),
			Device:  int32(i%3) - 1,
			Context: 0x55aa,
			Stream:  int64(i % 2),
			ParentStartNs: int64(
				i % 2,
			),
			Result: int32(i % 3),
			Flags:  int32(i % 4),
			Ptr:    0x7f0000000000 + int64(i)*512,
			Bytes:  int64(i) * 3,
			GridX: int32(
				i,
			),
			AllocatedBytes: int64(i) - 1,
			ReservedBytes:  int64(i % 2),
			StackID:        int32(i % 11),
			Site:           fmt.Sprint("f", i%11),
			Value:          float64(i) / 3,
			Message:        fmt.Sprint("m", i),
		}
		if c == ClassStack {
			rows[i].Stack = "main;f;g"
			rows[i].Frames = []Frame{
				{Func: "g", Addr: int64(i), Type: "native"},
				{Func: "f", File: "a b.py", Line: 3, Type: "python"},
			}
		}
	}
	return rows
}

// noteRows returns one note.
func noteRows() []Row { return []Row{{Kind: KindNote, Name: "n", Device: -1}} }

func record(t *testing.T, path string, segments int, perSegment int) (*Writer, map[Class][]Row) {
	t.Helper()
	w, err := Create(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[Class][]Row)
	for s := range segments {
		for c := range numRowClasses {
			rows := testRows(c, perSegment)
			for i := range rows {
				if c == ClassProgress {
					rows[i].Counter += int64(s) << 32
				} else {
					rows[i].Bytes += int64(s) << 32
				}
			}
			if err := w.Write(c, rows); err != nil {
				t.Fatal(err)
			}
			all[c] = append(all[c], rows...)
		}
		if err := errors.Join(w.Rotate(Meta{StartNs: 1, EndNs: int64(s)}), w.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	return w, all
}

func readAll(t *testing.T, path string) (*Recording, map[Class][]Row) {
	t.Helper()
	rec, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rec.Close() })
	got := make(map[Class][]Row)
	for c := range numRowClasses {
		if err := rec.Rows(func(r *Row) error { got[c] = append(got[c], *r); return nil }, c); err != nil {
			t.Fatal(err)
		}
	}
	return rec, got
}

func TestRowsAreReadAsWritten(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "r.parquet")
	w, want := record(t, path, 3, 1000)
	for _, p := range []string{path + SegmentSuffix, path} { // the folder, then the file
		if p == path {
			if err := w.Finish(Meta{Host: "h", EndNs: 9}); err != nil {
				t.Fatal(err)
			}
		}
		rec, got := readAll(t, p)
		for c := range numRowClasses {
			if !reflect.DeepEqual(got[c], want[c]) {
				t.Errorf("%s: rows of class %s differ: got %d, want %d", p, c, len(got[c]), len(want[c]))
			}
		}
		if rec.NumRows() != int64(len(want)*3000) {
			t.Errorf("%s: %d rows", p, rec.NumRows())
		}
	}
	if _, err := os.Stat(path + SegmentSuffix); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the segment folder is still there")
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestMergedCallsKeepTheirRowGroupsAndFactsAreJoined(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "r.parquet")
	w, _ := record(t, path, 4, 100)
	if err := w.Finish(Meta{}); err != nil {
		t.Fatal(err)
	}
	rec, _ := readAll(t, path)
	var classes []string
	for _, g := range rec.Groups() {
		classes = append(classes, g.Class().String())
	}
	want := "fact stack sample memory memory memory memory call call call call allocator allocator allocator allocator " +
		"progress progress progress progress " +
		"host host host host collective collective collective collective arguments arguments arguments arguments " +
		"block block block block"
	if got := strings.Join(classes, " "); got != want {
		t.Errorf("row groups %s, want %s", got, want)
	}
	if rec.Meta.Complete != CompleteYes {
		t.Errorf("complete = %q", rec.Meta.Complete)
	}
}

func TestColumnsEqualRows(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "r.parquet")
	// More distinct pointers than a dictionary page holds, so that plain pages occur too.
	w, err := Create(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[Class][]Row{ClassMemory: testRows(ClassMemory, 300_000), ClassSample: testRows(ClassSample, 1000)}
	for c, rows := range want {
		if err := w.Write(c, rows); err != nil {
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
	at := make(map[Class]int)
	var device []int32
	var value []float64
	var name Strings // used again for every group
	for _, g := range rec.Groups() {
		if _, ok := want[g.Class()]; !ok {
			t.Fatalf("class %s", g.Class())
		}
		start, ptr, message := g.Int64("start_ns", nil), g.Int64("ptr", nil), g.Strings("message")
		device, name = g.Int32("device", device), g.StringsInto("name", name)
		value = g.Float64("value", value)
		absent, none := g.Int64("not_a_column", nil), g.Float64("not_a_column", value[:0:0])
		if g.Err() != nil {
			t.Fatal(g.Err())
		}
		for i := range g.NumRows() {
			r := want[g.Class()][at[g.Class()]]
			if start[i] != r.StartNs || ptr[i] != r.Ptr || device[i] != r.Device || name.At(i) != r.Name ||
				message.At(i) != r.Message ||
				value[i] != r.Value ||
				absent[i] != 0 ||
				none[i] != 0 {
				t.Fatalf("%s row %d differs", g.Class(), i)
			}
			at[g.Class()]++
		}
	}
}

func TestOpenErrors(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	good := filepath.Join(dir, "good.parquet")
	w, _ := record(t, good, 1, 10)
	if err := w.Finish(Meta{}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.ReplaceAll(data, fmt.Appendf(nil, "%d.%d", SchemaMajor, SchemaMinor), []byte("7.2"))
	foreign := bytes.ReplaceAll(data, []byte("gpurec.schema"), []byte("someother.key"))
	empty := filepath.Join(dir, "empty.parquet.d")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	var version *VersionError
	for name, c := range map[string]struct {
		data []byte
		is   func(error) bool
	}{
		"empty":     {nil, func(err error) bool { return errors.Is(err, ErrEmpty) }},
		"text":      {[]byte("hello, this is text"), func(err error) bool { return errors.Is(err, ErrNotParquet) }},
		"truncated": {data[:len(data)/2], func(err error) bool { return errors.Is(err, ErrTruncated) }},
		"magic":     {[]byte("PAR1"), func(err error) bool { return errors.Is(err, ErrTruncated) }},
		"newer":     {newer, func(err error) bool { return errors.As(err, &version) && version.Got == 7 }},
		"foreign":   {foreign, func(err error) bool { return errors.Is(err, ErrNotRecording) }},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !c.is(err) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(empty); !errors.Is(err, ErrNoSegments) {
		t.Errorf("folder without segments: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}

func TestRecoverLeavesOutDamagedSegmentsAndKeepsTheFolder(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "r.parquet")
	w, _ := record(t, path, 3, 100)
	// The recorder died here: an open segment is left behind, and one got damaged.
	if err := w.Write(ClassCall, testRows(ClassCall, 5)); err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(w.Dir(), "000005-call.parquet")
	if err := os.Truncate(victim, 100); err != nil {
		t.Fatal(err)
	}
	damaged, err := Recover(w.Dir(), path, Options{})
	if err != nil || len(damaged) != 1 || !strings.Contains(damaged[0].Error(), "000005-call") {
		t.Fatalf("damaged %v, err %v", damaged, err)
	}
	rec, got := readAll(t, path)
	if len(got[ClassCall]) != 200 || len(got[ClassMemory]) != 300 || rec.Meta.Complete != CompleteRecovered {
		t.Errorf("calls %d, memory %d, complete %s", len(got[ClassCall]), len(got[ClassMemory]), rec.Meta.Complete)
	}
	if _, err := os.Stat(w.Dir()); err != nil {
		t.Error("the folder with the damaged segment is gone")
	}
	if _, err := Recover(w.Dir(), path, Options{}); !errors.Is(err, ErrExists) {
		t.Errorf("second recover: %v", err)
	}
	if err := os.Remove(victim); err != nil {
		t.Fatal(err)
	}
	if _, err := Recover(w.Dir(), path, Options{Force: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(w.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the folder is still there")
	}
}

func TestNothingIsOverwrittenWithoutForce(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "r.parquet")
	w, _ := record(t, path, 1, 10)
	if _, err := Create(path, Options{}); !errors.Is(err, ErrExists) {
		t.Errorf("unfinished recording there: %v", err)
	}
	if err := w.Finish(Meta{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path, Options{}); !errors.Is(err, ErrExists) {
		t.Errorf("recording there: %v", err)
	}
	forced, err := Create(path, Options{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error("the old recording must stay until the new one is finished")
	}
	if err := forced.Abort(); err != nil {
		t.Fatal(err)
	}
}

func TestEmptyRecording(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "r.parquet")
	w, err := Create(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(Meta{Host: "h"}); err != nil {
		t.Fatal(err)
	}
	if rec, got := readAll(t, path); rec.Meta.Host != "h" || len(got[ClassFact]) != 1 || len(got) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestTextHasEveryRowAndNoEscapes(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "r.parquet")
	w, want := record(t, path, 1, 20)
	evil := "\x1b[2J\u009b2J\u202e\r"
	hostile := []Row{
		{Kind: KindProcess, Name: "evil\x1b[2J\nname"},
		{Kind: evil, Name: evil, Message: evil},
		{Kind: KindStack, Frames: []Frame{{Type: evil, Func: evil, File: evil, Module: evil, BuildID: evil}}},
	}
	if err := w.Write(ClassFact, hostile); err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(Meta{Host: evil, Command: []string{evil}}); err != nil {
		t.Fatal(err)
	}
	rec, _ := readAll(t, path)
	var b bytes.Buffer
	if err := rec.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for c, rows := range want {
		for _, r := range rows {
			if !strings.Contains(text, fmt.Sprintf("%s start_ns=%d", r.Kind, r.StartNs)) {
				t.Errorf("%s row is missing", c)
			}
		}
	}
	if strings.ContainsFunc(text, func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }) ||
		!strings.Contains(text, `process name="evil\x1b[2J\nname"`) {
		t.Error("an escape sequence reaches the terminal")
	}
}

// TestOlderVersionIsRead checks that testdata/v1.0.parquet is a recording of schema 1.0, without the
// columns and kinds of later versions.
func TestOlderVersionIsRead(t *testing.T) {
	testclass.Unit(t)
	rec, rows := readAll(t, filepath.Join("testdata", "v1.0.parquet"))
	if len(rows[ClassMemory]) != 2 || rows[ClassMemory][0].Bytes != 512 || rows[ClassMemory][1].Ptr != 0x1000 {
		t.Errorf("memory calls %+v", rows[ClassMemory])
	}
	if len(rows[ClassStack]) != 1 || len(rows[ClassStack][0].Frames) != 2 ||
		rows[ClassStack][0].Frames[1].Func != "main" {
		t.Errorf("stacks %+v", rows[ClassStack])
	}
	for _, g := range rec.Groups() {
		if got := g.Int64("allocated_bytes", nil); len(got) != g.NumRows() || got[0] != 0 || g.Err() != nil {
			t.Errorf("a column that was not there: %v, %v", got, g.Err())
		}
	}
}

// TestOlderSegmentsAreRecovered checks that Recover finishes segments of an older version.
func TestOlderSegmentsAreRecovered(t *testing.T) {
	testclass.Unit(t)
	dir := filepath.Join(t.TempDir(), "r.parquet.d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(filepath.Join("testdata", "v1.0.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "000000-call.parquet"), old, 0o600); err != nil {
		t.Fatal(err)
	}
	path := strings.TrimSuffix(dir, ".d")
	if damaged, err := Recover(dir, path, Options{}); err != nil || len(damaged) > 0 {
		t.Fatal(damaged, err)
	}
	_, want := readAll(t, filepath.Join("testdata", "v1.0.parquet"))
	for class, rows := range want {
		for i := range rows {
			rows[i].Class = class.String() // a new column
		}
	}
	if _, got := readAll(t, path); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
