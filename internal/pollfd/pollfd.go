//go:build linux

package pollfd

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Waiter waits for the events of a file descriptor, such as the wake-ups of a ring buffer.
type Waiter struct {
	file *os.File
	conn syscall.RawConn
}

// New returns a Waiter for a file descriptor, which it duplicates. Close closes the duplicate.
func New(fd int) (*Waiter, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate descriptor: %w", err)
	}
	if err := unix.SetNonblock(own, true); err != nil {
		unix.Close(own)
		return nil, fmt.Errorf("set descriptor: %w", err)
	}
	w := &Waiter{file: os.NewFile(uintptr(own), "events")}
	if w.conn, err = w.file.SyscallConn(); err == nil {
		err = w.file.SetReadDeadline(time.Time{}) // an error if the kernel cannot poll it
	}
	if err != nil {
		w.file.Close()
		return nil, fmt.Errorf("poll descriptor: %w", err)
	}
	return w, nil
}

// Wait calls read, and then waits for an event since the start of read. It waits until deadline, or without limit if
// deadline is zero. It returns false if the Waiter was closed.
func (w *Waiter) Wait(deadline time.Time, read func()) bool {
	if w.file.SetReadDeadline(deadline) != nil {
		return false
	}
	hasRead := false
	err := w.conn.Read(func(uintptr) bool {
		if !hasRead {
			read()
			hasRead = true
			return false
		}
		return true
	})
	if err != nil && !os.IsTimeout(err) {
		return false
	}
	if !hasRead { // the deadline was over before
		read()
	}
	return true
}

// Close closes the descriptor, and ends Wait.
func (w *Waiter) Close() error { return w.file.Close() }
