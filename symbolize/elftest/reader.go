package elftest

import (
	"io"
	"sync/atomic"
)

// CountingReader counts the reads of R. The counts measure work independently of the load of the
// machine. It is safe for concurrent use.
type CountingReader struct {
	// R is the underlying reader. Reads is the number of reads, Bytes the number of bytes read.
	R     io.ReaderAt
	Reads atomic.Int64
	Bytes atomic.Int64
}

// ReadAt reads from R.
func (c *CountingReader) ReadAt(p []byte, offset int64) (int, error) {
	n, err := c.R.ReadAt(p, offset)
	c.Reads.Add(1)
	c.Bytes.Add(int64(n))
	return n, err
}
