//go:build linux

package record

import (
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestLostNCCLCallsAreCounted records calls of NCCL with a tiny ring buffer. Recorded and lost calls together are
// those of the ledger.
func TestLostNCCLCallsAreCounted(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	ledger := filepath.Join(t.TempDir(), "nccl.tsv")
	p := startSim(t, []string{"SIMNCCL_LEDGER=" + ledger, "SIMNCCL_DIR=" + t.TempDir()}, "ncclcalls",
		"--ranks", "4", "--remake", "500", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.BufferBytes = 64 << 10
	s := start(t, opt)
	sinceNs := monotonic()
	runWhile(t, s, func() {
		p.step()
		p.expect("done")
		p.finish()
	})
	happened := int64(0)
	for _, calls := range readNCCLLedger(t, ledger) {
		for i := range calls {
			if calls[i].startNs >= sinceNs {
				happened++
			}
		}
	}
	count := metaOf(t, opt.Output).Calls["collective"]
	t.Logf("%d calls happened, %+v", happened, count)
	if count.Recorded+count.Lost != happened || count.Seen != happened {
		t.Errorf("recorded %d and lost %d, want %d", count.Recorded, count.Lost, happened)
	}
	if count.Recorded == 0 {
		t.Error("no call was recorded")
	}
	if count.Lost == 0 {
		t.Log("no call was lost: this machine reads the buffer fast")
	}
}
