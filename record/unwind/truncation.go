//go:build linux

package unwind

import "github.com/gpurec/gpurec/format"

// TruncationCause returns the cause of a truncated stack, one of format's Truncation constants, for
// an error code of the profiler: see support/ebpf/errors.h.
func TruncationCause(code uint32) string {
	switch {
	case code == 2 || code == 5:
		return format.TruncationDepth
	case code >= 2000 && code < 3000:
		return format.TruncationPython
	case code == 4000 || code == 4001 || code == 4002 || code == 4012:
		return format.TruncationMapping
	case code >= 4000 && code < 5000:
		return format.TruncationCode
	}
	return format.TruncationOther
}
