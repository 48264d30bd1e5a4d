package format

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	pq "github.com/parquet-go/parquet-go/format"
)

// layout is how the Parquet library writes rows: what columnWriter must do too, so that
// merging copies its row groups byte for byte. It is read from a file of one row.
type layout struct {
	schema       []pq.SchemaElement
	columnOrders []pq.ColumnOrder
	createdBy    string
	version      int32
	leaves       []leaf
}

// leaf is one column of the schema that has values.
type leaf struct {
	typ    parquet.Type
	field  reflect.StructField // of Row; without meaning if inList
	inList bool
	chunk  pq.ColumnMetaData // of one row
	page   pq.DataPageHeaderV2
	// nothing is the encoded and compressed values of a page without any, and nothingBytes what
	// they were before compression; of columns in lists.
	nothing      []byte
	nothingBytes int
}

var rowLayout = sync.OnceValues(readLayout)

func readLayout() (*layout, error) {
	var file bytes.Buffer
	w := parquet.NewGenericWriter[Row](&file, writerOptions()...)
	if _, err := w.Write(make([]Row, 1)); err != nil {
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
	l := &layout{schema: footer.Schema, columnOrders: footer.ColumnOrders, createdBy: footer.CreatedBy, version: footer.Version}
	fields := make(map[string]reflect.StructField)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Row]()) {
		fields[parquetName(f)] = f
	}
	for i := range footer.RowGroups[0].Columns {
		chunk := footer.RowGroups[0].Columns[i].MetaData
		column, ok := pf.Schema().Lookup(chunk.PathInSchema...)
		if !ok {
			return nil, fmt.Errorf("column %v is not in the schema", chunk.PathInSchema)
		}
		leaf := leaf{typ: column.Node.Type(), inList: column.MaxRepetitionLevel > 0, field: fields[chunk.PathInSchema[0]], chunk: chunk}
		if err := leaf.readPage(file.Bytes()); err != nil {
			return nil, err
		}
		l.leaves = append(l.leaves, leaf)
	}
	return l, nil
}

// readPage reads the header of the column's only data page, and its values.
func (l *leaf) readPage(file []byte) error {
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
	l.nothing, l.nothingBytes = page[levels:], int(header.UncompressedPageSize)-levels
	return nil
}

// parquetName is the column that a field of Row is stored in.
func parquetName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("parquet"), ",")
	return name
}
