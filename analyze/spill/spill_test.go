package spill_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/gpurec/gpurec/analyze/spill"
	"github.com/gpurec/gpurec/internal/testclass"
)

// blocks is the number of blocks in tests: some are in memory, the others in a file.
const blocks = 100

// blockOf returns the bytes of a block, which differ in length.
func blockOf(i int) []byte { return bytes.Repeat([]byte{byte(i)}, spill.BlockBytes-i) }

// fill appends blocks to a list until one fails.
func fill(l *spill.List) error {
	for i := range blocks {
		if err := l.Append(blockOf(i)); err != nil {
			return err
		}
	}
	return nil
}

func TestBlocksAreKept(t *testing.T) {
	testclass.Unit(t)
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	var l spill.List
	if err := fill(&l); err != nil {
		t.Fatal(err)
	}
	if l.Blocks() != blocks {
		t.Errorf("%d blocks", l.Blocks())
	}
	buffer := make([]byte, spill.BlockBytes)
	for i := range blocks {
		if got, err := l.ReadBlock(i, buffer); err != nil || !bytes.Equal(got, blockOf(i)) {
			t.Errorf("block %d has %d bytes: %v", i, len(got), err)
		}
	}
	if names, err := os.ReadDir(folder); err != nil || len(names) > 0 {
		t.Errorf("the file has a name: %v, %v", names, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestNoRoom(t *testing.T) {
	testclass.Unit(t)
	var l spill.List
	if err := l.Append(make([]byte, spill.BlockBytes+1)); err == nil {
		t.Error("a block may be too long")
	}
	t.Setenv("TMPDIR", t.TempDir()+"/missing")
	if err := fill(&l); err == nil {
		t.Error("a file was created in a missing folder")
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
