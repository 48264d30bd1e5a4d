//go:build linux

package privilege

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"

	"github.com/gpurec/gpurec/record/host"
)

// Attach selects the kernel interface by which probes are placed.
type Attach string

// Ways to attach. AttachAuto takes the best that the kernel has.
const (
	AttachAuto Attach = "auto"
	// AttachMulti: one uprobe_multi link for all functions of a library (Linux 6.6).
	AttachMulti Attach = "uprobe_multi"
	// AttachPerf: one perf event per function, entry and return (Linux 5.15).
	// Detaching takes 0.05 to 0.3 s each: it comes when the file is finished.
	AttachPerf Attach = "perf"
)

// OnThisKernel returns the way to attach; for AttachAuto, the best that this kernel has.
func (a Attach) OnThisKernel() Attach {
	if a != AttachAuto && a != "" {
		return a
	}
	err := features.HaveBPFLinkUprobeMulti()
	if err == nil || !errors.Is(err, ebpf.ErrNotSupported) && !host.OlderThan(host.Release(), 6, 6) {
		return AttachMulti // or nobody but the kernel's age can tell: asking needs rights too
	}
	return AttachPerf
}
