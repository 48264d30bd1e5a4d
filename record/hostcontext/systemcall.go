//go:build linux

package hostcontext

import (
	"maps"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
)

// systemCalls are the system calls in which threads often wait, by number.
var systemCalls = joinCalls(olderCalls, map[int32]systemCall{
	unix.SYS_NANOSLEEP:       {"nanosleep", format.ReasonSleep},
	unix.SYS_CLOCK_NANOSLEEP: {"clock_nanosleep", format.ReasonSleep},
	unix.SYS_FUTEX:           {"futex", ""},
	unix.SYS_FUTEX_WAITV:     {"futex_waitv", ""},
	unix.SYS_SEMTIMEDOP:      {"semtimedop", format.ReasonCondition},
	unix.SYS_PPOLL:           {"ppoll", format.ReasonPoll},
	unix.SYS_PSELECT6:        {"pselect6", format.ReasonPoll},
	unix.SYS_EPOLL_PWAIT:     {"epoll_pwait", format.ReasonPoll},
	unix.SYS_EPOLL_PWAIT2:    {"epoll_pwait2", format.ReasonPoll},
	unix.SYS_WAIT4:           {"wait4", format.ReasonChild},
	unix.SYS_WAITID:          {"waitid", format.ReasonChild},
	unix.SYS_READ:            {"read", ""},
	unix.SYS_READV:           {"readv", ""},
	unix.SYS_PREAD64:         {"pread64", format.ReasonFile},
	unix.SYS_PREADV:          {"preadv", format.ReasonFile},
	unix.SYS_WRITE:           {"write", ""},
	unix.SYS_WRITEV:          {"writev", ""},
	unix.SYS_PWRITE64:        {"pwrite64", format.ReasonFile},
	unix.SYS_PWRITEV:         {"pwritev", format.ReasonFile},
	unix.SYS_RECVFROM:        {"recvfrom", ""},
	unix.SYS_RECVMSG:         {"recvmsg", ""},
	unix.SYS_SENDTO:          {"sendto", ""},
	unix.SYS_SENDMSG:         {"sendmsg", ""},
	unix.SYS_ACCEPT:          {"accept", format.ReasonNetwork},
	unix.SYS_ACCEPT4:         {"accept4", format.ReasonNetwork},
	unix.SYS_CONNECT:         {"connect", format.ReasonNetwork},
	unix.SYS_FSYNC:           {"fsync", format.ReasonFile},
	unix.SYS_FDATASYNC:       {"fdatasync", format.ReasonFile},
	unix.SYS_OPENAT:          {"openat", format.ReasonFile},
	unix.SYS_NEWFSTATAT:      {"newfstatat", format.ReasonFile},
	unix.SYS_STATX:           {"statx", format.ReasonFile},
	unix.SYS_GETDENTS64:      {"getdents64", format.ReasonFile},
	unix.SYS_UNLINKAT:        {"unlinkat", format.ReasonFile},
	unix.SYS_IO_GETEVENTS:    {"io_getevents", format.ReasonFile},
	unix.SYS_IO_URING_ENTER:  {"io_uring_enter", ""},
	unix.SYS_IOCTL:           {"ioctl", ""},
	unix.SYS_MMAP:            {"mmap", ""},
	unix.SYS_MUNMAP:          {"munmap", ""},
	unix.SYS_MPROTECT:        {"mprotect", ""},
	unix.SYS_MADVISE:         {"madvise", ""},
	unix.SYS_SCHED_YIELD:     {"sched_yield", ""},
	unix.SYS_RT_SIGTIMEDWAIT: {"rt_sigtimedwait", ""},
	unix.SYS_RT_SIGSUSPEND:   {"rt_sigsuspend", ""},
	unix.SYS_RESTART_SYSCALL: {"restart_syscall", ""},
	unix.SYS_CLONE:           {"clone", ""},
	unix.SYS_CLONE3:          {"clone3", ""},
	unix.SYS_EXECVE:          {"execve", ""},
	unix.SYS_FLOCK:           {"flock", format.ReasonFile},
	unix.SYS_SPLICE:          {"splice", ""},
})

// joinCalls returns all calls of several tables.
func joinCalls(tables ...map[int32]systemCall) map[int32]systemCall {
	all := make(map[int32]systemCall)
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}
