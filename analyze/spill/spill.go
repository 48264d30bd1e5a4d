package spill

import (
	"cmp"
	"fmt"
	"os"
)

// BlockBytes is the largest size of a block.
const BlockBytes = 64 << 10

const (
	// memoryBlocks is the number of first blocks that stay in memory, so that short lists need no file.
	memoryBlocks = 16
	// maxBlocks bounds the file to 1 GiB.
	maxBlocks = 1 << 14
)

// List is a list of blocks. Its first MiB is in memory, and the rest is in a file that has no name, so that it is
// gone with the process. The zero value is empty. Several goroutines may call ReadBlock after the last call of Append.
type List struct {
	sizes  []int32 // of all blocks, bytes
	memory [][]byte
	file   *os.File // each block takes BlockBytes; nil: there is none
}

// Append adds a copy of a block of at most BlockBytes. It returns an error if there is no room, or if the
// file cannot be written; the list is of no use then.
func (l *List) Append(block []byte) error {
	n := len(l.sizes)
	switch {
	case len(block) > BlockBytes:
		return fmt.Errorf("block of %d bytes: more than %d", len(block), BlockBytes)
	case n >= maxBlocks:
		return fmt.Errorf("more than %d blocks", maxBlocks)
	case n < memoryBlocks:
		l.memory = append(l.memory, append([]byte(nil), block...))
	default:
		if err := l.write(block, n-memoryBlocks); err != nil {
			return err
		}
	}
	l.sizes = append(l.sizes, int32(len(block)))
	return nil
}

// write writes a block to the file.
func (l *List) write(block []byte, number int) error {
	if l.file == nil {
		file, err := newFile()
		if err != nil {
			return err
		}
		l.file = file
	}
	_, err := l.file.WriteAt(block, int64(number)*BlockBytes)
	return err
}

// newFile creates a file without a name. /var/tmp is on a disk, where /tmp may be in memory.
func newFile() (*os.File, error) {
	file, err := os.CreateTemp(cmp.Or(os.Getenv("TMPDIR"), "/var/tmp"), "gpurec-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close() // the first error matters
		return nil, err
	}
	return file, nil
}

// Blocks returns the number of blocks.
func (l *List) Blocks() int { return len(l.sizes) }

// ReadBlock returns a block by its number from 0. The result may be memory of the list, which must not be changed, or
// a part of buffer, which must have BlockBytes. It returns errors of reading the file.
func (l *List) ReadBlock(number int, buffer []byte) ([]byte, error) {
	if number < len(l.memory) {
		return l.memory[number], nil
	}
	buffer = buffer[:l.sizes[number]]
	_, err := l.file.ReadAt(buffer, int64(number-memoryBlocks)*BlockBytes)
	return buffer, err
}

// Close frees the memory and the file. No other method may be called after that.
func (l *List) Close() error {
	l.memory, l.sizes = nil, nil
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}
