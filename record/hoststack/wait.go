//go:build linux

package hoststack

import (
	"path"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/hoststack/snapshot"
)

// waiting has the facts of one snapshot on a thread and its wait. It is not changed after the snapshot.
type waiting struct {
	state     string // one of the snapshot.State names
	inIOWait  bool
	call      string    // the system call, "" outside of one
	arguments [6]uint64 // of the system call
	cuda      string    // the function of libcuda on the stack, "" for none
	kernel    []string  // functions of the kernel, innermost first
	user      []format.Frame
	memory    waitMemory
}

// newWaiting returns the wait of a thread.
func newWaiting(t *Thread) waiting {
	w := waiting{
		state: t.State, inIOWait: t.InIOWait, call: t.SystemCall, arguments: t.arguments, cuda: t.CUDACall,
		user: t.Frames, memory: t.memory,
	}
	for len(w.user) > 0 && w.user[0].Type == FrameKernel {
		w.kernel, w.user = append(w.kernel, w.user[0].Func), w.user[1:]
	}
	return w
}

// findReason returns why a thread waits, from its own stack and registers alone. Locks with an owner,
// descriptors and children need more: see rounds.findWaits.
func (w *waiting) findReason() string {
	switch w.state {
	case snapshot.StateStopped, snapshot.StateTraced:
		return format.ReasonStopped
	case snapshot.StateRunnable:
		if w.hasInnermost("take_gil") {
			return format.ReasonGIL // it wakes up every 5 ms to ask for the GIL
		}
		return format.ReasonRunQueue
	case snapshot.StateRunning:
		if isSynchronization(w.cuda) {
			return format.ReasonCUDA // it asks the GPU in a loop
		}
		return ""
	}
	switch {
	case w.memory.isGIL || w.hasInnermost("take_gil"):
		return format.ReasonGIL
	case w.isImportLock():
		return format.ReasonImportLock
	case w.cuda != "":
		return format.ReasonCUDA
	case w.isPageFault():
		return format.ReasonPageFault
	}
	if reason, ok := callReasons[w.waitCall()]; ok {
		return reason
	}
	if w.state == snapshot.StateUninterruptible && w.inIOWait {
		return format.ReasonFile
	}
	return ""
}

// callReasons are the reasons of waits by system call. Where a call has a descriptor, that may tell more.
var callReasons = map[string]string{
	"nanosleep":       format.ReasonSleep,
	"clock_nanosleep": format.ReasonSleep,
	"futex":           format.ReasonCondition,
	"futex_wait":      format.ReasonCondition,
	"futex_waitv":     format.ReasonCondition,
	"semop":           format.ReasonCondition,
	"semtimedop":      format.ReasonCondition,
	"msgrcv":          format.ReasonCondition,
	"poll":            format.ReasonPoll,
	"ppoll":           format.ReasonPoll,
	"select":          format.ReasonPoll,
	"pselect6":        format.ReasonPoll,
	"epoll_wait":      format.ReasonPoll,
	"epoll_pwait":     format.ReasonPoll,
	"epoll_pwait2":    format.ReasonPoll,
	"wait4":           format.ReasonChild,
	"waitid":          format.ReasonChild,
	"vfork":           format.ReasonChild,
	"io_getevents":    format.ReasonFile,
	"open":            format.ReasonFile,
	"openat":          format.ReasonFile,
	"openat2":         format.ReasonFile,
	"stat":            format.ReasonFile,
	"lstat":           format.ReasonFile,
	"newstat":         format.ReasonFile,
	"newlstat":        format.ReasonFile,
	"newfstatat":      format.ReasonFile,
	"statx":           format.ReasonFile,
	"access":          format.ReasonFile,
	"faccessat":       format.ReasonFile,
	"faccessat2":      format.ReasonFile,
	"readlink":        format.ReasonFile,
	"readlinkat":      format.ReasonFile,
	"unlink":          format.ReasonFile,
	"unlinkat":        format.ReasonFile,
	"mkdir":           format.ReasonFile,
	"rename":          format.ReasonFile,
	"renameat2":       format.ReasonFile,
	"sync":            format.ReasonFile,
	"pread64":         format.ReasonFile,
	"preadv":          format.ReasonFile,
	"pwrite64":        format.ReasonFile,
	"pwritev":         format.ReasonFile,
	"fsync":           format.ReasonFile,
	"fdatasync":       format.ReasonFile,
	"getdents64":      format.ReasonFile,
	"flock":           format.ReasonFile,
	"accept":          format.ReasonNetwork,
	"accept4":         format.ReasonNetwork,
	"connect":         format.ReasonNetwork,
}

