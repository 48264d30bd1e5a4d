package format

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestMergeCopiesColumns checks that the merged file has the pages of its segments, byte for byte.
func TestMergeCopiesColumns(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "r.parquet")
	w, err := Create(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(ClassCall, testRows(ClassCall, 20_000)); err != nil {
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
