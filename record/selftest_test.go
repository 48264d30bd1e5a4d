//go:build linux

package record

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/unwind"
)

// TestSelfTestDetectsABrokenUnwinder runs the self-test with a working unwinder, and with an
// unwinder that is never called.
func TestSelfTestDetectsABrokenUnwinder(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	u, err := unwind.Start(newUnwindOptions(privilege.AttachAuto.ResolveForKernel()))
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	p, err := probe.LoadPrograms(
		probe.Options{
			How:         privilege.AttachAuto.ResolveForKernel(),
			BufferBytes: 1 << 20,
			Stacks:      probe.StacksFull,
			Unwinder:    u,
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := probe.SelfTestUnwinding(p, u); err != nil {
		t.Error(err)
	}
	for class := range bpf.CudaCallClassCLASS_COUNT {
		var perCPU []bpf.CudaClassStats
		if err := p.Objects.Stats.Lookup(uint32(class), &perCPU); err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(perCPU, func(s bpf.CudaClassStats) bool { return s != bpf.CudaClassStats{} }) {
			t.Errorf("the self-test was counted: %+v", perCPU)
		}
	}
	if open, err := p.OpenCalls(); err != nil || len(open) != 0 {
		t.Errorf("open calls: %v, %v", open, err)
	}
	if err := u.Programs().Delete(uint32(bpf.CudaUnwinderSlotUNWINDER_ENTRY)); err != nil {
		t.Fatal(err)
	}
	if err := probe.SelfTestUnwinding(p, u); err == nil || !strings.Contains(err.Error(), "no stack was unwound") {
		t.Errorf("without the unwinder's programs: %v", err)
	}
}