// restarts are kernel functions of waits that the kernel continues after a signal, in the system call
// restart_syscall, and the calls that they continue.
var restarts = map[string]string{
	"hrtimer_nanosleep": "clock_nanosleep", "do_nanosleep": "clock_nanosleep", "do_sys_poll": "poll",
	"do_restart_poll": "poll", "futex_wait": "futex", "futex_wait_restart": "futex",
}

// waitCall returns the system call in which the thread waits: for a restarted one, the first one.
func (w *waiting) waitCall() string {
	if w.call != "restart_syscall" {
		return w.call
	}
	for _, function := range w.kernel {
		if call, ok := restarts[function]; ok {
			return call
		}
	}
	return w.call
}

// inKernel reports whether one of the functions is on the kernel stack.
func (w *waiting) inKernel(functions ...string) bool {
	return slices.ContainsFunc(w.kernel, func(f string) bool { return slices.Contains(functions, f) })
}

// isPageFault reports whether the thread waits for a page in user mode, not in a system call.
func (w *waiting) isPageFault() bool {
	return w.call == "" && w.inKernel(
		"asm_exc_page_fault", "exc_page_fault", "do_user_addr_fault", "do_page_fault", "handle_mm_fault")
}

// maxInnermost is how many of the innermost native frames tell for which lock a thread waits.
const maxInnermost = 6

// hasInnermost reports whether a C function is among the innermost native frames. Names are compared
// without leading underscores and versions.
func (w *waiting) hasInnermost(functions ...string) bool {
	seen := 0
	for i := range w.user {
		f := &w.user[i]
		if f.Type != "native" {
			return false
		}
		if slices.Contains(functions, plainName(f.Func)) {
			return true
		}
		if seen++; seen == maxInnermost {
			return false
		}
	}
	return false
}

// plainName returns the name of a C function without leading underscores and without a version.
func plainName(function string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(function, "_"), "@")
	return name
}

// isMutexWait reports whether the thread waits in a mutex of the GNU C library, which stores the owner.
func (w *waiting) isMutexWait() bool {
	if w.waitCall() != "futex" || !w.hasInnermost(
		"pthread_mutex_lock", "pthread_mutex_timedlock", "pthread_mutex_clocklock", "pthread_mutex_cond_lock",
		"lll_lock_wait", "lll_timedlock_wait", "lll_clocklock_wait", "pthread_mutex_lock_full") {
		return false
	}
	base := path.Base(w.user[0].Module)
	return strings.HasPrefix(base, "libc.so") || strings.HasPrefix(base, "libpthread") ||
		strings.HasPrefix(base, "libc-") || w.user[0].Module == ""
}

// importlib is the file name of CPython's import system.
const importlib = "<frozen importlib._bootstrap>"

// isImportLock reports whether the thread waits for the lock of a module that another thread imports.
func (w *waiting) isImportLock() bool {
	for i := range w.user {
		f := &w.user[i]
		if f.Type != "python" {
			continue
		}
		// The innermost Python frame: an importing thread has others of importlib further out.
		return f.File == importlib && strings.HasPrefix(f.Func, "_ModuleLock.acquire")
	}
	return false
}

// isImporting reports whether the thread runs the code of a module that it imports.
func (w *waiting) isImporting() bool {
	return !w.isImportLock() && slices.ContainsFunc(w.user, func(f format.Frame) bool {
		return f.Type == "python" && f.File == importlib && strings.HasPrefix(f.Func, "_find_and_load")
	})
}

// isSynchronization reports whether a function of libcuda waits until the GPU has finished work.
func isSynchronization(function string) bool { return strings.Contains(function, "Synchronize") }
