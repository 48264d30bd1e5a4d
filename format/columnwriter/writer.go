// Package columnwriter writes rows to Parquet files like parquet-go, in a third of the time.
//
// It is made for hundreds of thousands of rows per second, in which most columns repeat the value
// of the row before. Files have the same schema, encodings and compression as files of parquet-go
// with the same options. So parquet-go can copy row groups byte for byte into another file. A row
// group has one page per column.
package columnwriter

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	pq "github.com/parquet-go/parquet-go/format"
)

// maxRowGroupTextBytes bounds the text in a row group, and so the memory of its dictionaries. A
// hostile program can create names of any length.
const maxRowGroupTextBytes = 8 << 20

// parquetMagic is the magic number at the start and the end of a Parquet file.
const parquetMagic = "PAR1"

// Writer writes Parquet files with rows of type R, one file after the other. R is a struct of
// int32, int64, float64, string and slice fields. Slices must be empty in all rows. A Writer is not
// safe for concurrent use.
type Writer[R any] struct {
	layout  *parquetLayout
	codec   compress.Codec
	maxRows int // largest number of rows in a row group
	columns []column[R]
	lists   []uintptr // byte offsets of slice fields in R

	out       countingFileWriter
	encoder   *thrift.Encoder
	rows      int   // number of rows in the open row group
	textBytes int64 // length of the texts that columns keep in memory, in bytes
	metadata  []pq.KeyValue
	groups    []pq.RowGroup
	indexes   [][]pq.ColumnIndex // by row group and column
	offsets   [][]pq.OffsetIndex // by row group and column

	plain, packed []byte // buffers for page contents: before and after compression
}

// countingFileWriter counts the bytes of a file. It hides bufio's other write methods, which would
// not count.
type countingFileWriter struct {
	buffer *bufio.Writer
	offset int64
}

// Write writes b to the buffer and counts its bytes.
func (w *countingFileWriter) Write(b []byte) (int, error) {
	n, err := w.buffer.Write(b)
	w.offset += int64(n)
	return n, err
}

// New returns a Writer. It takes the same options as parquet.NewGenericWriter. It returns an error
// if R has a field of an unsupported type. Call Reset before the first Write.
func New[R any](options ...parquet.WriterOption) (*Writer[R], error) {
	return NewWithConstants[R](new(R), options...)
}

// NewWithConstants returns a Writer for files with the schema of Full. A column has the values of
// the field of R with the same column name. A column without such a field has the value of the field
// in constants in every row, and costs no time per row.
func NewWithConstants[R, Full any](constants *Full, options ...parquet.WriterOption) (*Writer[R], error) {
	config, err := parquet.NewWriterConfig(options...)
	if err != nil {
		return nil, err
	}
	l, err := readParquetLayout[Full](options)
	if err != nil {
		return nil, err
	}
	w := &Writer[R]{layout: l, codec: config.Compression, maxRows: int(config.MaxRowsPerRowGroup)}
	w.out.buffer = bufio.NewWriterSize(nil, 64<<10)
	w.encoder = thrift.NewEncoder(new(thrift.CompactProtocol).NewWriter(&w.out))
	fields := fieldsByColumnName(reflect.TypeFor[R]())
	for i := range l.leaves {
		leaf := &l.leaves[i]
		c, err := newColumnOrConstant[R](leaf, fields, constants, &w.textBytes)
		if err != nil {
			return nil, err
		}
		w.columns = append(w.columns, c)
		field, ok := fields[leaf.chunk.PathInSchema[0]]
		if leaf.inList && ok && !slices.Contains(w.lists, field.Offset) {
			w.lists = append(w.lists, field.Offset)
		}
	}
	return w, nil
}

// newColumnOrConstant returns the column of R for a leaf, or a constant column if R does not have
// it.
func newColumnOrConstant[R, Full any](
	leaf *leafColumn, fields map[string]reflect.StructField, constants *Full, textBytes *int64,
) (column[R], error) {
	name := leaf.chunk.PathInSchema[0]
	if field, ok := fields[name]; ok {
		if field.Type.Kind() != leaf.field.Type.Kind() {
			return nil, fmt.Errorf("column %s: is %s, not %s", name, leaf.field.Type.Kind(), field.Type.Kind())
		}
		return newColumn[R](leaf, field.Offset, textBytes)
	}
	c, err := newColumn[Full](leaf, leaf.field.Offset, new(int64))
	return &constantColumn[R, Full]{column: c, row: constants}, err
}

