package format

import (
	"github.com/klauspost/compress/zstd"
	parquetzstd "github.com/parquet-go/parquet-go/compress/zstd"
)

// Sizes of Parquet pages in bytes before compression: in recordings and segments with many rows,
// and in segments with few rows.
const (
	parquetPageBytes      = 256 << 10
	smallParquetPageBytes = 32 << 10
)

// pageCodec is the Zstandard codec of parquet-go with a window of two pages. The library's own
// codec keeps a window of 16 MiB for each encoder.
type pageCodec struct {
	parquetzstd.Codec
	encoder *zstd.Encoder
}

// parquetCompression is the codec of all writers. It is safe for concurrent use.
var parquetCompression = newPageCodec()

func newPageCodec() *pageCodec {
	encoder, err := zstd.NewWriter(nil, zstd.WithWindowSize(2*parquetPageBytes),
		zstd.WithEncoderConcurrency(2), zstd.WithZeroFrames(true), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // the options are constant
	}
	return &pageCodec{encoder: encoder}
}

// Encode compresses src and returns the result in the memory of dst, whose content it overwrites.
func (c *pageCodec) Encode(dst, src []byte) ([]byte, error) {
	return c.encoder.EncodeAll(src, dst[:0]), nil
}
