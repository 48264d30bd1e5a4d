//go:build linux

package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/ranks"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// stragglerFault makes a rank of examples/simnccl/ranks slow.
type stragglerFault struct {
	name      string // of the flag --fault; "": none
	low, high int    // of its value
	says      string // cause that analyze ranks must give; "": it must accuse no rank
	network   bool   // it must say that the network is slow
}

// stragglerFaults are recorded without GPU times. Then only a late host shows.
var stragglerFaults = []stragglerFault{
	{},
	{name: "host", low: 4, high: 40, says: "its host"},
	{name: "kernels", low: 2, high: 4},
	{name: "copies", low: 80, high: 200},
	{name: "network", low: 4, high: 10},
}

// stragglerGPUFaults are recorded with GPU times. A slow network is no rank's fault.
var stragglerGPUFaults = []stragglerFault{
	{},
	{name: "kernels", low: 2, high: 3, says: "its GPU"},
	{name: "copies", low: 80, high: 150, says: "copies"},
	{name: "network", low: 6, high: 9, network: true},
}

// stragglerJob is a random job.
type stragglerJob struct {
	fault             stragglerFault
	gpuTime           string // of the flag --gpu-time; "": none
	value             int
	ranks, rank, step int
	each, split       bool
	args              []string
}

func drawStragglerJob(seed int) *stragglerJob {
	r := rand.New(rand.NewPCG(uint64(seed), 11)) //nolint:gosec // a seed that repeats
	j := &stragglerJob{fault: stragglerFaults[seed%len(stragglerFaults)], ranks: 2 + r.IntN(3)}
	j.value = j.fault.low + r.IntN(j.fault.high-j.fault.low+1)
	j.rank, j.step = r.IntN(j.ranks), 60+r.IntN(40)
	j.each, j.split = r.IntN(2) == 0, j.ranks == 4 && r.IntN(2) == 0
	j.args = []string{
		"--seed", strconv.Itoa(seed), "--steps", "220", "--host-us", strconv.Itoa(2000 + r.IntN(3000)),
		"--kernel-us", strconv.Itoa(200 + r.IntN(500)), "--buckets", strconv.Itoa(2 + r.IntN(3)),
	}
	if j.split {
		j.args = append(j.args, "--split")
	}
	if j.fault.name != "" {
		j.args = append(j.args, "--fault", fmt.Sprintf("%d %d %s %d", j.rank, j.step, j.fault.name, j.value))
	}
	return j
}

// TestRankStragglers records simulated jobs with a slow rank, a slow network or none, without GPU times. It compares what
// analyze ranks says with the fault. GPUREC_SEEDS is the number of jobs. GPUREC_SEED is the only seed to run.
func TestRankStragglers(t *testing.T) {
	testclass.Root(t)
	requireSimcuda(t, "ranks", privilege.AttachAuto)
	seeds, err := strconv.Atoi(cmp.Or(os.Getenv("GPUREC_SEEDS"), "2"))
	must(t, err)
	first := 1
	if only := os.Getenv("GPUREC_SEED"); only != "" {
		first, err = strconv.Atoi(only)
		must(t, err)
		seeds = 1
	}
	for seed := first; seed < first+seeds; seed++ {
		j := drawStragglerJob(seed)
		name := fmt.Sprintf(
			"%d_%s%d_rank%dof%d_split%v",
			seed,
			cmp.Or(j.fault.name, "none"),
			j.value,
			j.rank,
			j.ranks,
			j.split,
		)
		t.Run(name, func(t *testing.T) { j.check(t, j.record(t)) })
	}
}

// TestRankStragglersWithGPUTimes records simulated jobs with GPU times. The report must find slow kernels, slow copies and
// a slow network, and accuse no rank of a job without a fault. On a busy machine, too few progress words may be read: then
// the job is recorded again.
func TestRankStragglersWithGPUTimes(t *testing.T) {
	testclass.Root(t)
	requireSimcuda(t, "ranks", privilege.AttachAuto)
	const attempts = 12
	for i, fault := range stragglerGPUFaults {
		j := drawGPUStragglerJob(i, fault)
		t.Run(cmp.Or(fault.name, "none"), func(t *testing.T) {
			for range attempts {
				if paths := j.record(t); j.hasGPUTimes(t, paths) {
					j.check(t, paths)
					return
				}
			}
			t.Errorf("no recording of %d has the GPU times of both ranks", attempts)
		})
	}
}

// drawGPUStragglerJob returns a job of two ranks that wait for the GPU in each step, as a program does that reads its
// loss.
func drawGPUStragglerJob(seed int, fault stragglerFault) *stragglerJob {
	r := rand.New(rand.NewPCG(uint64(seed), 13)) //nolint:gosec // a seed that repeats
	j := &stragglerJob{fault: fault, gpuTime: "20kHz", ranks: 2, rank: r.IntN(2), step: 90 + r.IntN(20)}
	j.args = []string{
		"--seed",
		strconv.Itoa(seed),
		"--steps",
		"260",
		"--host-us",
		"3000",
		"--kernel-us",
		"400",
		"--loss",
		"1",
	}
	if fault.name != "" {
		j.value = fault.low + r.IntN(fault.high-fault.low+1)
		j.args = append(j.args, "--fault", fmt.Sprintf("%d %d %s %d", j.rank, j.step, fault.name, j.value))
	}
	return j
}

