package elftest

import (
	"io"
	"sync/atomic"
)

// CountingReader counts the reads of R, as a measure of work that does not depend on how busy the
// machine is.
type CountingReader struct {
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
