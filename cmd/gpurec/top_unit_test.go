//go:build linux

package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/ps"
)

// TestFoldersOfKilledTops removes the folders that no top has locked.
func TestFoldersOfKilledTops(t *testing.T) {
	testclass.Unit(t)
	t.Setenv("TMPDIR", t.TempDir())
	running, err := openTopFolder()
	must(t, err)
	killed, err := openTopFolder()
	must(t, err)
	killed.lock.Close()
	fresh, err := openTopFolder()
	must(t, err)
	fresh.lock.Close()
	must(t, os.WriteFile(filepath.Join(killed.path, "top.parquet"), nil, 0o600))
	old := time.Now().Add(-2 * lockedAfter)
	for _, f := range []*topFolder{running, killed} {
		must(t, os.Chtimes(f.path, old, old))
	}
	removeStaleTopFolders()
	want := []string{running.path, fresh.path}
	slices.Sort(want)
	if left := topFoldersIn(os.TempDir()); !slices.Equal(left, want) {
		t.Errorf("%v are left, want %v", left, want)
	}
	running.remove()
	if left := topFoldersIn(os.TempDir()); !slices.Equal(left, []string{fresh.path}) {
		t.Errorf("%v are left", left)
	}
}

func TestJobsOfProcesses(t *testing.T) {
	testclass.Unit(t)
	all := []ps.Process{
		{Pid: 1, Identity: format.Identity{Job: "run", SlurmJob: "77"}},
		{Pid: 2, Identity: format.Identity{SlurmJob: "77"}},
		{Pid: 3, Identity: format.Identity{SlurmJob: "78", SlurmArray: "70_8"}},
		{Pid: 4},
	}
	for job, want := range map[string][]int{"run": {1}, "77": {1, 2}, "78": {3}, "70_8": {3}} {
		if pids, err := findJob(all, job); err != nil || !slices.Equal(pids, want) {
			t.Errorf("job %s: %v, %v", job, pids, err)
		}
	}
	const unknown = "no process that uses CUDA belongs to job x; known jobs: 77, 78, run"
	if _, err := findJob(all, "x"); err == nil || err.Error() != unknown {
		t.Errorf("%v", err)
	}
	const none = "no process that uses CUDA belongs to job x, nor to any other job"
	if _, err := findJob(all[3:], "x"); err == nil || err.Error() != none {
		t.Errorf("%v", err)
	}
}

// TestCPUTimeOfThisProcess measures the CPU time of the test.
func TestCPUTimeOfThisProcess(t *testing.T) {
	testclass.Unit(t)
	var m cpuMeter
	percent := func() float64 {
		s := &live.Snapshot{Processes: []live.Process{{Pid: int32(os.Getpid())}, {Pid: 1 << 30}}}
		m.addTo(s)
		if s.Processes[1].CPUPercent != -1 {
			t.Errorf("a process that does not exist has %v %%", s.Processes[1].CPUPercent)
		}
		return s.Processes[0].CPUPercent
	}
	if first := percent(); first != -1 {
		t.Errorf("%v %% before the first interval", first)
	}
	before, err := readCPUTicks(int32(os.Getpid()))
	must(t, err)
	for now := before; now < before+3; now, err = readCPUTicks(int32(os.Getpid())) {
		must(t, err)
	}
	if used := percent(); used <= 0 {
		t.Errorf("%v %%", used)
	}
}
