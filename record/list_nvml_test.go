//go:build linux && cgo

package record

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// TestListHasWhatNVMLSays lists a program that computes on a GPU, and one that has the driver's
// library mapped and uses no GPU.
func TestListHasWhatNVMLSays(t *testing.T) {
	answers := simNVML(t)
	t.Setenv("SIMCUDA_DEVICES", "2")
	p := startSim(t, []string{"SIMCUDA_STATE=" + os.Getenv("SIMCUDA_STATE")}, "storm", "--calls", "100", "--wait")
	p.expect("ready")
	idle := startSim(t, []string{"SIMCUDA_STATE=" + os.Getenv("SIMCUDA_STATE")}, "torchrun", "--wait")
	idle.expect("ready")
	say(t, answers, "nvmlDeviceGetProcessUtilization 71 33 0 0")
	list := ListProcesses(true)
	got, without := listed(list, p.pid()), listed(list, idle.pid())
	if list.NVMLErr != nil || got == nil || without == nil {
		t.Fatalf("%+v", list)
	}
	if len(got.GPUs) != 2 { // storm uses both
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
		t.Errorf("a process without memory is on %v", without.GPUs)
	}

	// What the driver does not support is absent, not 0.
	say(t, answers, "nvmlDeviceGetProcessUtilization not_supported")
	list = ListProcesses(true)
	if use := listed(list, p.pid()).GPUs[0]; use.SMPercent != nil || use.MemoryBytes == nil {
		t.Errorf("%+v", use)
	}
	say(t, answers, "nvmlDeviceGetComputeRunningProcesses_v3 lost", "nvmlDeviceGetComputeRunningProcesses_v2 lost")
	list = ListProcesses(true)
	if list.NVMLErr == nil || listed(list, p.pid()).GPUs != nil {
		t.Errorf("%v: %+v", list.NVMLErr, listed(list, p.pid()))
	}
	for _, says := range []string{"GPU 0", "GPU 1"} {
		if !strings.Contains(list.NVMLErr.Error(), says) {
			t.Errorf("%q does not name %s", list.NVMLErr, says)
		}
	}
}

// TestListKeysHaveUnits holds the keys of the JSON for programs.
func TestListKeysHaveUnits(t *testing.T) {
	uid, percent, rank, bytes := 1000, 0, 0, int64(0)
	p := CUDAProcess{Pid: 1, User: "u", UID: &uid, Command: "c", CommandLine: []string{"c"}, ContainerID: "i", Cgroup: "/", StartedUnixNs: 1,
		GPUs: []GPUUse{{UUID: "GPU-1", Name: "n", MemoryBytes: &bytes, SMPercent: &percent}, {Index: 1}}}
	p.Rank, p.WorldSize, p.LocalRank, p.Job = &rank, &uid, &rank, "j"
	for _, c := range []struct {
		process CUDAProcess
		want    string
	}{
		{p, `{"pid":1,"user":"u","uid":1000,"command":"c","command_line":["c"],"gpus":[{"index":0,"uuid":"GPU-1","name":"n","memory_bytes":0,"sm_percent":0},{"index":1}],` +
			`"rank":0,"world_size":1000,"local_rank":0,"job":"j","container_id":"i","cgroup":"/","started_unix_ns":1}`},
		{CUDAProcess{Pid: 2, GPUs: []GPUUse{}}, `{"pid":2,"gpus":[]}`},
		{CUDAProcess{Pid: 3}, `{"pid":3}`},
	} {
		if got, err := json.Marshal(c.process); err != nil || string(got) != c.want {
			t.Errorf("%s, not %s: %v", got, c.want, err)
		}
	}
}

func TestMemoryOfMIGInstancesIsSummed(t *testing.T) {
	memory := memoryByPid([]nvml.ProcessInfo{{Pid: 1, UsedGpuMemory: 5}, {Pid: 1, UsedGpuMemory: 6}, {Pid: 2, UsedGpuMemory: 7}, {Pid: 2, UsedGpuMemory: notAvailable}})
	if len(memory) != 2 || memory[1] == nil || *memory[1] != 11 || memory[2] != nil {
		t.Errorf("%v", memory)
	}
}
