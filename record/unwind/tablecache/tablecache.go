//go:build linux

// Package tablecache keeps unwind tables of ELF files on disk, so that a second attach does not
// read them again. A table is stored under a hash of all data that it is made of. The folder must
// belong to the recorder's user, and no other user may write to it. A file that is damaged counts as
// missing and is removed.
//
// Several recorders may use one folder. Files are written under another name and renamed.
package tablecache

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// DefaultMaxBytes is the default limit of a cache. The tables of 600 MB of libraries have 14 MB.
const DefaultMaxBytes = 1 << 30

// ErrUnsafe is the error of a folder that is no folder of this user alone.
var ErrUnsafe = errors.New("the folder must belong to the user of the recorder, and no other user may write to it")

const (
	tableSuffix = ".table"
	tempSuffix  = ".tmp"
	// staleAfter is the age of a temporary file whose recorder was killed.
	staleAfter = time.Hour
	// recountShare is the share of the limit that a recorder stores before it counts the files of
	// the other recorders again.
	recountShare = 16
)

// Cache is a folder of tables. Its methods are safe for concurrent use.
type Cache struct {
	root     *os.Root
	maxBytes int64

	hits, misses, rejected, stored atomic.Int64

	mu      sync.Mutex
	counted bool  // limit has counted the files of the folder
	total   int64 // bytes of all tables at the last count, plus bytes stored since
	since   int64 // bytes stored since the last count
}

// Stats counts what a Cache has done. Rejected tables were damaged; they count as misses, too.
type Stats struct{ Hits, Misses, Rejected, Stored int64 }

// Open opens a folder and creates it if it does not exist. The error matches ErrUnsafe if other
// users can write to the folder.
func Open(folder string, maxBytes int64) (*Cache, error) {
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if info, err := os.Lstat(folder); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s: %w", folder, ErrUnsafe)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err == nil && !isOwn(info) {
		err = fmt.Errorf("%s: %w", folder, ErrUnsafe)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return &Cache{root: root, maxBytes: maxBytes}, nil
}

// isOwn reports whether a file belongs to this user, and no other user may write to it.
func isOwn(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid() && info.Mode().Perm()&0o022 == 0
}

// Close closes the folder.
func (c *Cache) Close() error { return c.root.Close() }

// Stats returns the counts.
func (c *Cache) Stats() Stats {
	return Stats{c.hits.Load(), c.misses.Load(), c.rejected.Load(), c.stored.Load()}
}

// fileName returns the name of the file of a table.
func fileName(key [32]byte) string { return hex.EncodeToString(key[:]) + tableSuffix }

// Load returns the members of a Table, in the memory of its file: it is read-only, and other loads of the table
// share it. release unmaps the file. It may be called after Close.
func (c *Cache) Load(key [32]byte) (
	firstPage uint64, pages []uint16, deltas []uint32, infos []byte, release func(), ok bool,
) {
	name := fileName(key)
	data, err := c.open(name)
	if err != nil {
		c.misses.Add(1)
		return 0, nil, nil, nil, nil, false
	}
	release = func() { _ = syscall.Munmap(data) } // cannot fail
	t, err := parse(key, data)
	if err != nil {
		release()
		c.misses.Add(1)
		c.rejected.Add(1)
		_ = c.root.Remove(name) // otherwise the next Store replaces it
		return 0, nil, nil, nil, nil, false
	}
	c.hits.Add(1)
	now := time.Now()
	_ = c.root.Chtimes(name, now, now) // the least recently used tables are removed first
	return t.FirstPage, t.Pages, t.Deltas, t.Infos, release, true
}

// open maps a regular file of at most the longest table. Files of the cache are replaced and removed, but never
// written again, so the memory does not change.
func (c *Cache) open(name string) ([]byte, error) {
	file, err := c.root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return nil, errors.New("not a table")
	}
	if info.Size() < prefixBytes {
		return make([]byte, info.Size()), nil // parse rejects it
	}
	return syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED|syscall.MAP_POPULATE)
}

// Store stores a table. If that fails, the table is missing: a full disk must not end a recording.
func (c *Cache) Store(key [32]byte, firstPage uint64, pages []uint16, deltas []uint32, infos []byte) {
	data, err := format(key, Table{firstPage, pages, deltas, infos})
	if err != nil || int64(len(data)) > c.maxBytes {
		return
	}
	if c.write(fileName(key), data) == nil {
		c.stored.Add(1)
		c.limit(int64(len(data)))
	}
}

// write writes a file under a temporary name and renames it.
func (c *Cache) write(name string, data []byte) error {
	temp := fmt.Sprintf("%x%s", rand.Uint64(), tempSuffix)
	file, err := c.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Close())
	if err == nil {
		err = c.root.Rename(temp, name)
	}
	if err != nil {
		_ = c.root.Remove(temp) // an old one is removed later
	}
	return err
}

// limit removes the least recently used tables if the folder has too many bytes, after bytes were
// stored.
func (c *Cache) limit(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.total += bytes
	c.since += bytes
	if c.counted && c.since < c.maxBytes/recountShare && c.total <= c.maxBytes {
		return
	}
	c.counted, c.since = true, 0
	files := c.list()
	c.total = 0
	for _, f := range files {
		c.total += f.bytes
	}
	slices.SortFunc(files, func(a, b tableFile) int { return a.used.Compare(b.used) })
	for _, f := range files {
		if c.total <= c.maxBytes {
			return
		}
		if c.root.Remove(f.name) == nil {
			c.total -= f.bytes
		}
	}
}

// tableFile is a file of the cache.
type tableFile struct {
	name  string
	bytes int64
	used  time.Time
}

// list returns all tables, and removes temporary files of recorders that were killed.
func (c *Cache) list() []tableFile {
	folder, err := c.root.Open(".")
	if err != nil {
		return nil
	}
	defer folder.Close()
	entries, _ := folder.ReadDir(-1) // on an error, those that were read
	var files []tableFile
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // another recorder has removed it
		}
		switch {
		case strings.HasSuffix(e.Name(), tableSuffix):
			files = append(files, tableFile{e.Name(), info.Size(), info.ModTime()})
		case strings.HasSuffix(e.Name(), tempSuffix) && time.Since(info.ModTime()) > staleAfter:
			_ = c.root.Remove(e.Name())
		}
	}
	return files
}
