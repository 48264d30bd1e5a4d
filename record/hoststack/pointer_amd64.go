//go:build linux

package hoststack

import "golang.org/x/sys/unix"

// pointerIsSelf says that the thread pointer is pthread_self(), which CPython stores. On other
// processors, threads are matched by their thread ID in the namespace of the process.
const pointerIsSelf = true

// Numbers of system calls that only some processors have.
const (
	sysPoll, sysSelect = unix.SYS_POLL, unix.SYS_SELECT
	sysOpen, sysStat   = unix.SYS_OPEN, unix.SYS_STAT
	sysNewfstatat      = unix.SYS_NEWFSTATAT
)
