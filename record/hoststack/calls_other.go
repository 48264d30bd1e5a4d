//go:build linux && !amd64

package hoststack

// callNames are system calls by number. The registers of this processor do not tell the number.
var callNames map[int64]string
