//go:build linux

package hoststack

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/unwind/remote"
	"github.com/gpurec/gpurec/symbolize"
)

// maxFiles bounds the open ELF files of all processes. PyTorch processes have 400, and few of them
// have code on a stack.
const maxFiles = 1536

// module is a mapped ELF file with its unwind table and its symbols. It is immutable.
type module struct {
	path     string
	file     *os.File
	size     int64
	modified unix.Timespec
	table    *remote.Table
	tableErr error
	object   *symbolize.Object
}

// fileCache keeps files with their tables from snapshot to snapshot. Processes share it: ranks of a job have
// the same libraries. It is safe for concurrent use.
type fileCache struct {
	mu    sync.Mutex
	files map[process.FileID]*module
}

func newFileCache() *fileCache { return &fileCache{files: make(map[process.FileID]*module)} }

// close closes all files.
func (c *fileCache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.files {
		m.file.Close()
	}
	clear(c.files)
}

// module returns the module of an open file, which the cache then owns. path is the path as the
// process sees it.
func (c *fileCache) module(path string, file *os.File) *module {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		file.Close()
		return &module{path: path, tableErr: err}
	}
	id := process.FileID{Dev: uint64(st.Dev), Inode: st.Ino}
	known, n := c.find(id, &st)
	if known != nil || n >= maxFiles {
		file.Close()
		if known == nil {
			return &module{path: path, tableErr: fmt.Errorf("more than %d files", maxFiles)}
		}
		return known
	}
	m := &module{path: path, file: file, size: st.Size, modified: st.Mtim}
	m.table, m.tableErr = remote.ReadTable(file)
	m.object, _ = symbolize.NewObject(file, st.Size) // without it, functions have no names
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.files[id]; old != nil {
		old.file.Close()
	}
	c.files[id] = m
	return m
}

// find returns the module of an unchanged file, and the number of files.
func (c *fileCache) find(id process.FileID, st *unix.Stat_t) (*module, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.files[id]
	if m != nil && m.size == st.Size && m.modified == st.Mtim {
		return m, len(c.files)
	}
	return nil, len(c.files)
}
