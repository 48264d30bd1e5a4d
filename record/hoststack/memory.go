//go:build linux

package hoststack

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/hoststack/snapshot"
)

const pageBytes = 4096

// maxCachedPages bounds the pages of one round, 64 MiB.
const maxCachedPages = 64 << 20 / pageBytes

var errUnreadable = errors.New("memory is unreadable")

// memory reads memory of a process: first from a thread's snapshot, then from the process. It keeps
// pages until reset. It is not safe for concurrent use.
type memory struct {
	pid   int
	pages map[uint64]*[pageBytes]byte // nil: unreadable
	// snapshot is the thread whose copied stack is read first.
	snapshot *snapshot.Snapshot
	// isLive says that a read since setSnapshot needed more than the snapshot.
	isLive bool
	// denied says that the process's memory may not be read.
	denied bool
}

func newMemory(pid int) *memory { return &memory{pid: pid, pages: make(map[uint64]*[pageBytes]byte)} }

// reset forgets all pages.
func (m *memory) reset() {
	clear(m.pages)
	m.snapshot = nil
}

// setSnapshot makes reads prefer the stack of a snapshot.
func (m *memory) setSnapshot(s *snapshot.Snapshot) { m.snapshot, m.isLive = s, false }

// Read fills a buffer from an address of the process.
func (m *memory) Read(addr uint64, into []byte) error {
	for len(into) > 0 {
		page, offset := addr&^(pageBytes-1), addr&(pageBytes-1)
		data := m.page(page)
		if data == nil || addr+uint64(len(into)) < addr {
			return errUnreadable
		}
		n := copy(into, data[offset:])
		into, addr = into[n:], addr+uint64(n)
	}
	return nil
}

// page returns a page of the process, or nil if it is unreadable.
func (m *memory) page(addr uint64) []byte {
	if s := m.snapshot; s != nil && addr-s.StackAddr < uint64(len(s.Stack)) {
		at := addr - s.StackAddr
		return s.Stack[at : at+pageBytes]
	}
	if m.snapshot != nil && m.snapshot.Sampled {
		return nil // the thread continues to run, so its memory has changed since the sample
	}
	m.isLive = true
	page, ok := m.pages[addr]
	if !ok {
		page = m.readPage(addr)
		if len(m.pages) >= maxCachedPages {
			clear(m.pages)
		}
		m.pages[addr] = page
	}
	if page == nil {
		return nil
	}
	return page[:]
}

// readPage reads a page by process_vm_readv, which does not stop the process.
func (m *memory) readPage(addr uint64) *[pageBytes]byte {
	page := new([pageBytes]byte)
	local := []unix.Iovec{{Base: &page[0], Len: pageBytes}}
	remote := []unix.RemoteIovec{{Base: uintptr(addr), Len: pageBytes}}
	n, err := unix.ProcessVMReadv(m.pid, local, remote, 0)
	if errors.Is(err, unix.EPERM) {
		m.denied = true
	}
	if err != nil || n != pageBytes {
		return nil
	}
	return page
}
