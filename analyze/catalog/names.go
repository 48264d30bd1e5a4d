package catalog

import "strings"

// BaseFunctionName returns the name of a CUDA function without the suffix of its per-thread default
// stream variant.
func BaseFunctionName(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, "_ptsz"), "_ptds")
}

// UnknownKernelName is the name of kernels whose name is unknown.
const UnknownKernelName = "(unknown)"
