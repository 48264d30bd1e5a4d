package symbolize

import (
	"bufio"
	"io"
)

// boundedLineReader reads lines of bounded length. Unlike bufio.Scanner, it keeps a "\r" at the end
// of a line and continues after a line that is too long.
type boundedLineReader struct {
	r *bufio.Reader
}

// newBoundedLineReader returns a reader of lines up to maxLine bytes.
func newBoundedLineReader(r io.Reader, maxLine int) *boundedLineReader {
	return &boundedLineReader{bufio.NewReaderSize(r, maxLine+1)}
}

// nextLine returns the next line without its newline, valid until the next call. whole is false for
// an incomplete last line, and for a line that is too long, which is not returned. After the last
// line, the error is io.EOF.
func (l *boundedLineReader) nextLine() (line []byte, whole bool, err error) {
	line, err = l.r.ReadSlice('\n')
	switch {
	case err == nil:
		return line[:len(line)-1], true, nil
	case err == io.EOF && len(line) > 0:
		return line, false, nil
	case err != bufio.ErrBufferFull:
		return nil, false, err
	}
	for err == bufio.ErrBufferFull {
		_, err = l.r.ReadSlice('\n')
	}
	if err == io.EOF {
		err = nil // the next call returns the read error
	}
	return nil, false, err
}
