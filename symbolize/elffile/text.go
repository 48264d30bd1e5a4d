package elffile

import (
	"bytes"
	"io"
)

// MaxTextBytes is the length of the longest string that Text methods return completely. They cut
// longer strings to MaxTextBytes+1 bytes, so callers can detect the cut.
const MaxTextBytes = 64 << 10

// readNULTerminatedText reads the string from offset to the next NUL byte or to end. It returns ""
// if nothing can be read.
func readNULTerminatedText(r io.ReaderAt, offset, end uint64) string {
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
