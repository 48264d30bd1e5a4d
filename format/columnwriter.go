package format

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	pq "github.com/parquet-go/parquet-go/format"
)

// maxGroupText bounds what the dictionaries of a row group hold, and by it the recorder's
// memory: names of kernels are as long as a recorded process likes.
const maxGroupText = 8 << 20

// columnWriter writes rows without frames, such as calls, as the Parquet library does (see
// layout), with its encodings and its compression, but takes a third of the time: calls come
// in hundreds of thousands a second, and most of their columns say the same in every row.
// A row group has one page per column. The zero value is not usable; reset begins a file.
type columnWriter struct {
	layout   *layout
	columns  []column
	out      *bufio.Writer
	offset   int64 // in the file
	encoder  *thrift.Encoder
	rows     int   // of the open row group
	held     int64 // bytes of texts that its columns hold
	metadata []pq.KeyValue
	groups   []pq.RowGroup
	indexes  [][]pq.ColumnIndex // by row group
	offsets  [][]pq.OffsetIndex

	plain, packed []byte // used again
}

func newColumnWriter() (*columnWriter, error) {
	l, err := rowLayout()
	if err != nil {
		return nil, err
	}
	w := &columnWriter{layout: l, out: bufio.NewWriterSize(nil, 64<<10)}
	w.encoder = thrift.NewEncoder(new(thrift.CompactProtocol).NewWriter(w))
	for i := range l.leaves {
		c, err := newColumn(&l.leaves[i], &w.held)
		if err != nil {
			return nil, err
		}
		w.columns = append(w.columns, c)
	}
	return w, nil
}

// reset begins a file.
func (w *columnWriter) reset(file io.Writer) {
	for _, c := range w.columns {
		c.reset()
	}
	w.out.Reset(file)
	w.offset, w.rows = 0, 0
	w.metadata, w.groups, w.indexes, w.offsets = nil, nil, nil, nil
	w.held = 0
	_, _ = w.Write([]byte(magic)) // an error comes again with the next one
}

// Write writes bytes of the file.
func (w *columnWriter) Write(b []byte) (int, error) {
	n, err := w.out.Write(b)
	w.offset += int64(n)
	return n, err
}

// rowsPerAdd is how many rows are taken apart at once: as many as stay in the processor's cache.
const rowsPerAdd = 64

