//go:build linux

package record

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/identity"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/ps"
)

// listedProcess returns the entry of a process in a listing, or nil.
func listedProcess(list ps.Listing, pid int) *ps.Process {
	for i := range list.Processes {
		if list.Processes[i].Pid == pid {
			return &list.Processes[i]
		}
	}
	return nil
}

// needSimcuda skips a test if simcuda is not built, see package simtest.
func needSimcuda(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(simcudaDir, "libcuda.so.1")); err != nil {
		testclass.Missing(t, "simcuda is not built: make simcuda")
	}
}

func TestListDescribesProcesses(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needSimcuda(t)
	before := time.Now()
	p := startSim(t, []string{"RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1"}, "storm", "--calls", "100", "--wait")
	p.expect("ready")
	other := exec.Command("sleep", "600") // a process that does not use CUDA
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	list := ps.List(false)
	got := listedProcess(list, p.pid())
	if got == nil {
		t.Fatalf("process %d is not listed: %+v", p.pid(), list)
	}
	if listedProcess(list, other.Process.Pid) != nil || listedProcess(list, os.Getpid()) != nil {
		t.Error("processes that do not use CUDA are listed")
	}
	path := p.cmd.Path
	if got.Command != "storm" || !slices.Equal(got.CommandLine, []string{path, "--calls", "100", "--wait"}) ||
		*got.UID != os.Getuid() {
		t.Errorf("%+v", got)
	}
	if started := time.Unix(
		0,
		got.StartedUnixNs,
	); started.Before(before.Add(-20*time.Millisecond)) ||
		started.After(time.Now()) {
		t.Errorf("started at %v, not after %v", started, before)
	}
	if got.GPUs != nil || list.NVMLErr != nil {
		t.Errorf("the listing has GPUs although NVML is off: %v, %v", got.GPUs, list.NVMLErr)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.pid()))
	if err != nil {
		t.Fatal(err)
	}
	if path, _ := process.ParseCgroupPath(string(text)); got.Cgroup != path || path != "" && !got.IsInCgroup(path) {
		t.Errorf("cgroup %q, not %q", got.Cgroup, path)
	}
	if want := identity.FindIdentity(
		"RANK=3\x00WORLD_SIZE=8\x00LOCAL_RANK=1\x00",
		"",
	); !reflect.DeepEqual(got.Rank, want.Rank) ||
		!reflect.DeepEqual(got.WorldSize, want.WorldSize) {
		t.Errorf("identity %+v, not %+v", got.Identity, want)
	}
	p.finish()
}
