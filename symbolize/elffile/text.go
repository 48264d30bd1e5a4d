package elffile

import (
	"bytes"
	"io"
)

// MaxTextBytes is the longest string that Text methods return whole. They cut a longer one to one
// byte more, so that callers can tell.
const MaxTextBytes = 64 << 10

// readText reads the string from offset to the next NUL byte or to end. It returns "" where
// nothing can be read.
func readText(r io.ReaderAt, offset, end uint64) string {
	const limit = MaxTextBytes + 1
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
