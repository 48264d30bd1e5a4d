package symbolize

import (
	"bytes"
	"io"
)

// readString reads the string that lies from offset to the next NUL byte, or to end. Strings over 64 KiB, which is more than
// anyone shows, come back cut to one byte more. The result is "" where nothing can be read.
func readString(r io.ReaderAt, offset, end uint64) string {
	const limit = maxShown + 1
	for size := uint64(256); offset < end; size *= 8 {
		raw := make([]byte, min(size, limit, end-offset))
		n, _ := r.ReadAt(raw, int64(offset))
		if at := bytes.IndexByte(raw[:n], 0); at >= 0 {
			return string(raw[:at])
		}
		if n < len(raw) || len(raw) == limit || offset+uint64(n) == end {
			return string(raw[:n])
		}
	}
	return ""
}
