//go:build linux && cgo

package record

import (
	"os"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/ps"
	"github.com/gpurec/gpurec/record/simtest"
)

// TestListHasWhatNVMLReports lists a program that computes on a GPU, and a program that has mapped
// the driver's library and uses no GPU.
func TestListHasWhatNVMLReports(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	answers := simtest.LoadSimulatedNVML(t, simcudaDir)
	t.Setenv("SIMCUDA_DEVICES", "2")
	p := startSim(t, []string{"SIMCUDA_STATE=" + os.Getenv("SIMCUDA_STATE")}, "storm", "--calls", "100", "--wait")
	p.expect("ready")
	idle := startSim(t, []string{"SIMCUDA_STATE=" + os.Getenv("SIMCUDA_STATE")}, "torchrun", "--wait")
	idle.expect("ready")
	simtest.SetNVMLAnswers(t, answers, "nvmlDeviceGetProcessUtilization 71 33 0 0")
	list := ps.List(true)
	got, without := listedProcess(list, p.pid()), listedProcess(list, idle.pid())
	if list.NVMLErr != nil || got == nil || without == nil {
		t.Fatalf("%+v", list)
	}
	if len(got.GPUs) != 2 { // storm uses both GPUs
		t.Fatalf("%+v", got.GPUs)
	}
	for i, use := range got.GPUs {
		if use.Index != i || use.Name != "SimCUDA GPU" || !strings.HasPrefix(use.UUID, "GPU-") {
			t.Errorf("%+v", use)
		}
		if use.MemoryBytes == nil || *use.MemoryBytes <= 0 && i == 0 || use.SMPercent == nil || *use.SMPercent != 71 {
			t.Errorf("%+v", use)
		}
	}
	if without.GPUs == nil || len(without.GPUs) != 0 {
		t.Errorf("a process without GPU memory is listed on GPUs %v", without.GPUs)
	}

	// Values that the driver does not support are absent, not 0.
	simtest.SetNVMLAnswers(t, answers, "nvmlDeviceGetProcessUtilization not_supported")
	list = ps.List(true)
	if use := listedProcess(list, p.pid()).GPUs[0]; use.SMPercent != nil || use.MemoryBytes == nil {
		t.Errorf("%+v", use)
	}
	simtest.SetNVMLAnswers(
		t,
		answers,
		"nvmlDeviceGetComputeRunningProcesses_v3 lost",
		"nvmlDeviceGetComputeRunningProcesses_v2 lost",
	)
	list = ps.List(true)
	if list.NVMLErr == nil || listedProcess(list, p.pid()).GPUs != nil {
		t.Errorf("%v: %+v", list.NVMLErr, listedProcess(list, p.pid()))
	}
	for _, says := range []string{"GPU 0", "GPU 1"} {
		if !strings.Contains(list.NVMLErr.Error(), says) {
			t.Errorf("%q does not name %s", list.NVMLErr, says)
		}
	}
}
