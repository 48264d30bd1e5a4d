//go:build linux

package unwind

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gpurec/gpurec/record/clock"
)

// Mapping is a range of executable, file-backed memory of a process.
type Mapping struct{ Start, End uint64 }

// Add makes the process one to be unwound: its mappings are read, and again whenever it
// gets new ones. Safe for concurrent use.
func (u *Unwinder) Add(pid int) {
	u.mu.Lock()
	u.processes[pid] = true
	u.mu.Unlock()
	u.Refresh(pid)
}

// Forget ends what Add began. Safe for concurrent use.
func (u *Unwinder) Forget(pid int) {
	u.mu.Lock()
	delete(u.processes, pid)
	u.mu.Unlock()
	u.Refresh(pid) // the profiler sees that it is gone
}

// mapped is called when a process, any one, maps executable memory.
func (u *Unwinder) mapped(pid int) {
	u.mu.Lock()
	wanted := u.processes[pid]
	u.mu.Unlock()
	if !wanted {
		return
	}
	u.Refresh(pid)
	if u.opt.Mapped != nil {
		u.opt.Mapped(pid)
	}
}

// Refresh has the profiler read the mappings of a process again, soon. Safe for
// concurrent use.
func (u *Unwinder) Refresh(pid int) {
	// Key as of bpf_get_current_pid_tgid, of the thread that has the process's number.
	_ = u.pidEvents.Put(uint64(pid)<<32|uint64(pid), true) // full: it is tried again at the next mapping
}

// tableTime is how long after its mappings a file's unwind table may come: the profiler
// puts tables in place by the side. Files without unwind information never get one.
const tableTime = 300 * time.Millisecond

// Sync waits until the profiler can unwind through all mappings of a process that was
// added, and returns how many it does not know when the time is over: files that are no
// ELF, for example. It returns early when stop is closed, which may be nil.
func (u *Unwinder) Sync(pid int, mappings []Mapping, timeout time.Duration, stop <-chan struct{}) (missing int) {
	for end := time.Now().Add(timeout); ; {
		missing = 0
		files := make(map[uint64]bool)
		for _, m := range mappings {
			// The profiler enters a mapping in pieces, from its start on.
			first, last := u.fileAt(pid, m.Start), u.fileAt(pid, m.End-1)
			if first == 0 || last == 0 {
				missing++
			}
			files[first] = true
		}
		now := time.Now()
		hasAll := missing == 0 && u.haveTables(files, now)
		if hasAll || now.After(end) || clock.Sleep(stop, 5*time.Millisecond) {
			return missing
		}
	}
}

// haveTables reports whether the unwind tables of all files are in place. A file that is known for
// tableTime and has none has no unwind information.
func (u *Unwinder) haveTables(files map[uint64]bool, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for file := range files {
		since, waits := u.waiting[file]
		if waits && now.Sub(since) > tableTime || u.hasTable(file) {
			continue
		}
		if !waits {
			u.waiting[file] = now
		}
		return false
	}
	return true
}

// hasTable reports whether the unwind table of a file is in place.
func (u *Unwinder) hasTable(file uint64) bool {
	return slices.ContainsFunc(u.tables, func(m *ebpf.Map) bool {
		var table uint32
		return m.Lookup(file, &table) == nil
	})
}

// page is the profiler's PIDPage: the key of a trie over pid and address, big-endian.
type page struct {
	PrefixBits uint32
	Pid        [4]byte
	Address    [8]byte
}

// fileAt returns the number of the file mapped at an address, 0: none that is known.
func (u *Unwinder) fileAt(pid int, address uint64) uint64 {
	key := page{PrefixBits: 96}
	binary.BigEndian.PutUint32(key.Pid[:], uint32(pid))
	binary.BigEndian.PutUint64(key.Address[:], address)
	var value struct{ FileID, BiasAndProgram uint64 }
	if u.pages.Lookup(key, &value) != nil {
		return 0
	}
	return value.FileID
}