// hasGPUTimes reports whether the ranks of the recordings can be compared by GPU times.
func (j *stragglerJob) hasGPUTimes(t *testing.T, paths []string) bool {
	t.Helper()
	basis := factText(j.report(t, paths), "basis")
	t.Log(basis)
	return strings.HasPrefix(basis, "GPU times of all ranks")
}

// record runs and records the job. It returns the paths of its recordings.
func (j *stragglerJob) record(t *testing.T) (paths []string) {
	folder := t.TempDir()
	output, start := new(messages), filepath.Join(folder, "start")
	args := append(
		[]string{"-n", strconv.Itoa(j.ranks), filepath.Join(simcudaDir(), "ranks"), "--start", start},
		j.args...)
	run := exec.Command("../../examples/simnccl/simrun", args...)
	run.Env = append(os.Environ(), "SIMNCCL_DIR="+folder, "SIMCUDA_STATE="+filepath.Join(folder, "state"),
		"SIMCUDA_CHANNELS=tear_ns=0,decoys=off", "SIMCUDA_TIME=on")
	run.Stdout, run.Stderr, run.SysProcAttr = output, output, &syscall.SysProcAttr{Setpgid: true}
	must(t, run.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-run.Process.Pid, syscall.SIGKILL)
		_ = run.Wait()
	})
	waitFor(t, "all ranks are ready", func() bool { return strings.Count(output.String(), "ready ") == j.ranks })
	var pids []string
	for line := range strings.Lines(output.String()) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "ready" {
			pids = append(pids, fields[2])
		}
	}
	if !j.each {
		pids = []string{strings.Join(pids, ",")}
	}
	recorders := make([]*exec.Cmd, len(pids))
	for i, pid := range pids {
		paths = append(paths, filepath.Join(folder, fmt.Sprintf("r%d.parquet", i)))
		recorders[i] = j.startRecorder(t, pid, paths[i])
	}
	must(t, os.WriteFile(start, nil, 0o600))
	waitFor(t, "all ranks have ended", func() bool { return strings.Count(output.String(), "done ") == j.ranks })
	for _, recorder := range recorders {
		_ = recorder.Process.Signal(syscall.SIGINT) // it has ended if its ranks have
		if err := recorder.Wait(); err != nil && recorder.ProcessState.ExitCode() != 130 {
			t.Fatalf("a recorder failed: %v", err)
		}
	}
	return paths
}

// startRecorder starts a recorder, and waits until it has attached.
func (j *stragglerJob) startRecorder(t *testing.T, pids, path string) *exec.Cmd {
	t.Helper()
	gpurec, err := exec.LookPath("gpurec")
	must(t, err)
	recorder := exec.Command(gpurec, "record", "-p", pids, "-o", path, "--stacks", "fp", "--max-overhead", "off",
		"--nvml-interval", "0", "--gpu-time", cmp.Or(j.gpuTime, "off"))
	output := new(messages)
	recorder.Stdout, recorder.Stderr = output, output
	must(t, recorder.Start())
	t.Cleanup(func() { _ = recorder.Process.Kill() })
	waitFor(t, "the recorder has attached", func() bool { return strings.Contains(output.String(), "attached to") })
	return recorder
}

// report returns what analyze ranks says.
func (j *stragglerJob) report(t *testing.T, paths []string) *report.Report {
	t.Helper()
	made, err := job.Open(paths, job.Options{})
	must(t, err)
	r, err := ranks.RunJob(made, query.Options{})
	must(t, err)
	return r
}

// check compares the report with the fault.
func (j *stragglerJob) check(t *testing.T, paths []string) {
	t.Helper()
	r := j.report(t, paths)
	verdict, because := factText(r, "verdict"), factText(r, "because")
	says := verdict + "\n\t" + because + "\n\t" + factText(r, "also") + "\n\t" + factText(r, "basis")
	late, _, _ := r.FindNumber("late_ranks")
	switch {
	case j.fault.network:
		if late != 0 || !strings.HasPrefix(verdict, "network: no rank is late") {
			t.Errorf("the report must say that the network is slow; it says\n\t%s", says)
		}
	case j.fault.says == "":
		if late != 0 || !strings.HasPrefix(verdict, "no rank") {
			t.Errorf("the report must accuse no rank; it says\n\t%s", says)
		}
	case late != 1 || !strings.HasPrefix(verdict, fmt.Sprintf("rank %d ", j.rank)) || !strings.HasPrefix(because, j.fault.says):
		t.Errorf("the report says\n\t%s\nwant rank %d, %s", says, j.rank, j.fault.says)
	}
}
