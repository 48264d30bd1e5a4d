//go:build linux

package unwind

import (
	"errors"

	"go.opentelemetry.io/ebpf-profiler/tracer"
)

// ErrUnpatched is the error of a build without the patches in record/unwind/patches. Its stacks
// have native frames only, because Python frames would have wrong lines.
var ErrUnpatched = errors.New("no Python frames: gpurec was built without the patches of its unwinder")

// IsPatched reports whether this build uses the patched copy of the profiler's module. make build
// does, go install does not. One of the patches adds the method HasGpurecPatches.
func IsPatched() bool {
	t, ok := any((*tracer.Tracer)(nil)).(interface{ HasGpurecPatches() bool })
	return ok && t.HasGpurecPatches()
}
