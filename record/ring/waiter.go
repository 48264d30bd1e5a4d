//go:build linux

package ring

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// waiter waits for the wake-ups of a ring buffer by the poller of Go's runtime. In a system call that blocks, the runtime
// would look every 20 µs for a while whether the call has ended, which takes more time than all else.
type waiter struct {
	file *os.File
	conn syscall.RawConn
}

// newWaiter returns a waiter for the ring buffer with a file descriptor.
func newWaiter(fd int) (*waiter, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate descriptor: %w", err)
	}
	if err := unix.SetNonblock(own, true); err != nil {
		unix.Close(own)
		return nil, fmt.Errorf("set descriptor: %w", err)
	}
	w := &waiter{file: os.NewFile(uintptr(own), "ring buffer")}
	if w.conn, err = w.file.SyscallConn(); err != nil {
		w.file.Close()
		return nil, err
	}
	return w, nil
}

// wait calls read, and then waits for a wake-up since the start of read, at most for a time.
func (w *waiter) wait(limit time.Duration, read func()) {
	if w.file.SetReadDeadline(time.Now().Add(limit)) != nil { // the kernel cannot poll it
		read()
		time.Sleep(limit)
		return
	}
	hasRead := false
	_ = w.conn.Read(func(uintptr) bool {
		if !hasRead {
			read()
			hasRead = true
			return false
		}
		return true
	}) // an error is the end of the time
	if !hasRead { // the time was over before
		read()
	}
}

// close closes the descriptor.
func (w *waiter) close() error { return w.file.Close() }
