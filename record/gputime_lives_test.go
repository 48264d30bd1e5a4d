//go:build linux

package record

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/progress"
	"github.com/gpurec/gpurec/record/simtest"
)

// TestContextsWithGPUTimes resets the contexts of a process, so that its mappings disappear and
// channels end.
func TestContextsWithGPUTimes(t *testing.T) {
	testclass.Root(t)
	run := recordOperations(t, progress.RateAuto, "tear_ns=0", "--works", "240000", "--rounds", "3")
	if share := run.check(); share < 0.02 {
		t.Errorf("%.1f %% of operations seen", 100*share)
	}
	begun, seen := run.roundsOfChannels(), make(map[int]bool)
	for number, c := range run.channels {
		if channel, ok := run.of[number]; ok {
			seen[begun[channel]] = true
		}
		if c.DurNs < 0 || c.StartNs < run.result.Meta.StartNs || c.Device != -1 || c.Counter < 1 {
			t.Errorf("channel %+v", c)
		}
	}
	if len(seen) < 3 {
		t.Errorf("channels of rounds %v, want three rounds", slices.Sorted(maps.Keys(seen)))
	}
	run.checkLives()
}

// roundsOfChannels returns the round in which each channel of the ledger began. A reset of the contexts ends
// all channels, before those of the next round begin.
func (r *gpuRun) roundsOfChannels() map[ledgerChannel]int {
	rounds, round, isReset := make(map[ledgerChannel]int), 0, false
	for _, e := range r.ledger.Channels {
		switch e.Event {
		case "end":
			isReset = true
		case "begin":
			if isReset {
				round, isReset = round+1, false
			}
			rounds[ledgerChannel{e.Pid, e.Channel}] = round
		}
	}
	return rounds
}

// checkLives checks that each channel that the recording ends has ended, and counts those that
// still lived.
func (r *gpuRun) checkLives() {
	r.t.Helper()
	operations, last := r.operations(), make(map[int32]*simtest.Operation)
	for i := range r.rows {
		row := &r.rows[i]
		w := operations[operationIdentity{row.Pid, uint64(r.channels[row.Channel].Ptr), row.Counter, row.GPUTimeNs}]
		if known := last[row.Channel]; w != nil && (known == nil || known.Counter < w.Counter) {
			last[row.Channel] = w
		}
	}
	ended := 0
	for number, c := range r.channels {
		if c.DurNs == 0 {
			continue
		}
		ended++
		if w := last[number]; w != nil && c.StartNs+c.DurNs < w.EndNs {
			r.t.Errorf("channel %+v ended before %+v", c, w)
		}
	}
	r.t.Logf("%d of %d channels ended", ended, len(r.channels))
	if ended == 0 {
		r.t.Error("no channel ended")
	}
}

// TestChildrenWithGPUTimes records the forked children of a process that makes no call.
func TestChildrenWithGPUTimes(t *testing.T) {
	testclass.Root(t)
	run := recordOperations(t, progress.RateAuto, "tear_ns=0", "--works", "120000", "--processes", "2")
	run.check()
	rows := make(map[int32]int)
	for i := range run.rows {
		rows[run.rows[i].Pid]++
	}
	if len(rows) != 2 {
		t.Errorf("rows by process: %v", rows)
	}
	for _, c := range run.channels {
		if c.DurNs == 0 && rows[c.Pid] > 0 {
			t.Errorf("channel %+v outlives its process", c)
		}
	}
}

// TestExecWithGPUTimes records a process that forks and executes a program with operations, and then
// executes the program itself.
func TestExecWithGPUTimes(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	dir, err := filepath.Abs(simcudaDir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "works.tsv")
	operations := filepath.Join(dir, "works") + " --works 120000"
	script := fmt.Sprintf("echo ready; read line; %s; exec %s", operations, operations)
	p := startSim(
		t,
		[]string{"SIMCUDA_TIME=on", "SIMCUDA_CHANNELS=tear_ns=0", "SIMCUDA_WORKS=" + path, "SIMCUDA_LEDGER="},
		filepath.Join(dir, "devfiles"),
		"sh",
		"-c",
		script,
	)
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.GPUTime, opt.WaitForLibrary = progress.RateAuto, true
	run := &gpuRun{t: t}
	run.result = runWhile(t, start(t, opt), func() {
		if _, err := p.stdin.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
		p.expect("done")
		p.expect("done")
	})
	p.finish()
	run.ledger = simtest.ReadOperationLedger(t, path)
	run.rows, run.channels = readProgress(t, opt.Output)
	run.check()
	processes := make(map[int32]bool)
	for i := range run.rows {
		processes[run.rows[i].Pid] = true
	}
	if !processes[int32(p.pid())] || len(processes) != 2 {
		t.Errorf("rows of processes %v, not of %d and its child", processes, p.pid())
	}
}

// TestKilledProcessWithGPUTimes kills the process while its operations are recorded.
func TestKilledProcessWithGPUTimes(t *testing.T) {
	testclass.Root(t)
	p, _ := startOperations(t, "tear_ns=0", "--works", "100000000")
	opt := testOptions(t, p.pid())
	opt.GPUTime = progress.RateFull
	s := start(t, opt)
	runWhile(t, s, func() {
		p.step()
		eventually(t, "channels have rows", func() bool { return s.progress.Channels() > 0 })
		p.kill()
		eventually(t, "the process is reaped", func() bool { return s.targets.Get(p.pid()) == nil })
	})
	rows, channels := readProgress(t, opt.Output)
	for _, c := range channels {
		if c.DurNs == 0 {
			t.Errorf("channel %+v outlives its process", c)
		}
	}
	if len(rows) == 0 || len(channels) == 0 {
		t.Errorf("%d rows of %d channels", len(rows), len(channels))
	}
}
