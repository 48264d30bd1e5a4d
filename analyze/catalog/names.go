package catalog

import "strings"

// BaseName returns the name of a CUDA function without the suffix of its per-thread default stream
// variant.
func BaseName(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, "_ptsz"), "_ptds")
}

// UnknownKernel is the name of kernels whose name is unknown.
const UnknownKernel = "(unknown)"
