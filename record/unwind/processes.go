//go:build linux

package unwind

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"
)

// Mapping is an address range of executable, file-backed memory of a process.
type Mapping struct{ Start, End uint64 }

// Add makes the profiler read the mappings of a process now, and again whenever the process maps
// executable memory. It is safe for concurrent use.
func (u *Unwinder) Add(pid int) {
	u.mu.Lock()
	u.processes[pid] = true
	u.mu.Unlock()
	u.Refresh(pid)
}

// Forget stops what Add started. It is safe for concurrent use.
func (u *Unwinder) Forget(pid int) {
	u.mu.Lock()
	delete(u.processes, pid)
	u.mu.Unlock()
	u.Refresh(pid) // the profiler notices that the process has ended
}

// onNewMapping is called when any process maps executable memory.
func (u *Unwinder) onNewMapping(pid int) {
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

// Refresh makes the profiler read the mappings of a process again soon. It is safe for concurrent
// use.
func (u *Unwinder) Refresh(pid int) {
	// The key is bpf_get_current_pid_tgid of the process's main thread.
	_ = u.pidEvents.Put(uint64(pid)<<32|uint64(pid), true) // if the map is full, the next mapping tries again
	u.sync()
}

// syncDelay is the time until the profiler reads the mappings of a process. Programs map libraries in groups.
const syncDelay = 50 * time.Millisecond

// sync makes the profiler read the map of PID events within syncDelay.
func (u *Unwinder) sync() {
	t, ok := any(u.tracer).(interface{ ProcessPIDEvents() })
	if !ok || u.isSyncing.Swap(true) {
		return
	}
	time.AfterFunc(syncDelay/2, func() {
		u.isSyncing.Store(false)
		t.ProcessPIDEvents()
	})
}

// tableTime is how long Sync waits for unwind tables with a profiler that does not count the tables that
// it has yet to store (see patches). Files without unwind information never get a table.
const tableTime = time.Second

// Sync waits until the profiler can unwind through all mappings of a process. The process must have
// been added. Sync returns the number of mappings that are unknown after timeout, for example of
// files that are not ELF files. It returns early when stop is closed; stop may be nil.
//
// The profiler adds the mappings when it has read all tables, which takes seconds for hundreds of
// files. Until then, Sync asks for one mapping only.
func (u *Unwinder) Sync(pid int, mappings []Mapping, timeout time.Duration, stop <-chan struct{}) (missing int) {
	unknown := slices.Clone(mappings)
	files := make(map[uint64]bool)
	isKnown := func(m Mapping) bool {
		// The profiler adds a mapping in pieces, from its start on.
		first, last := u.fileAt(pid, m.Start), u.fileAt(pid, m.End-1)
		if first == 0 || last == 0 {
			return false
		}
		files[first] = true
		return true
	}
	var known time.Time // when the profiler knew all mappings
	for end := time.Now().Add(timeout); ; {
		now := time.Now()
		if len(unknown) > 0 && (now.After(end) || isKnown(unknown[0])) {
			unknown = slices.DeleteFunc(unknown, isKnown)
			known = now
		}
		if len(unknown) == 0 && u.haveTables(files, now.Sub(known)) || now.After(end) {
			return len(unknown)
		}
		select {
		case <-stop:
			return len(unknown)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// haveTables reports whether the profiler has the unwind tables of files whose mappings it has known for
// a time, and removes those that it has. It stores tables asynchronously. When it has stored all, the
// files without a table have no unwind information.
func (u *Unwinder) haveTables(files map[uint64]bool, known time.Duration) bool {
	// Read the number first: a table counts before its file has mappings.
	allStored := known > tableTime
	if t, ok := any(u.tracer).(interface{ PendingTables() int64 }); ok {
		allStored = t.PendingTables() == 0
	}
	maps.DeleteFunc(files, func(file uint64, _ bool) bool { return u.hasTable(file) })
	return allStored || len(files) == 0
}

// hasTable reports whether the profiler has the unwind table of a file.
func (u *Unwinder) hasTable(file uint64) bool {
	return slices.ContainsFunc(u.tables, func(m *ebpf.Map) bool {
		var table uint32
		return m.Lookup(file, &table) == nil
	})
}

// page is the profiler's PIDPage: a trie key of pid and address, both big-endian.
type page struct {
	PrefixBits uint32
	Pid        [4]byte
	Address    [8]byte
}

// fileAt returns the profiler's ID of the file mapped at an address, or 0 if it is unknown.
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
