package format

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	pq "github.com/parquet-go/parquet-go/format"
)

// randomRows returns rows as calls have them: columns without frames, each of them all equal, in
// runs, from a few values, or all different.
func randomRows(rng *rand.Rand, n int) []Row {
	rows := make([]Row, n)
	fields := reflect.TypeFor[Row]()
	for f := range fields.NumField() {
		if fields.Field(f).Name == "Frames" {
			continue
		}
		distinct := [...]int{1, 2, 40, n}[rng.IntN(4)]
		run := 1 + rng.IntN(20)
		first := rng.IntN(2) // else all are 0 for a while
		var v reflect.Value
		for i := range rows {
			if i%run == 0 {
				v = randomValue(rng, fields.Field(f).Type.Kind(), distinct)
			}
			if first == 0 && i < n/2 {
				continue
			}
			reflect.ValueOf(&rows[i]).Elem().Field(f).Set(v)
		}
	}
	return rows
}

func randomValue(rng *rand.Rand, kind reflect.Kind, distinct int) reflect.Value {
	k := rng.IntN(distinct)
	switch kind {
	case reflect.String:
		return reflect.ValueOf(strings.Clone([...]string{"", "a", "kernel<int>", strings.Repeat("long ", 30)}[k%4] + fmt.Sprint(k / 4)[:k/4%3&1]))
	case reflect.Int32:
		return reflect.ValueOf(int32(uint32(k) * 0x9e3779b9))
	case reflect.Float64:
		return reflect.ValueOf([...]float64{0, -1.5, math.NaN(), math.Inf(1), math.Copysign(0, -1)}[k%5] * float64(1+k/5))
	}
	return reflect.ValueOf(int64(uint64(k) * 0x9e3779b97f4a7c15))
}

// byLibrary and byColumns write rows to a Parquet file in memory.
func byLibrary(t *testing.T, rows []Row) *parquet.File {
	var file bytes.Buffer
	w := parquet.NewGenericWriter[Row](&file, writerOptions()...)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	return closed(t, libraryWriter{w}, &file)
}

func byColumns(t *testing.T, w *columnWriter, rows []Row) *parquet.File {
	var file bytes.Buffer
	w.reset(&file)
	for len(rows) > 0 {
		n := min(len(rows), 1000)
		if err := w.writeRows(rows[:n]); err != nil {
			t.Fatal(err)
		}
		rows = rows[n:]
	}
	return closed(t, w, &file)
}

func closed(t *testing.T, w rowWriter, file *bytes.Buffer) *parquet.File {
	t.Helper()
	w.SetKeyValueMetadata("key", "value")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	pf, err := parquet.OpenFile(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return pf
}

func allRows(t *testing.T, pf *parquet.File) []Row {
	t.Helper()
	r := parquet.NewGenericReader[Row](pf)
	defer r.Close()
	rows := make([]Row, pf.NumRows())
	if n, err := r.Read(rows); n != len(rows) || err != nil && err != io.EOF {
		t.Fatalf("%d rows of %d: %v", n, len(rows), err)
	}
	return rows
}

// same compares rows without frames, floating point numbers by their bits.
func same(a, b []Row) bool {
	return slices.EqualFunc(a, b, func(x, y Row) bool {
		if len(x.Frames)+len(y.Frames) > 0 || math.Float64bits(x.Value) != math.Float64bits(y.Value) {
			return false
		}
		x.Frames, y.Frames, x.Value, y.Value = nil, nil, 0, 0
		return reflect.DeepEqual(&x, &y)
	})
}

func TestColumnsAreWrittenAsTheLibraryDoes(t *testing.T) {
	w, err := newColumnWriter()
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 0))
		rows := randomRows(rng, 1+rng.IntN(3000))
		want, got := byLibrary(t, rows), byColumns(t, w, rows) // one writer for all
		if !same(allRows(t, got), rows) {
			t.Fatalf("seed %d: rows differ", seed)
		}
		a, b := want.Metadata(), got.Metadata()
		if !reflect.DeepEqual(a.Schema, b.Schema) || !reflect.DeepEqual(a.ColumnOrders, b.ColumnOrders) ||
			!reflect.DeepEqual(a.KeyValueMetadata, b.KeyValueMetadata) || a.CreatedBy != b.CreatedBy || a.Version != b.Version || a.NumRows != b.NumRows {
			t.Fatalf("seed %d: footers differ", seed)
		}
		for i := range a.RowGroups[0].Columns {
			c, d := &a.RowGroups[0].Columns[i].MetaData, &b.RowGroups[0].Columns[i].MetaData
			compareChunks(t, c, d)
			if n := textBytes(rows, c.PathInSchema); d.SizeStatistics.UnencodedByteArrayDataBytes != n { // the library leaves it out where there is a dictionary
				t.Errorf("seed %d, column %v: %d bytes of text, want %d", seed, c.PathInSchema, d.SizeStatistics.UnencodedByteArrayDataBytes, n)
			}
			if hasNaN(rows, c.PathInSchema) {
				continue // the library counts it among the values, against the specification
			}
			if !reflect.DeepEqual(c.Statistics, d.Statistics) {
				t.Errorf("seed %d, column %v: statistics %v, want %v", seed, c.PathInSchema, d.Statistics, c.Statistics)
			}
			if e, f := want.ColumnIndexes()[i], got.ColumnIndexes()[i]; len(e.NullPages) == 1 && !reflect.DeepEqual(e, f) {
				t.Errorf("seed %d, column %v: index %v, want %v", seed, c.PathInSchema, f, e)
			}
		}
		if t.Failed() {
			return
		}
	}
}