// writeRows appends rows. They must have no frames.
func (w *columnWriter) writeRows(rows []Row) error {
	for len(rows) > 0 {
		part := rows[:min(len(rows), rowsPerAdd, maxGroupRows-w.rows)]
		for i := range part {
			if len(part[i].Frames) > 0 {
				return errors.New("a call with frames of its own")
			}
		}
		for _, c := range w.columns {
			c.add(part)
		}
		w.rows += len(part)
		rows = rows[len(part):]
		if w.rows == maxGroupRows || w.held > maxGroupText {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush ends the row group.
func (w *columnWriter) flush() error {
	if w.rows == 0 {
		return nil
	}
	group := pq.RowGroup{NumRows: int64(w.rows), FileOffset: w.offset, Ordinal: int16(len(w.groups))}
	indexes, offsets := make([]pq.ColumnIndex, len(w.columns)), make([]pq.OffsetIndex, len(w.columns))
	for i, c := range w.columns {
		chunk, err := w.writeChunk(&w.layout.leaves[i], c, &indexes[i], &offsets[i])
		if err != nil {
			return err
		}
		c.reset()
		group.Columns = append(group.Columns, pq.ColumnChunk{MetaData: chunk})
		group.TotalByteSize += chunk.TotalUncompressedSize
		group.TotalCompressedSize += chunk.TotalCompressedSize
	}
	w.groups, w.indexes, w.offsets = append(w.groups, group), append(w.indexes, indexes), append(w.offsets, offsets)
	w.rows, w.held = 0, 0
	return nil
}

// writeChunk writes the pages of a column.
func (w *columnWriter) writeChunk(l *leaf, c column, index *pq.ColumnIndex, offsets *pq.OffsetIndex) (chunk pq.ColumnMetaData, err error) {
	chunk = l.chunk
	chunk.NumValues, chunk.TotalUncompressedSize, chunk.TotalCompressedSize = int64(w.rows), 0, 0
	chunk.DictionaryPageOffset = 0
	var distinct int
	if w.plain, distinct = c.dictionary(w.plain[:0]); distinct > 0 {
		chunk.DictionaryPageOffset = w.offset
		header := pq.PageHeader{Type: pq.DictionaryPage, UncompressedPageSize: int32(len(w.plain)),
			DictionaryPageHeader: thrift.New(pq.DictionaryPageHeader{NumValues: int32(distinct), Encoding: pq.Plain})}
		if err := w.writePlain(&chunk, &header); err != nil {
			return chunk, err
		}
	}
	chunk.DataPageOffset = w.offset
	page := l.page
	page.NumValues, page.NumRows = int32(w.rows), int32(w.rows)
	header := pq.PageHeader{Type: pq.DataPageV2}
	if l.inList {
		level := noElements(w.rows)
		page.NumNulls, page.RepetitionLevelsByteLength, page.DefinitionLevelsByteLength = page.NumRows, int32(len(level)), int32(len(level))
		header.DataPageHeaderV2 = thrift.New(page)
		header.UncompressedPageSize = int32(2*len(level) + l.nothingBytes)
		err = w.writePage(&chunk, &header, level, level, l.nothing)
	} else if w.plain, err = c.data(w.plain); err == nil {
		header.DataPageHeaderV2 = thrift.New(page)
		header.UncompressedPageSize = int32(len(w.plain))
		err = w.writePlain(&chunk, &header)
	}
	if err != nil {
		return chunk, err
	}
	offsets.PageLocations = []pq.PageLocation{{Offset: chunk.DataPageOffset, CompressedPageSize: int32(w.offset - chunk.DataPageOffset)}}
	w.describe(l, c, &chunk, index)
	return chunk, nil
}

// noElements encodes n levels of 0: lists without elements.
func noElements(n int) []byte {
	return append(binary.AppendUvarint(nil, uint64(n)<<1), 0)
}

// writePlain writes a page of what w.plain holds, compressed.
func (w *columnWriter) writePlain(chunk *pq.ColumnMetaData, header *pq.PageHeader) (err error) {
	if w.packed, err = compression.Encode(w.packed, w.plain); err != nil {
		return err
	}
	return w.writePage(chunk, header, w.packed)
}

// writePage writes a page whose header lacks compressed size and checksum.
func (w *columnWriter) writePage(chunk *pq.ColumnMetaData, header *pq.PageHeader, parts ...[]byte) error {
	checksum := uint32(0)
	for _, p := range parts {
		header.CompressedPageSize += int32(len(p))
		checksum = crc32.Update(checksum, crc32.IEEETable, p)
	}
	header.CRC = int32(checksum)
	begin := w.offset
	if err := w.encoder.Encode(header); err != nil {
		return err
	}
	chunk.TotalUncompressedSize += w.offset - begin + int64(header.UncompressedPageSize)
	for _, p := range parts {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	chunk.TotalCompressedSize += w.offset - begin
	return nil
}

// describe fills in what readers learn of a column without reading it.
func (w *columnWriter) describe(l *leaf, c column, chunk *pq.ColumnMetaData, index *pq.ColumnIndex) {
	least, greatest := c.bounds()
	chunk.Statistics = pq.Statistics{}
	var nulls int64
	if l.inList {
		nulls = int64(w.rows)
		levels := []int64{nulls, 0}
		chunk.SizeStatistics = pq.SizeStatistics{RepetitionLevelHistogram: levels, DefinitionLevelHistogram: levels}
	} else {
		chunk.Statistics.MinValue, chunk.Statistics.MaxValue = least.Bytes(), greatest.Bytes()
		chunk.SizeStatistics = pq.SizeStatistics{UnencodedByteArrayDataBytes: c.textBytes()}
	}
	chunk.Statistics.NullCount = nulls
	indexer := l.typ.NewColumnIndexer(parquet.DefaultColumnIndexSizeLimit)
	indexer.IndexPage(int64(w.rows), nulls, least, greatest)
	*index = indexer.ColumnIndex()
	index.RepetitionLevelHistogram, index.DefinitionLevelHistogram = chunk.SizeStatistics.RepetitionLevelHistogram, chunk.SizeStatistics.DefinitionLevelHistogram
}

// SetKeyValueMetadata adds a pair to the file's metadata.
func (w *columnWriter) SetKeyValueMetadata(key, value string) {
	w.metadata = append(w.metadata, pq.KeyValue{Key: key, Value: value})
}

// Close ends the file: the last row group, the indexes of pages, the footer.
func (w *columnWriter) Close() error {
	if err := w.flush(); err != nil {
		return err
	}
	footer := pq.FileMetaData{Version: w.layout.version, Schema: w.layout.schema, RowGroups: w.groups,
		KeyValueMetadata: w.metadata, CreatedBy: w.layout.createdBy, ColumnOrders: w.layout.columnOrders}
	for i := range w.groups {
		footer.NumRows += w.groups[i].NumRows
	}
	if err := w.writeIndexes(); err != nil {
		return err
	}
	begin := w.offset
	if err := w.encoder.Encode(&footer); err != nil {
		return err
	}
	end := append(binary.LittleEndian.AppendUint32(nil, uint32(w.offset-begin)), magic...)
	if _, err := w.Write(end); err != nil {
		return err
	}
	return w.out.Flush()
}

// writeIndexes writes what pages hold and then where they are: readers expect either together.
func (w *columnWriter) writeIndexes() error {
	for g := range w.groups {
		for i := range w.columns {
			chunk := &w.groups[g].Columns[i]
			chunk.ColumnIndexOffset = w.offset
			if err := w.encoder.Encode(&w.indexes[g][i]); err != nil {
				return err
			}
			chunk.ColumnIndexLength = int32(w.offset - chunk.ColumnIndexOffset)
		}
	}
	for g := range w.groups {
		for i := range w.columns {
			chunk := &w.groups[g].Columns[i]
			chunk.OffsetIndexOffset = w.offset
			if err := w.encoder.Encode(&w.offsets[g][i]); err != nil {
				return err
			}
			chunk.OffsetIndexLength = int32(w.offset - chunk.OffsetIndexOffset)
		}
	}
	return nil
}
