package columnwriter_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/columnwriter"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/parquet-go/parquet-go"
	pq "github.com/parquet-go/parquet-go/format"
)

// row has one field for every column encoding that a Writer supports.
type row struct {
	Name   string  `parquet:"name,dict"`
	Label  string  `parquet:"label"`
	CPU    int32   `parquet:"cpu,dict"`
	Bytes  int64   `parquet:"bytes,dict"`
	Share  float64 `parquet:"share,dict"`
	TimeNs int64   `parquet:"time_ns,delta"`
	Parts  []part  `parquet:"parts"`
}

type part struct {
	File string `parquet:"file"`
	Line int32  `parquet:"line"`
}

const maxGroupRows = 10_000

func options() []parquet.WriterOption {
	return []parquet.WriterOption{
		parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(maxGroupRows),
		parquet.CreatedBy("test", "1.0", ""),
	}
}

func newWriter[R any](t testing.TB) *columnwriter.Writer[R] {
	t.Helper()
	w, err := columnwriter.New[R](options()...)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// randomRows returns rows with empty lists. Each other column has equal values, runs of equal
// values, a few distinct values, or distinct values only.
func randomRows[R any](rng *rand.Rand, n int) []R {
	rows := make([]R, n)
	fields := reflect.TypeFor[R]()
	for f := range fields.NumField() {
		if fields.Field(f).Type.Kind() == reflect.Slice {
			continue
		}
		distinct := [...]int{1, 2, 40, n}[rng.IntN(4)]
		run := 1 + rng.IntN(20)
		startsWithZeros := rng.IntN(2) == 0
		var v reflect.Value
		for i := range rows {
			if i%run == 0 {
				v = randomValue(rng, fields.Field(f).Type.Kind(), distinct)
			}
			if startsWithZeros && i < n/2 {
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
		text := [...]string{"", "a", "kernel<int>", strings.Repeat("long ", 30)}[k%4]
		return reflect.ValueOf(strings.Clone(text + fmt.Sprint(k / 4)[:k/4%3&1]))
	case reflect.Int32:
		return reflect.ValueOf(int32(uint32(k) * 0x9e3779b9))
	case reflect.Float64:
		special := [...]float64{0, -1.5, math.NaN(), math.Inf(1), math.Copysign(0, -1)}
		return reflect.ValueOf(special[k%5] * float64(1+k/5))
	}
	return reflect.ValueOf(int64(uint64(k) * 0x9e3779b97f4a7c15))
}

// writeWithLibrary writes rows to a file in memory with parquet-go.
func writeWithLibrary[R any](t *testing.T, rows []R) *parquet.File {
	t.Helper()
	var file bytes.Buffer
	w := parquet.NewGenericWriter[R](&file, options()...)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	w.SetKeyValueMetadata("key", "value")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return openFile(t, &file)
}

// write writes rows with w in batches of 1,000.
func write[R any](t *testing.T, w *columnwriter.Writer[R], rows []R) *parquet.File {
	t.Helper()
	var file bytes.Buffer
	w.Reset(&file)
	for part := range slices.Chunk(rows, 1000) {
		if n, err := w.Write(part); n != len(part) || err != nil {
			t.Fatalf("wrote %d rows of %d: %v", n, len(part), err)
		}
	}
	w.SetKeyValueMetadata("key", "value")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return openFile(t, &file)
}

func openFile(t *testing.T, file *bytes.Buffer) *parquet.File {
	t.Helper()
	pf, err := parquet.OpenFile(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		t.Fatal(err)
	}
	return pf
}

func readRows[R any](t *testing.T, pf *parquet.File) []R {
	t.Helper()
	r := parquet.NewGenericReader[R](pf)
	defer r.Close()
	rows := make([]R, pf.NumRows())
	if n, err := r.Read(rows); n != len(rows) || err != nil && err != io.EOF {
		t.Fatalf("%d rows of %d: %v", n, len(rows), err)
	}
	return rows
}

// equal reports whether two slices of rows are equal. It compares floating point numbers by their
// bits.
func equal[R any](a, b []R) bool {
	return slices.EqualFunc(a, b, func(x, y R) bool {
		v, w := reflect.ValueOf(x), reflect.ValueOf(y)
		for i := range v.NumField() {
			f, g := v.Field(i), w.Field(i)
			same := false
			switch f.Kind() {
			case reflect.Slice:
				same = f.Len() == 0 && g.Len() == 0
			case reflect.Float64:
				same = math.Float64bits(f.Float()) == math.Float64bits(g.Float())
			default:
				same = f.Equal(g)
			}
			if !same {
				return false
			}
		}
		return true
	})
}

func TestFilesEqualThoseOfTheLibrary(t *testing.T) {
	testclass.Unit(t)
	if testing.Short() {
		t.Skip("half a minute under the race detector; it has one goroutine")
	}
	t.Run("all encodings", filesEqualThoseOfTheLibrary[row])
	t.Run("rows of recordings", filesEqualThoseOfTheLibrary[format.Row])
}

func filesEqualThoseOfTheLibrary[R any](t *testing.T) {
	w := newWriter[R](t) // one writer for all files
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 0))
		rows := randomRows[R](rng, 1+rng.IntN(3000))
		want, got := writeWithLibrary(t, rows), write(t, w, rows)
		if !equal(readRows[R](t, got), rows) {
			t.Fatalf("seed %d: rows differ", seed)
		}
		a, b := want.Metadata(), got.Metadata()
		if !reflect.DeepEqual(a.Schema, b.Schema) || !reflect.DeepEqual(a.ColumnOrders, b.ColumnOrders) ||
			!reflect.DeepEqual(a.KeyValueMetadata, b.KeyValueMetadata) ||
			a.CreatedBy != b.CreatedBy || a.Version != b.Version || a.NumRows != b.NumRows {
			t.Fatalf("seed %d: footers differ", seed)
		}
		for i := range a.RowGroups[0].Columns {
			c, d := &a.RowGroups[0].Columns[i].MetaData, &b.RowGroups[0].Columns[i].MetaData
			compareChunks(t, c, d)
			// parquet-go leaves out the text size of columns with a dictionary.
			texts := textBytes(rows, c.PathInSchema)
			if n := d.SizeStatistics.UnencodedByteArrayDataBytes; n != texts {
				t.Errorf("seed %d, column %v: %d bytes of text, want %d", seed, c.PathInSchema, n, texts)
			}
			if hasNaN(rows, c.PathInSchema) {
				continue // parquet-go counts the value NaN in its statistics, against the specification
			}
			if !reflect.DeepEqual(c.Statistics, d.Statistics) {
				t.Errorf("seed %d, column %v: statistics %v, want %v",
					seed, c.PathInSchema, d.Statistics, c.Statistics)
			}
			e, f := want.ColumnIndexes()[i], got.ColumnIndexes()[i]
			if len(e.NullPages) == 1 && !reflect.DeepEqual(e, f) {
				t.Errorf("seed %d, column %v: index %v, want %v", seed, c.PathInSchema, f, e)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// field returns the values of a column outside of lists.
func field[R any](rows []R, path []string) (values []reflect.Value) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[R]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("parquet"), ","); name == path[0] {
			for i := range rows {
				values = append(values, reflect.ValueOf(&rows[i]).Elem().FieldByIndex(f.Index))
			}
		}
	}
	return values
}

func hasNaN[R any](rows []R, path []string) bool {
	return slices.ContainsFunc(field(rows, path), func(v reflect.Value) bool {
		return v.CanFloat() && math.IsNaN(v.Float())
	})
}

// textBytes returns the total length of the texts in a column.
func textBytes[R any](rows []R, path []string) (n int64) {
	for _, v := range field(rows, path) {
		if v.Kind() == reflect.String {
			n += int64(v.Len())
		}
	}
	return n
}

func compareChunks(t *testing.T, want, got *pq.ColumnMetaData) {
	t.Helper()
	pages := func(m *pq.ColumnMetaData) (pages []string) {
		for _, s := range m.EncodingStats {
			pages = append(pages, fmt.Sprint(s.PageType, s.Encoding))
		}
		return pages
	}
	levels := func(m *pq.ColumnMetaData) []int64 { return m.SizeStatistics.DefinitionLevelHistogram }
	if want.Type != got.Type || want.Codec != got.Codec || want.NumValues != got.NumValues ||
		!slices.Equal(want.PathInSchema, got.PathInSchema) ||
		!slices.Equal(want.Encoding, got.Encoding) || !slices.Equal(pages(want), pages(got)) ||
		!slices.Equal(levels(want), levels(got)) {
		t.Errorf("column %+v, want %+v", got, want)
	}
	if want.DictionaryPageOffset != 0 != (got.DictionaryPageOffset != 0) {
		t.Errorf("column %v: dictionary at %d, want %d",
			got.PathInSchema, got.DictionaryPageOffset, want.DictionaryPageOffset)
	}
}

func TestRowGroupsAreBounded(t *testing.T) {
	testclass.Unit(t)
	w := newWriter[row](t)
	full := randomRows[row](rand.New(rand.NewPCG(1, 2)), maxGroupRows+500)
	got := write(t, w, full)
	groups := got.RowGroups()
	if len(groups) != 2 || groups[0].NumRows() != maxGroupRows || !equal(readRows[row](t, got), full) {
		t.Errorf("%d row groups, or rows differ", len(groups))
	}
	texts := make([]row, 5000) // 20 MB of distinct texts
	for i := range texts {
		texts[i].Name = fmt.Sprint(i, strings.Repeat("x", 4000))
	}
	if got := write(t, w, texts); len(got.RowGroups()) != 3 || !equal(readRows[row](t, got), texts) {
		t.Errorf("%d row groups of texts, want 3, or rows differ", len(got.RowGroups()))
	}
	if got := write(t, w, nil); got.NumRows() != 0 {
		t.Errorf("%d rows of none", got.NumRows())
	}
}

// sample has some columns of row.
type sample struct {
	TimeNs int64 `parquet:"time_ns"`
	CPU    int32 `parquet:"cpu"`
}

// TestConstantColumns checks that a file whose other columns are constant equals the file with all
// columns in every row.
func TestConstantColumns(t *testing.T) {
	testclass.Unit(t)
	constants := row{Name: "a", Label: "long label", Bytes: -5, Share: 0.5}
	w, err := columnwriter.NewWithConstants[sample](&constants, options()...)
	if err != nil {
		t.Fatal(err)
	}
	full := newWriter[row](t)
	for _, n := range []int{1, 2500, 0, maxGroupRows + 700, 3} {
		samples := randomRows[sample](rand.New(rand.NewPCG(uint64(n), 4)), n)
		rows := make([]row, n)
		for i := range rows {
			rows[i] = constants
			rows[i].TimeNs, rows[i].CPU = samples[i].TimeNs, samples[i].CPU
		}
		got, want := write(t, w, samples), write(t, full, rows)
		if !equal(readRows[row](t, got), rows) {
			t.Errorf("%d rows differ", n)
		}
		a, b := want.Metadata(), got.Metadata()
		if !reflect.DeepEqual(a, b) || !reflect.DeepEqual(want.ColumnIndexes(), got.ColumnIndexes()) {
			t.Errorf("%d rows: footers or indexes differ", n)
		}
	}
}

func TestConstantColumnsNeedTheTypeOfTheirField(t *testing.T) {
	testclass.Unit(t)
	type other struct {
		CPU int64 `parquet:"cpu"`
	}
	if _, err := columnwriter.NewWithConstants[other](new(row), options()...); err == nil {
		t.Error("a column of another type is accepted")
	}
}

func TestListsMustBeEmpty(t *testing.T) {
	testclass.Unit(t)
	w := newWriter[row](t)
	var file bytes.Buffer
	w.Reset(&file)
	if n, err := w.Write([]row{{}, {Parts: make([]part, 1)}}); n != 0 || err == nil {
		t.Errorf("wrote %d rows, %v", n, err)
	}
}

func TestOtherTypesAreRefused(t *testing.T) {
	testclass.Unit(t)
	type unsigned struct {
		N uint64 `parquet:"n"`
	}
	if _, err := columnwriter.New[unsigned](options()...); err == nil {
		t.Error("an unsigned number is accepted")
	}
	type entry struct {
		Name string `parquet:"name,dict"`
	}
	type list struct {
		Entries []entry `parquet:"entries"`
	}
	if _, err := columnwriter.New[list](options()...); err == nil {
		t.Error("a dictionary in a list is accepted")
	}
}

func BenchmarkWrite(b *testing.B) {
	w := newWriter[row](b)
	rows := randomRows[row](rand.New(rand.NewPCG(1, 2)), 4096)
	w.Reset(io.Discard)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Write(rows); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(rows)), "ns/row")
}
