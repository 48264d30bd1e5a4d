//go:build linux

package hostcontext

// olderCalls is empty: the architecture has none of the older system calls.
var olderCalls map[int32]systemCall
