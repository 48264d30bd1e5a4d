package columnwriter

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	pq "github.com/parquet-go/parquet-go/format"
)

// flushRowGroup writes the open row group if it has rows.
func (w *Writer[R]) flushRowGroup() error {
	if w.rows == 0 {
		return nil
	}
	group := pq.RowGroup{
		NumRows: int64(w.rows), FileOffset: w.out.offset, Ordinal: int16(len(w.groups)),
	}
	indexes := make([]pq.ColumnIndex, len(w.columns))
	offsets := make([]pq.OffsetIndex, len(w.columns))
	for i, c := range w.columns {
		chunk, err := w.writeColumnChunk(&w.layout.leaves[i], c, &indexes[i], &offsets[i])
		if err != nil {
			return err
		}
		c.removeValues()
		group.Columns = append(group.Columns, pq.ColumnChunk{MetaData: chunk})
		group.TotalByteSize += chunk.TotalUncompressedSize
		group.TotalCompressedSize += chunk.TotalCompressedSize
	}
	w.groups = append(w.groups, group)
	w.indexes, w.offsets = append(w.indexes, indexes), append(w.offsets, offsets)
	w.rows, w.textBytes = 0, 0
	return nil
}

// writeColumnChunk writes the pages of a column and its entries in the column index and offset
// index.
func (w *Writer[R]) writeColumnChunk(
	l *leafColumn, c column[R], index *pq.ColumnIndex, offsets *pq.OffsetIndex,
) (chunk pq.ColumnMetaData, err error) {
	chunk = l.chunk
	chunk.NumValues, chunk.TotalUncompressedSize, chunk.TotalCompressedSize = int64(w.rows), 0, 0
	chunk.DictionaryPageOffset = 0
	var distinct int
	if w.plain, distinct = c.encodeDictionary(w.plain[:0]); distinct > 0 {
		chunk.DictionaryPageOffset = w.out.offset
		header := pq.PageHeader{
			Type: pq.DictionaryPage, UncompressedPageSize: int32(len(w.plain)),
			DictionaryPageHeader: thrift.New(
				pq.DictionaryPageHeader{NumValues: int32(distinct), Encoding: pq.Plain}),
		}
		if err := w.compressAndWritePage(&chunk, &header); err != nil {
			return chunk, err
		}
	}
	chunk.DataPageOffset = w.out.offset
	page := l.page
	page.NumValues, page.NumRows = int32(w.rows), int32(w.rows)
	header := pq.PageHeader{Type: pq.DataPageV2}
	if l.inList {
		level := encodeEmptyListLevels(w.rows)
		page.NumNulls = page.NumRows
		page.RepetitionLevelsByteLength = int32(len(level))
		page.DefinitionLevelsByteLength = int32(len(level))
		header.DataPageHeaderV2 = thrift.New(page)
		header.UncompressedPageSize = int32(2*len(level) + l.emptyBytes)
		err = w.writeCompressedPage(&chunk, &header, level, level, l.empty)
	} else if w.plain, err = c.encodeData(w.plain); err == nil {
		header.DataPageHeaderV2 = thrift.New(page)
		header.UncompressedPageSize = int32(len(w.plain))
		err = w.compressAndWritePage(&chunk, &header)
	}
	if err != nil {
		return chunk, err
	}
	offsets.PageLocations = []pq.PageLocation{{
		Offset:             chunk.DataPageOffset,
		CompressedPageSize: int32(w.out.offset - chunk.DataPageOffset),
	}}
	w.setChunkStatistics(l, c, &chunk, index)
	return chunk, nil
}

// encodeEmptyListLevels encodes the repetition or definition levels of n empty lists. All levels
// are 0.
func encodeEmptyListLevels(n int) []byte {
	return append(binary.AppendUvarint(nil, uint64(n)<<1), 0)
}

// compressAndWritePage compresses w.plain and writes it as a page.
func (w *Writer[R]) compressAndWritePage(chunk *pq.ColumnMetaData, header *pq.PageHeader) (err error) {
	if w.packed, err = w.codec.Encode(w.packed, w.plain); err != nil {
		return err
	}
	return w.writeCompressedPage(chunk, header, w.packed)
}

// writeCompressedPage writes a page. It sets the compressed size and the checksum in the page
// header.
func (w *Writer[R]) writeCompressedPage(
	chunk *pq.ColumnMetaData, header *pq.PageHeader, parts ...[]byte,
) error {
	checksum := uint32(0)
	for _, p := range parts {
		header.CompressedPageSize += int32(len(p))
		checksum = crc32.Update(checksum, crc32.IEEETable, p)
	}
	header.CRC = int32(checksum)
	begin := w.out.offset
	if err := w.encoder.Encode(header); err != nil {
		return err
	}
	chunk.TotalUncompressedSize += w.out.offset - begin + int64(header.UncompressedPageSize)
	for _, p := range parts {
		if _, err := w.out.Write(p); err != nil {
			return err
		}
	}
	chunk.TotalCompressedSize += w.out.offset - begin
	return nil
}

// setChunkStatistics sets the statistics of a column chunk. Readers use them to skip pages.
func (w *Writer[R]) setChunkStatistics(
	l *leafColumn, c column[R], chunk *pq.ColumnMetaData, index *pq.ColumnIndex,
) {
	least, greatest := c.valueBounds()
	chunk.Statistics = pq.Statistics{}
	var nulls int64
	if l.inList {
		nulls = int64(w.rows)
		levels := []int64{nulls, 0}
		chunk.SizeStatistics = pq.SizeStatistics{
			RepetitionLevelHistogram: levels, DefinitionLevelHistogram: levels,
		}
	} else {
		chunk.Statistics.MinValue, chunk.Statistics.MaxValue = least.Bytes(), greatest.Bytes()
		chunk.SizeStatistics = pq.SizeStatistics{UnencodedByteArrayDataBytes: c.totalTextBytes()}
	}
	chunk.Statistics.NullCount = nulls
	indexer := l.typ.NewColumnIndexer(parquet.DefaultColumnIndexSizeLimit)
	indexer.IndexPage(int64(w.rows), nulls, least, greatest)
	*index = indexer.ColumnIndex()
	index.RepetitionLevelHistogram = chunk.SizeStatistics.RepetitionLevelHistogram
	index.DefinitionLevelHistogram = chunk.SizeStatistics.DefinitionLevelHistogram
}
