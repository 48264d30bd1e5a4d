package format

import (
	"github.com/klauspost/compress/zstd"
	parquetzstd "github.com/parquet-go/parquet-go/compress/zstd"
)

// Pages of files and of segments with few rows, in bytes before compression.
const (
	pageBytes      = 256 << 10
	smallPageBytes = 32 << 10
)

// pageCodec is the Parquet library's Zstandard with a window no larger than pages
// need: the library's keeps 16 MiB for each encoder.
type pageCodec struct {
	parquetzstd.Codec
	encoder *zstd.Encoder
}

// compression is used by all writers, which may run at the same time.
var compression = newPageCodec()

func newPageCodec() *pageCodec {
	encoder, err := zstd.NewWriter(nil, zstd.WithWindowSize(2*pageBytes),
		zstd.WithEncoderConcurrency(2), zstd.WithZeroFrames(true), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // the options are constant
	}
	return &pageCodec{encoder: encoder}
}

// Encode appends nothing: like the library's it replaces what dst holds.
func (c *pageCodec) Encode(dst, src []byte) ([]byte, error) {
	return c.encoder.EncodeAll(src, dst[:0]), nil
}
