//go:build linux

package record

import (
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestNCCLInOtherFiles records NCCL in a library with another name, in the program itself, and behind a wrapper of
// LD_PRELOAD. Each call is recorded once.
func TestNCCLInOtherFiles(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	wrapper, err := filepath.Abs(filepath.Join(simcudaDir, "libncclwrapper.so"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, program string
		environment   []string
	}{
		{"renamed", "ncclcalls", []string{"SIMNCCL_LIBRARY=libnccl-custom.so.2"}},
		{"linked", "ncclstatic", nil},
		{"wrapper", "ncclcalls", []string{"SIMNCCL_PRELOADED=1", "LD_PRELOAD=" + wrapper}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ledger := filepath.Join(t.TempDir(), "nccl.tsv")
			p := startSim(t, append(c.environment, "SIMNCCL_LEDGER="+ledger, "SIMNCCL_DIR="+t.TempDir()), c.program,
				"--ranks", "2", "--wait")
			p.expect("ready")
			opt := testOptions(t, p.pid())
			s := start(t, opt)
			sinceNs := monotonic()
			runWhile(t, s, func() {
				p.step()
				p.expect("done")
				p.finish()
			})
			compareNCCL(t, opt.Output, ledger, sinceNs, false)
		})
	}
}
