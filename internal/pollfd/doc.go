// Package pollfd waits for file descriptors by the poller of Go's runtime.
//
// In a system call that blocks, the runtime looks every 20 µs for a while whether the call has ended. A goroutine that
// waits a hundred times a second in such a call costs several percent of a core.
package pollfd
