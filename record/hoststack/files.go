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

// maxFiles bounds the open ELF files of a Files. PyTorch processes have 400, and few of them
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

// Files keeps files with their unwind tables and symbols from snapshot to snapshot. Processes share it: ranks of a job
// have the same libraries. Snapshotters may share it, too. It is safe for concurrent use.
type Files struct {
	store remote.Store // may be nil

	mu    sync.Mutex
	files map[process.FileID]*module
	// replaced are modules of files that have changed. A snapshot may still use them.
	replaced []*module
}

// NewFiles returns a Files without files. The store, if not nil, has tables; it is not closed. Otherwise tables are
// read from the files, and take 4 bytes of memory for each rule.
func NewFiles(store remote.Store) *Files {
	return &Files{store: store, files: make(map[process.FileID]*module)}
}

// Close closes all files, after the Snapshotters that use them.
func (c *Files) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.files {
		m.file.Close()
	}
	for _, m := range c.replaced {
		m.file.Close()
	}
	clear(c.files)
	c.replaced = nil
}

// module returns the module of an open file, which the cache then owns. path is the path as the
// process sees it.
func (c *Files) module(path string, file *os.File) *module {
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
	m.table, m.tableErr = remote.ReadTable(file, c.store)
	m.object, _ = symbolize.NewObject(file, st.Size) // without it, functions have no names
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.files[id]; old != nil {
		if old.isUnchanged(&st) { // another snapshot has read it meanwhile
			file.Close()
			return old
		}
		c.replaced = append(c.replaced, old)
	}
	c.files[id] = m
	return m
}

// isUnchanged reports whether the file with a status is that of the module.
func (m *module) isUnchanged(st *unix.Stat_t) bool { return m.size == st.Size && m.modified == st.Mtim }

// find returns the module of an unchanged file, and the number of files.
func (c *Files) find(id process.FileID, st *unix.Stat_t) (*module, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.files) + len(c.replaced)
	if m := c.files[id]; m != nil && m.isUnchanged(st) {
		return m, n
	}
	return nil, n
}