func hasNaN(rows []Row, path []string) bool {
	if path[0] != "value" {
		return false
	}
	for i := range rows {
		if rows[i].Value != rows[i].Value {
			return true
		}
	}
	return false
}

// textBytes is how long the texts of a column are together.
func textBytes(rows []Row, path []string) (n int64) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Row]()) {
		if parquetName(f) == path[0] && f.Type.Kind() == reflect.String {
			for i := range rows {
				n += int64(reflect.ValueOf(&rows[i]).Elem().FieldByIndex(f.Index).Len())
			}
		}
	}
	return n
}

func compareChunks(t *testing.T, want, got *pq.ColumnMetaData) {
	t.Helper()
	stats := func(m *pq.ColumnMetaData) (encodings []string) {
		for _, s := range m.EncodingStats {
			encodings = append(encodings, fmt.Sprint(s.PageType, s.Encoding))
		}
		return encodings
	}
	if want.Type != got.Type || want.Codec != got.Codec || want.NumValues != got.NumValues || !reflect.DeepEqual(want.PathInSchema, got.PathInSchema) ||
		!reflect.DeepEqual(want.Encoding, got.Encoding) || !reflect.DeepEqual(stats(want), stats(got)) || !reflect.DeepEqual(want.SizeStatistics.DefinitionLevelHistogram, got.SizeStatistics.DefinitionLevelHistogram) {
		t.Errorf("column %+v, want %+v", got, want)
	}
	if want.DictionaryPageOffset != 0 != (got.DictionaryPageOffset != 0) {
		t.Errorf("column %v: dictionary at %d, want %d", got.PathInSchema, got.DictionaryPageOffset, want.DictionaryPageOffset)
	}
}

func TestColumnsEndRowGroups(t *testing.T) {
	w, err := newColumnWriter()
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	full := randomRows(rng, maxGroupRows+5000)
	if got := byColumns(t, w, full); len(got.RowGroups()) != 2 || got.RowGroups()[0].NumRows() != maxGroupRows || !same(allRows(t, got), full) {
		t.Errorf("%d row groups, or rows differ", len(got.RowGroups()))
	}
	texts := make([]Row, 5000) // long names, all different: 20 MB
	for i := range texts {
		texts[i].Kernel = fmt.Sprint(i, strings.Repeat("x", 4000))
	}
	if got := byColumns(t, w, texts); len(got.RowGroups()) != 3 || !same(allRows(t, got), texts) {
		t.Errorf("%d row groups of texts, want 3, or rows differ", len(got.RowGroups()))
	}
	if got := byColumns(t, w, nil); got.NumRows() != 0 {
		t.Errorf("%d rows of none", got.NumRows())
	}
	if err := w.writeRows([]Row{{Frames: make([]Frame, 1)}}); err == nil {
		t.Error("a row with frames was taken")
	}
}

// TestMergeCopiesColumns looks whether the merged file has the pages of its segments, byte for byte.
func TestMergeCopiesColumns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.parquet")
	w, err := Create(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	rows := randomRows(rand.New(rand.NewPCG(3, 4)), 20_000)
	for i := range rows {
		rows[i].Kind = KindLaunch
	}
	if err := w.Write(ClassCall, rows); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Rotate(Meta{}), w.Flush()); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(w.Dir(), "*-call.parquet"))
	if err != nil || len(segments) != 1 {
		t.Fatal(segments, err)
	}
	segment := chunkBytes(t, segments[0])
	if err := w.Finish(Meta{}); err != nil {
		t.Fatal(err)
	}
	if merged := chunkBytes(t, path); !reflect.DeepEqual(segment, merged) {
		t.Error("the merged file has other pages than its segment")
	}
}

// chunkBytes returns the bytes of each column of the first row group.
func chunkBytes(t *testing.T, path string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pf, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var chunks [][]byte
	for _, c := range pf.Metadata().RowGroups[0].Columns {
		begin := c.MetaData.DataPageOffset
		if c.MetaData.DictionaryPageOffset != 0 {
			begin = c.MetaData.DictionaryPageOffset
		}
		chunks = append(chunks, data[begin:][:c.MetaData.TotalCompressedSize])
	}
	return chunks
}
