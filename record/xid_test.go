//go:build linux

package record

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/simtest"
	"github.com/gpurec/gpurec/record/xid"
)

// TestXidProgramIsAccepted loads the BPF program for the Xid tracepoint. The tracepoint exists only
// with NVIDIA's driver.
func TestXidProgramIsAccepted(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	err := xid.CheckBPFProgram()
	switch {
	case err == nil, errors.Is(err, os.ErrNotExist): // no tracepoint: the verifier has accepted the program
	case strings.Contains(err.Error(), "pci_dev"):
		testclass.Missing(t, "this kernel has no PCI: "+err.Error())
	default:
		t.Error(err)
	}
}

func TestXidsAreRecorded(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	f := simtest.NewSimulatedXids(t)
	f.WriteKernelLog(
		"nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
		f.LimitToUptime(time.Hour),
	)
	fmt.Fprintln(f.TraceFile, "  prog-7  [000] d..1.     1.000000: other_event: ")
	p := startSim(t, nil, "storm", "--calls", "100", "--threads", "1", "--seed", "1", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.xids = &xid.SourcePaths{Kmsg: f.LogPath, Tracefs: f.TracefsPaths}
	s := start(t, opt)
	result := runWhile(t, s, func() {
		simtest.AwaitPipeRead(t, f.TraceFile) // wait until the existing text of the log has been read
		f.WriteTracePipe(`dev=0000:00:06.0 error_code=31 msg="channel 0x0a, MMU Fault"`)
		f.WriteKernelLog("NVRM: Xid (PCI:0000:00:06): 31, pid=462, name=illegal, channel 0x0a, MMU Fault", 0)
		p.step()
		p.expect("done")
	})
	p.finish()
	rows := factRows(t, result.Output, format.KindXid)
	if len(rows) != 2 || rows[0].Name != format.NameSXid || rows[0].Value != 20034 || rows[1].Value != 31 ||
		rows[1].Pid != 462 ||
		!strings.Contains(rows[1].Message, `"sources":["tracepoint","kmsg"]`) {
		t.Errorf("%+v", rows)
	}
}
