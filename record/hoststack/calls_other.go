//go:build linux && !amd64

package hoststack

// olderCalls is empty: the architecture has none of the older system calls.
var olderCalls map[int64]string
