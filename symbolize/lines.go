package symbolize

import (
	"bufio"
	"io"
)

// lineReader reads lines of bounded length, unlike bufio.Scanner keeping a "\r" before the end and
// going on behind a line that is too long.
type lineReader struct {
	r *bufio.Reader
}

func newLineReader(r io.Reader, maxLine int) *lineReader {
	return &lineReader{bufio.NewReaderSize(r, maxLine+1)}
}

// next returns the next line without its "\n", valid until the next call. whole is false for a line
// that is too long, which is not returned, or that the end of the input cut off. The error is
// io.EOF behind the last line.
func (l *lineReader) next() (line []byte, whole bool, err error) {
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
		err = nil // reported by the next call
	}
	return nil, false, err
}
