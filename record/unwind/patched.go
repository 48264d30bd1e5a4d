//go:build linux

package unwind

import (
	"errors"

	"go.opentelemetry.io/ebpf-profiler/tracer"
)

// ErrUnpatched means that this build uses the profiler's module without the patches in
// record/unwind/patches. Stacks then have native frames only: Python frames would have wrong lines.
var ErrUnpatched = errors.New("no Python frames: gpurec was built without the patches of its unwinder")

// Patched reports whether this build uses the patched copy of the profiler's module, which make
// build does and go install does not. One of the patches adds the method that Patched looks for.
func Patched() bool {
	t, ok := any((*tracer.Tracer)(nil)).(interface{ HasGpurecPatches() bool })
	return ok && t.HasGpurecPatches()
}