// Reset starts a new file. It drops all rows written since the last Close.
func (w *Writer[R]) Reset(file io.Writer) {
	for _, c := range w.columns {
		c.removeValues()
	}
	w.out.buffer.Reset(file)
	w.out.offset, w.rows, w.textBytes = 0, 0, 0
	w.metadata, w.groups, w.indexes, w.offsets = nil, nil, nil, nil
	_, _ = w.out.Write([]byte(parquetMagic)) // bufio repeats an error at the next write
}

// rowsPerColumnBatch is the number of rows that every column reads before the next rows. So few
// rows stay in the CPU cache.
const rowsPerColumnBatch = 64

// Write appends rows and returns the number of rows written. It keeps no reference to the slice.
func (w *Writer[R]) Write(rows []R) (int, error) {
	written := 0
	for written < len(rows) {
		n := min(len(rows)-written, rowsPerColumnBatch, w.maxRows-w.rows)
		part := rows[written : written+n]
		if w.hasListElements(part) {
			return written, errors.New("a list of a row is not empty")
		}
		for _, c := range w.columns {
			c.addRows(part)
		}
		w.rows += n
		written += n
		if w.rows == w.maxRows || w.textBytes > maxRowGroupTextBytes {
			if err := w.flushRowGroup(); err != nil {
				return written, err
			}
		}
	}
	return written, nil
}

// hasListElements reports whether a slice field of any row has elements.
func (w *Writer[R]) hasListElements(rows []R) bool {
	for _, at := range w.lists {
		for i := range rows {
			// The length of a slice is at the same offset for all element types.
			if len(readField[[]struct{}](&rows[i], at)) > 0 {
				return true
			}
		}
	}
	return false
}

// SetKeyValueMetadata adds a key-value pair to the metadata of the file.
func (w *Writer[R]) SetKeyValueMetadata(key, value string) {
	w.metadata = append(w.metadata, pq.KeyValue{Key: key, Value: value})
}

// Close writes the last row group, the page indexes and the footer. It does not close the
// underlying io.Writer.
func (w *Writer[R]) Close() error {
	if err := w.flushRowGroup(); err != nil {
		return err
	}
	footer := pq.FileMetaData{
		Version: w.layout.version, Schema: w.layout.schema,
		RowGroups: w.groups, KeyValueMetadata: w.metadata,
		CreatedBy: w.layout.createdBy, ColumnOrders: w.layout.columnOrders,
	}
	for i := range w.groups {
		footer.NumRows += w.groups[i].NumRows
	}
	if err := w.writePageIndexes(); err != nil {
		return err
	}
	begin := w.out.offset
	if err := w.encoder.Encode(&footer); err != nil {
		return err
	}
	size := uint32(w.out.offset - begin)
	end := append(binary.LittleEndian.AppendUint32(nil, size), parquetMagic...)
	if _, err := w.out.Write(end); err != nil {
		return err
	}
	return w.out.buffer.Flush()
}

// writePageIndexes writes the column indexes of all row groups, then the offset indexes. Readers
// expect all indexes of one kind in one block.
func (w *Writer[R]) writePageIndexes() error {
	for g := range w.groups {
		for i := range w.columns {
			chunk := &w.groups[g].Columns[i]
			chunk.ColumnIndexOffset = w.out.offset
			if err := w.encoder.Encode(&w.indexes[g][i]); err != nil {
				return err
			}
			chunk.ColumnIndexLength = int32(w.out.offset - chunk.ColumnIndexOffset)
		}
	}
	for g := range w.groups {
		for i := range w.columns {
			chunk := &w.groups[g].Columns[i]
			chunk.OffsetIndexOffset = w.out.offset
			if err := w.encoder.Encode(&w.offsets[g][i]); err != nil {
				return err
			}
			chunk.OffsetIndexLength = int32(w.out.offset - chunk.OffsetIndexOffset)
		}
	}
	return nil
}
