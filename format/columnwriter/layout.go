package columnwriter

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	pq "github.com/parquet-go/parquet-go/format"
)

// parquetLayout describes how parquet-go writes rows of one type: the schema and the encoding of
// each column. A Writer writes the same layout.
type parquetLayout struct {
	schema       []pq.SchemaElement
	columnOrders []pq.ColumnOrder
	createdBy    string
	version      int32
	leaves       []leafColumn
}

// leafColumn is one column that holds values: a leaf of the schema tree.
type leafColumn struct {
	// typ is the Parquet type, field the Go field: for a column within a list, the list's field.
	typ    parquet.Type
	field  reflect.StructField
	inList bool
	chunk  pq.ColumnMetaData // metadata of the column in a file with one row
	page   pq.DataPageHeaderV2
	// empty is the encoded and compressed content of a page without values. emptyBytes is its size
	// before compression. Only columns within lists have empty pages.
	empty      []byte
	emptyBytes int
}

// readParquetLayout writes a file of one row with parquet-go and reads its layout.
func readParquetLayout[R any](options []parquet.WriterOption) (*parquetLayout, error) {
	var file bytes.Buffer
	w := parquet.NewGenericWriter[R](&file, options...)
	if _, err := w.Write(make([]R, 1)); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	pf, err := parquet.OpenFile(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		return nil, err
	}
	footer := pf.Metadata()
	l := &parquetLayout{
		schema: footer.Schema, columnOrders: footer.ColumnOrders,
		createdBy: footer.CreatedBy, version: footer.Version,
	}
	fields := fieldsByColumnName(reflect.TypeFor[R]())
	for i := range footer.RowGroups[0].Columns {
		chunk := footer.RowGroups[0].Columns[i].MetaData
		column, ok := pf.Schema().Lookup(chunk.PathInSchema...)
		if !ok {
			return nil, fmt.Errorf("column %v is not in the schema", chunk.PathInSchema)
		}
		leaf := leafColumn{
			typ: column.Node.Type(), inList: column.MaxRepetitionLevel > 0,
			field: fields[chunk.PathInSchema[0]], chunk: chunk,
		}
		if err := leaf.readDataPage(file.Bytes()); err != nil {
			return nil, err
		}
		l.leaves = append(l.leaves, leaf)
	}
	return l, nil
}

// readDataPage reads the header and the values of the column's only data page.
func (l *leafColumn) readDataPage(file []byte) error {
	in := new(thrift.CompactProtocol).NewReaderFromBytes(file[l.chunk.DataPageOffset:])
	var header pq.PageHeader
	if err := thrift.NewDecoder(in).Decode(&header); err != nil {
		return err
	}
	if !header.DataPageHeaderV2.Valid {
		return fmt.Errorf("column %v: not a data page of version 2", l.chunk.PathInSchema)
	}
	l.page = header.DataPageHeaderV2.V
	page := file[int(l.chunk.DataPageOffset)+in.BytesRead():][:header.CompressedPageSize]
	levels := int(l.page.RepetitionLevelsByteLength + l.page.DefinitionLevelsByteLength)
	l.empty, l.emptyBytes = page[levels:], int(header.UncompressedPageSize)-levels
	return nil
}

// fieldsByColumnName returns the fields of a row type by the names of their Parquet columns.
func fieldsByColumnName(row reflect.Type) map[string]reflect.StructField {
	fields := make(map[string]reflect.StructField)
	for _, f := range reflect.VisibleFields(row) {
		fields[parquetColumnName(f)] = f
	}
	return fields
}

// parquetColumnName returns the name of the Parquet column for a field of the row type.
func parquetColumnName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("parquet"), ",")
	return name
}
