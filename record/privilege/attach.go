//go:build linux

package privilege

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"

	"github.com/gpurec/gpurec/record/host"
)

// AttachMethod is the kernel interface that attaches probes.
type AttachMethod string

// Kernel interfaces that attach probes. AttachAuto selects the best one of the running kernel.
const (
	AttachAuto AttachMethod = "auto"
	// AttachMulti uses one uprobe_multi link for all functions of a library (since Linux 6.6).
	AttachMulti AttachMethod = "uprobe_multi"
	// AttachPerf uses one perf event for each entry and each return (since Linux 5.15). Detaching
	// one takes 0.05 to 0.3 s, so it happens while the file is finished.
	AttachPerf AttachMethod = "perf"
)

// ResolveForKernel returns the interface to use. For AttachAuto it is the best one of this kernel.
func (a AttachMethod) ResolveForKernel() AttachMethod {
	if a != AttachAuto && a != "" {
		return a
	}
	err := features.HaveBPFLinkUprobeMulti()
	if err == nil || !errors.Is(err, ebpf.ErrNotSupported) && !host.IsOlderRelease(host.KernelRelease(), 6, 6) {
		return AttachMulti // or the test needs more privileges, and the version says 6.6
	}
	return AttachPerf
}
