//go:build linux && !amd64

package hoststack

// pointerIsSelf says that the thread pointer is pthread_self(), which CPython stores. On other
// processors, threads are matched by their thread ID in the namespace of the process.
const pointerIsSelf = false

// Numbers of system calls that only some processors have; negative: this one has not.
const (
	sysPoll, sysSelect, sysOpen, sysStat, sysNewfstatat = -1, -2, -3, -4, -5
)
