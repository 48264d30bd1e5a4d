//go:build linux

package hoststack

import "golang.org/x/sys/unix"

// olderCalls are system calls that newer architectures do not have.
var olderCalls = map[int64]string{
	unix.SYS_OPEN: "open", unix.SYS_POLL: "poll", unix.SYS_SELECT: "select", unix.SYS_EPOLL_WAIT: "epoll_wait",
	unix.SYS_PAUSE: "pause", unix.SYS_VFORK: "vfork", unix.SYS_STAT: "stat", unix.SYS_LSTAT: "lstat",
	unix.SYS_UNLINK: "unlink",
}
