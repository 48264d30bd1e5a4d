//go:build linux

package hoststack

import "golang.org/x/sys/unix"

// callNames are system calls that wait, by number. The compiler turns calls at the end of a function of
// the kernel into jumps, which leave no frame on its stack.
var callNames = map[int64]string{
	unix.SYS_READ: "read", unix.SYS_WRITE: "write", unix.SYS_READV: "readv", unix.SYS_WRITEV: "writev",
	unix.SYS_PREAD64: "pread64", unix.SYS_PWRITE64: "pwrite64", unix.SYS_OPEN: "open", unix.SYS_OPENAT: "openat",
	unix.SYS_POLL: "poll", unix.SYS_PPOLL: "ppoll", unix.SYS_SELECT: "select", unix.SYS_PSELECT6: "pselect6",
	unix.SYS_EPOLL_WAIT: "epoll_wait", unix.SYS_EPOLL_PWAIT: "epoll_pwait", unix.SYS_FUTEX: "futex",
	unix.SYS_NANOSLEEP: "nanosleep", unix.SYS_CLOCK_NANOSLEEP: "clock_nanosleep", unix.SYS_WAIT4: "wait4",
	unix.SYS_WAITID: "waitid", unix.SYS_RECVFROM: "recvfrom", unix.SYS_RECVMSG: "recvmsg",
	unix.SYS_SENDTO: "sendto", unix.SYS_SENDMSG: "sendmsg", unix.SYS_ACCEPT: "accept", unix.SYS_ACCEPT4: "accept4",
	unix.SYS_CONNECT: "connect", unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_IOCTL: "ioctl",
	unix.SYS_FLOCK: "flock", unix.SYS_FCNTL: "fcntl", unix.SYS_PAUSE: "pause", unix.SYS_SENDFILE: "sendfile",
	unix.SYS_NEWFSTATAT: "newfstatat", unix.SYS_STATX: "statx", unix.SYS_GETDENTS64: "getdents64",
	unix.SYS_VFORK: "vfork", unix.SYS_IO_GETEVENTS: "io_getevents", unix.SYS_SEMTIMEDOP: "semtimedop",
	unix.SYS_RESTART_SYSCALL: "restart_syscall",
}
