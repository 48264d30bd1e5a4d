//go:build linux

package record

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/unwind"
)

// TestUnwinderProvesItself runs the self-test with an unwinder that works, and with one
// that is never entered.
func TestUnwinderProvesItself(t *testing.T) {
	needKernel(t)
	u, err := unwind.Start(unwindOptions(AttachAuto.onThisKernel()))
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	p, err := loadProbes(probeOptions{how: AttachAuto.onThisKernel(), bufferBytes: 1 << 20, stacks: StacksFull, unwinder: u})
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if err := selfTest(p, u); err != nil {
		t.Error(err)
	}
	if calls := newAccounts(p, newClock()).calls(); len(calls) != 0 {
		t.Errorf("the self-test left traces in the books: %v", calls)
	}
	if open, err := p.openCalls(); err != nil || len(open) != 0 {
		t.Errorf("open calls: %v, %v", open, err)
	}
	if err := u.Programs().Delete(uint32(bpf.CudaUnwinderSlotUNWINDER_ENTRY)); err != nil {
		t.Fatal(err)
	}
	if err := selfTest(p, u); err == nil || !strings.Contains(err.Error(), "no stack was unwound") {
		t.Errorf("without the unwinder's programs: %v", err)
	}
}
