//go:build linux

package hoststack

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/hoststack/snapshot"
)

// waitMemory has the memory of a process to which a thread's system call refers. It is read together
// with the stack.
type waitMemory struct {
	// isGIL says that the futex belongs to a GIL of the interpreter. gilHolder is the thread that held it, in
	// the namespace of the process; 0: unknown.
	isGIL     bool
	gilHolder uint32
	isFutex   bool // the system call waits for a futex
	// mutexOwner is the owner if the futex is in a mutex of the GNU C library: a thread ID in the
	// namespace of the process, or any number if it is in none.
	mutexOwner uint32
	// isRead says that the descriptors of poll or select were read: there may be none.
	isRead      bool
	descriptors []uint64 // that poll or select waits for
	path        string   // of a call with a path
}

// Operations of futex.
const (
	futexLockPI   = 6
	futexLockPI2  = 13
	futexCommand  = 0x7f
	futexTidMask  = 0x3fffffff
	ownerOffset   = 8 // of __owner in pthread_mutex_t
	maxPathBytes  = 1024
	pollFDBytes   = 8
	selectSetSize = 1024 / 8
)

// readWaitMemory reads what the system call of a waiting thread refers to. Unreadable memory leaves it
// empty.
func readWaitMemory(m *memory, s *snapshot.Snapshot) waitMemory {
	var w waitMemory
	number, arguments, ok := s.Call()
	if !ok || s.Sampled || s.OnCpuBefore != 0 {
		return w
	}
	switch number {
	case unix.SYS_FUTEX, unix.SYS_RESTART_SYSCALL:
		w.isFutex = true
		w.mutexOwner = readMutexOwner(m, arguments[0], arguments[1]&futexCommand)
	case sysPoll, unix.SYS_PPOLL:
		w.descriptors, w.isRead = readPolled(m, arguments[0], arguments[1])
	case sysSelect, unix.SYS_PSELECT6:
		w.descriptors, w.isRead = readSelected(m, arguments[0], arguments[1:4])
	case sysOpen, sysStat:
		w.path = readPath(m, arguments[0])
	case unix.SYS_OPENAT, unix.SYS_OPENAT2, sysNewfstatat, unix.SYS_STATX, unix.SYS_FACCESSAT, unix.SYS_READLINKAT:
		w.path = readPath(m, arguments[1])
	}
	return w
}

// readMutexOwner reads the owner of a mutex whose first word is the futex. Priority-inheriting mutexes
// have it in that word.
func readMutexOwner(m *memory, addr, command uint64) uint32 {
	var raw [4]byte
	if command != futexLockPI && command != futexLockPI2 {
		addr += ownerOffset
	}
	if m.Read(addr, raw[:]) != nil {
		return 0
	}
	return binary.LittleEndian.Uint32(raw[:]) & futexTidMask
}

// readPolled reads the descriptors in an array of struct pollfd.
func readPolled(m *memory, addr, n uint64) (list []uint64, ok bool) {
	raw := make([]byte, pollFDBytes*min(n, maxWatched))
	if m.Read(addr, raw) != nil {
		return nil, false
	}
	for ; len(raw) > 0; raw = raw[pollFDBytes:] {
		if fd := int32(binary.LittleEndian.Uint32(raw)); fd >= 0 { // negative ones are ignored
			list = append(list, uint64(fd))
		}
	}
	return list, true
}

// readSelected reads the descriptors below n in sets of select.
func readSelected(m *memory, n uint64, sets []uint64) (list []uint64, ok bool) {
	var all [selectSetSize]byte
	size := min((n+7)/8, selectSetSize)
	for _, addr := range sets {
		raw := make([]byte, size)
		if addr == 0 {
			continue
		}
		if m.Read(addr, raw) != nil {
			return nil, false
		}
		for i, b := range raw {
			all[i] |= b
		}
	}
	for i, b := range all[:size] {
		for ; b != 0 && len(list) < maxWatched; b &= b - 1 {
			if fd := uint64(8*i + bits.TrailingZeros8(b)); fd < n {
				list = append(list, fd)
			}
		}
	}
	return list, true
}

// readPath reads a path, "" if it is longer than maxPathBytes.
func readPath(m *memory, addr uint64) string {
	var raw []byte
	for len(raw) < maxPathBytes {
		part := make([]byte, 64-addr%64) // not across the end of a page
		if m.Read(addr, part) != nil {
			return ""
		}
		if end := bytes.IndexByte(part, 0); end >= 0 {
			return string(append(raw, part[:end]...))
		}
		raw, addr = append(raw, part...), addr+uint64(len(part))
	}
	return ""
}
