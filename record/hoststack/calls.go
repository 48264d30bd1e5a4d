//go:build linux

package hoststack

import (
	"maps"

	"golang.org/x/sys/unix"
)

// callNames are the system calls in which threads often wait, by number. The kernel stack does not have all of
// them: the compiler turns calls at the end of a function into jumps, which leave no frame.
var callNames = joinCalls(olderCalls, map[int64]string{
	unix.SYS_NANOSLEEP: "nanosleep", unix.SYS_CLOCK_NANOSLEEP: "clock_nanosleep", unix.SYS_FUTEX: "futex",
	unix.SYS_FUTEX_WAITV: "futex_waitv", unix.SYS_SEMTIMEDOP: "semtimedop", unix.SYS_PPOLL: "ppoll",
	unix.SYS_PSELECT6: "pselect6", unix.SYS_EPOLL_PWAIT: "epoll_pwait", unix.SYS_EPOLL_PWAIT2: "epoll_pwait2",
	unix.SYS_WAIT4: "wait4", unix.SYS_WAITID: "waitid", unix.SYS_READ: "read", unix.SYS_READV: "readv",
	unix.SYS_PREAD64: "pread64", unix.SYS_PREADV: "preadv", unix.SYS_WRITE: "write", unix.SYS_WRITEV: "writev",
	unix.SYS_PWRITE64: "pwrite64", unix.SYS_PWRITEV: "pwritev", unix.SYS_RECVFROM: "recvfrom",
	unix.SYS_RECVMSG: "recvmsg", unix.SYS_SENDTO: "sendto", unix.SYS_SENDMSG: "sendmsg",
	unix.SYS_SENDFILE: "sendfile", unix.SYS_ACCEPT: "accept", unix.SYS_ACCEPT4: "accept4",
	unix.SYS_CONNECT: "connect", unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync",
	unix.SYS_OPENAT: "openat", unix.SYS_NEWFSTATAT: "newfstatat", unix.SYS_STATX: "statx",
	unix.SYS_GETDENTS64: "getdents64", unix.SYS_UNLINKAT: "unlinkat", unix.SYS_IO_GETEVENTS: "io_getevents",
	unix.SYS_IO_URING_ENTER: "io_uring_enter", unix.SYS_IOCTL: "ioctl", unix.SYS_FCNTL: "fcntl",
	unix.SYS_MMAP: "mmap", unix.SYS_MUNMAP: "munmap", unix.SYS_MPROTECT: "mprotect", unix.SYS_MADVISE: "madvise",
	unix.SYS_SCHED_YIELD: "sched_yield", unix.SYS_RT_SIGTIMEDWAIT: "rt_sigtimedwait",
	unix.SYS_RT_SIGSUSPEND: "rt_sigsuspend", unix.SYS_RESTART_SYSCALL: "restart_syscall", unix.SYS_CLONE: "clone",
	unix.SYS_CLONE3: "clone3", unix.SYS_EXECVE: "execve", unix.SYS_FLOCK: "flock", unix.SYS_SPLICE: "splice",
})

// joinCalls returns all calls of several tables.
func joinCalls(tables ...map[int64]string) map[int64]string {
	all := make(map[int64]string)
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

// SystemCallName returns the name of a system call by its number, "" if threads seldom wait in it.
func SystemCallName(number int64) string { return callNames[number] }

// SystemCallReason returns why a thread waits in a system call, one of the format.Reason constants. It returns ""
// if the call alone does not tell. A futex may be the GIL of Python.
func SystemCallReason(name string) string { return callReasons[name] }
