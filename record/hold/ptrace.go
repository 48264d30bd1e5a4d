//go:build linux

package hold

import (
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// thread is the tracer's state of a held thread.
type thread struct {
	Request
	until      time.Time
	isTraced   bool
	isReleased bool // it may run as soon as it can be let go
	hasRun     bool // the BPF program ended its wait before the thread was seized
}

// seize begins to trace a thread that waits in the kernel, and asks it to stop when it returns to
// user space. It reports false if another program traces the thread: then the thread stays in the
// kernel.
func seize(tid int) bool {
	if ptrace(unix.PTRACE_SEIZE, tid, nil, 0) != nil {
		return false
	}
	return ptrace(unix.PTRACE_INTERRUPT, tid, nil, 0) == nil
}

// stoppedBy reports whether a traced thread has stopped. A thread can also stop to have a signal
// delivered, which stoppedBy returns: letGo delivers it.
func stoppedBy(tid int) (signal uintptr, isStopped bool) {
	var info siginfo
	switch err := ptrace(unix.PTRACE_GETSIGINFO, tid, unsafe.Pointer(&info), 0); {
	case errors.Is(err, unix.ESRCH):
		return 0, false
	case err == nil && info.code>>8 != unix.PTRACE_EVENT_STOP:
		return uintptr(info.signal), true
	}
	return 0, true
}

// letGo ends the tracing of a stopped thread. It fails only for a thread that has ended.
func letGo(tid int, signal uintptr) { _ = ptrace(unix.PTRACE_DETACH, tid, nil, signal) }

// hasEnded reports whether a traced thread has ended, and lets its parent learn of it. The end of
// ownChild, a process that gpurec started itself, is left for whoever waits for that.
func hasEnded(tid, ownChild int) bool {
	var info siginfo
	err := waitid(tid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT)
	if errors.Is(err, unix.ECHILD) {
		return true
	}
	if err != nil || info.pid == 0 || info.code == codeTrapped || info.code == codeStopped {
		return false
	}
	if tid != ownChild {
		_ = waitid(tid, &info, unix.WEXITED|unix.WNOHANG)
	}
	return true
}

// ptrace calls ptrace(2), always from the tracer's thread.
func ptrace(request, tid int, address unsafe.Pointer, data uintptr) error {
	// PTRACE_GETSIGINFO has its address in data.
	if address != nil {
		data = uintptr(address)
	}
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), 0, data, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// Codes of siginfo_t for SIGCHLD (siginfo(7)).
const (
	codeTrapped = 4
	codeStopped = 5
)

// siginfo is siginfo_t on 64-bit Linux, as waitid(2) and PTRACE_GETSIGINFO fill it.
type siginfo struct {
	signal, errno, code, _ int32
	pid, uid, status       int32
	_                      [100]byte
}

// waitid calls waitid(2) for one thread. It returns ECHILD for a thread that is not traced.
func waitid(tid int, info *siginfo, options int) error {
	*info = siginfo{}
	const byPid = 1 // P_PID
	_, _, errno := unix.Syscall6(
		unix.SYS_WAITID,
		byPid,
		uintptr(tid),
		uintptr(unsafe.Pointer(info)),
		uintptr(options|unix.WALL),
		0,
		0,
	)
	if errno != 0 {
		return errno
	}
	return nil
}
