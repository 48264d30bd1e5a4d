//go:build linux

package unwind

import "github.com/gpurec/gpurec/format"

// Why says in a word what the profiler's error code means: support/ebpf/errors.h.
func Why(code uint32) string {
	switch {
	case code == 2 || code == 5:
		return format.WhyDepth
	case code >= 2000 && code < 3000:
		return format.WhyPython
	case code == 4000 || code == 4001 || code == 4002 || code == 4012:
		return format.WhyMapping
	case code >= 4000 && code < 5000:
		return format.WhyCode
	}
	return format.WhyOther
}
