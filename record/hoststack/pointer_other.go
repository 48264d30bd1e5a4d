//go:build linux && !amd64

package hoststack

// pointerIsSelf says that the thread pointer is pthread_self(), which CPython stores. On other
// processors, threads are matched by their thread ID in the namespace of the process.
const pointerIsSelf = false
