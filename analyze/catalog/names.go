package catalog

import "strings"

// BaseName is the name of a call without the suffix of its per-thread-stream variant.
func BaseName(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, "_ptsz"), "_ptds")
}

// UnknownKernel stands for kernels whose name was not found out.
const UnknownKernel = "(unknown)"
