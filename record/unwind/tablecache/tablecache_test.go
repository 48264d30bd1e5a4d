//go:build linux

package tablecache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
)

// keyOf returns a key that differs for each number.
func keyOf(n int) (key [32]byte) {
	copy(key[:], fmt.Sprintf("key %d", n))
	return key
}

// tableOf returns a table with n deltas that differ for each seed.
func tableOf(n, seed int) Table {
	t := Table{FirstPage: uint64(seed) << 16, Infos: bytes.Repeat([]byte{byte(seed)}, 2*infoBytes)}
	for i := range n {
		number := []uint32{0, 1, commandBit | 3}[i%3]
		t.Deltas = append(t.Deltas, number<<16|uint32(i*16+seed)&0xffff)
	}
	t.Pages = []uint16{uint16(n / 2), 0, uint16(n - n/2)}
	return t
}

func open(t *testing.T, folder string, maxBytes int64) *Cache {
	t.Helper()
	c, err := Open(folder, maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (c *Cache) storeTable(key [32]byte, t Table) {
	c.Store(key, t.FirstPage, t.Pages, t.Deltas, t.Infos)
}

func (c *Cache) loadTable(key [32]byte) (Table, bool) {
	firstPage, pages, deltas, infos, release, ok := c.Load(key)
	if !ok {
		return Table{}, false
	}
	defer release()
	return Table{firstPage, slices.Clone(pages), slices.Clone(deltas), bytes.Clone(infos)}, ok
}

// TestTablesAreKept stores tables with one cache and loads them with another, as a later recorder.
func TestTablesAreKept(t *testing.T) {
	testclass.Unit(t)
	folder := filepath.Join(t.TempDir(), "new")
	first := open(t, folder, 1<<20)
	for n := range 3 {
		if _, ok := first.loadTable(keyOf(n)); ok {
			t.Errorf("table %d is there before it was stored", n)
		}
		first.storeTable(keyOf(n), tableOf(100*n, n))
	}
	if want := (Stats{Misses: 3, Stored: 3}); first.Stats() != want {
		t.Errorf("%+v, want %+v", first.Stats(), want)
	}
	later := open(t, folder, 1<<20)
	for n := range 3 {
		got, ok := later.loadTable(keyOf(n))
		want := tableOf(100*n, n)
		if !ok || got.FirstPage != want.FirstPage || !bytes.Equal(got.Infos, want.Infos) ||
			!reflect.DeepEqual(got.Pages, want.Pages) || len(got.Deltas) != len(want.Deltas) ||
			len(got.Deltas) > 0 && !reflect.DeepEqual(got.Deltas, want.Deltas) {
			t.Errorf("table %d: %v, %+v", n, ok, got)
		}
	}
	if want := (Stats{Hits: 3}); later.Stats() != want {
		t.Errorf("%+v, want %+v", later.Stats(), want)
	}
}

// TestDamagedTableIsReplaced damages each byte of a file, cuts the file at each byte, and renames it.
func TestDamagedTableIsReplaced(t *testing.T) {
	testclass.Unit(t)
	folder := t.TempDir()
	c := open(t, folder, 1<<20)
	path := filepath.Join(folder, fileName(keyOf(1)))
	c.storeTable(keyOf(1), tableOf(20, 1))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		before := c.Stats()
		if got, ok := c.loadTable(keyOf(1)); ok {
			t.Fatalf("%s: loaded as %+v", what, got)
		}
		if after := c.Stats(); after.Rejected != before.Rejected+1 || after.Misses != before.Misses+1 {
			t.Fatalf("%s: counted as %+v after %+v", what, after, before)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("%s: the file is still there: %v", what, err)
		}
	}
	for i := range whole {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 4
		check(fmt.Sprintf("byte %d", i), damaged)
		check(fmt.Sprintf("%d bytes", i), whole[:i])
	}
	check("longer", append(bytes.Clone(whole), 0))
	other, err := format(keyOf(2), tableOf(20, 1))
	if err != nil {
		t.Fatal(err)
	}
	check("the table of another key", other)
	c.storeTable(keyOf(1), tableOf(20, 1))
	if _, ok := c.loadTable(keyOf(1)); !ok {
		t.Error("the table was not replaced")
	}
}

// TestOthersMayNotWrite refuses folders that other users own or can write to.
func TestOthersMayNotWrite(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	base := t.TempDir()
	for name, mode := range map[string]os.FileMode{"group": 0o720, "others": 0o702, "sticky": 0o777 | os.ModeSticky} {
		folder := filepath.Join(base, name)
		if err := errors.Join(os.Mkdir(folder, 0o700), os.Chmod(folder, mode)); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(folder, 1<<20); !errors.Is(err, ErrUnsafe) {
			t.Errorf("%s may write: %v", name, err)
		}
	}
	file, link := filepath.Join(base, "file"), filepath.Join(base, "link")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(base, link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link} {
		if _, err := Open(path, 1<<20); !errors.Is(err, ErrUnsafe) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Open(filepath.Join(base, "missing", "folder"), 1<<20); err == nil || errors.Is(err, ErrUnsafe) {
		t.Errorf("a folder that cannot be made: %v", err)
	}
	foreign := filepath.Join(base, "foreign")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(foreign, 65534, 65534); err != nil {
		t.Skip("a folder of another user needs root: ", err)
	}
	if _, err := Open(foreign, 1<<20); !errors.Is(err, ErrUnsafe) {
		t.Errorf("of another user: %v", err)
	}
}

// TestLeastRecentlyUsedAreRemoved fills a small cache, and uses one old table again.
func TestLeastRecentlyUsedAreRemoved(t *testing.T) {
	testclass.Unit(t)
	folder := t.TempDir()
	file, err := format(keyOf(0), tableOf(1000, 0))
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, folder, int64(10*len(file)))
	for n := range 10 {
		c.storeTable(keyOf(n), tableOf(1000, n))
		old := time.Now().Add(time.Duration(n-100) * time.Minute)
		if err := os.Chtimes(filepath.Join(folder, fileName(keyOf(n))), old, old); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := c.loadTable(keyOf(0)); !ok {
		t.Fatal("the first table is not there")
	}
	for n := 10; n < 13; n++ {
		c.storeTable(keyOf(n), tableOf(1000, n))
	}
	for n := range 13 {
		_, ok := c.loadTable(keyOf(n))
		if want := n == 0 || n > 3; ok != want {
			t.Errorf("table %d: %v, want %v", n, ok, want)
		}
	}
	huge := tableOf(60_000, 1)
	c.storeTable(keyOf(99), huge)
	if _, ok := c.loadTable(keyOf(99)); ok {
		t.Error("a table that is larger than the cache was stored")
	}
	if _, ok := c.loadTable(keyOf(12)); !ok {
		t.Error("the other tables were removed for it")
	}
}

// TestKilledRecordersLeaveNothing removes old temporary files, and keeps those of running recorders.
func TestKilledRecordersLeaveNothing(t *testing.T) {
	testclass.Unit(t)
	folder := t.TempDir()
	old, young := filepath.Join(folder, "1"+tempSuffix), filepath.Join(folder, "2"+tempSuffix)
	long := time.Now().Add(-2 * staleAfter)
	if err := errors.Join(os.WriteFile(old, nil, 0o600), os.WriteFile(young, nil, 0o600),
		os.Chtimes(old, long, long)); err != nil {
		t.Fatal(err)
	}
	open(t, folder, 1<<20).storeTable(keyOf(1), tableOf(1, 1))
	_, oldErr := os.Stat(old)
	_, youngErr := os.Stat(young)
	if !errors.Is(oldErr, os.ErrNotExist) || youngErr != nil {
		t.Errorf("old: %v, young: %v", oldErr, youngErr)
	}
}

// TestSeveralRecorders stores, loads and removes tables with several caches of one folder at the
// same time. A loaded table must be complete.
func TestSeveralRecorders(t *testing.T) {
	testclass.Unit(t)
	folder := t.TempDir()
	file, err := format(keyOf(0), tableOf(3000, 0))
	if err != nil {
		t.Fatal(err)
	}
	limit := int64(6 * len(file))
	var wg sync.WaitGroup
	var hits int64
	caches := []*Cache{open(t, folder, limit), open(t, folder, limit), open(t, folder, limit)}
	for _, c := range caches {
		for worker := range 2 {
			wg.Go(func() {
				for i := range 200 {
					n := (i + 5*worker) % 10
					got, ok := c.loadTable(keyOf(n))
					if ok && !reflect.DeepEqual(got, tableOf(3000, n)) {
						t.Errorf("table %d is not the stored one", n)
						return
					}
					if !ok {
						c.storeTable(keyOf(n), tableOf(3000, n))
					}
				}
			})
		}
	}
	wg.Wait()
	for _, c := range caches {
		if s := c.Stats(); s.Rejected != 0 || s.Stored == 0 {
			t.Errorf("%+v", s)
		}
		hits += c.Stats().Hits
	}
	if hits == 0 {
		t.Error("no table was ever loaded")
	}
	last := open(t, folder, limit)
	last.storeTable(keyOf(100), tableOf(3000, 100)) // counts the folder
	var bytes int64
	for _, f := range last.list() {
		bytes += f.bytes
	}
	if bytes > limit || bytes == 0 {
		t.Errorf("%d bytes in the folder, the limit is %d", bytes, limit)
	}
}

// FuzzParse parses any bytes with a valid checksum. What it accepts must be what format writes.
func FuzzParse(f *testing.F) {
	for n := range 3 {
		data, err := format(keyOf(1), tableOf(7*n, n))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) >= prefixBytes {
			data = withValidPrefix(data)
		}
		table, err := parse(keyOf(1), data)
		if err != nil {
			return
		}
		again, err := format(keyOf(1), *table)
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("%+v is written as %x (%v), was %x", table, again, err, data)
		}
	})
}

// withValidPrefix sets magic, version, key and checksum of a file.
func withValidPrefix(data []byte) []byte {
	data = bytes.Clone(data)
	key := keyOf(1)
	copy(data, magic)
	binary.LittleEndian.PutUint32(data[len(magic):], version)
	copy(data[keyAt:], key[:])
	binary.LittleEndian.PutUint32(data[crcAt:], crc32.Checksum(data[keyAt:], castagnoli))
	return data
}
