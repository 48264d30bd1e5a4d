//go:build linux

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// censusCase is a job that hangs before gpurec sees it.
type censusCase struct {
	layout, fault string
	result        string // in stacks: behind, equal, or missing for an unknown layout
	hangs, how    string // in the facts hangs and fault of a recording; hangs "": no recording
	rule          string // of the only finding on a hang; "": not compared
}

// TestCensusOfHungJobs looks at simulated jobs that hang. It compares the counts with the ledger, and the verdict with
// the fault. A rank that is killed is not read.
func TestCensusOfHungJobs(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	requireSimcuda(t, "ranks", privilege.AttachAuto)
	for _, c := range []censusCase{
		{"2.28", "stop", "behind", "has waited for rank 1 for at least", "rank 1 waits for no other rank", "rank-missing"},
		{
			"2.28", "skip", "behind", "the job hangs: rank 1 launched", "rank 1 waits as the others do",
			"collective-mismatch",
		},
		{"2.28", "extra", "behind", "the job hangs: rank 1 launched", "so rank 1 made a call", "collective-mismatch"},
		{"2.28", "kill", "equal", "rank 1 of 3 has no process in the recording", "rank 1 belongs to", "rank-missing"},
		{"2.28", "op", "equal", "all 3 ranks launched the same number of each operation", "cannot say which rank", "hang"},
		{"2.26", "stop", "behind", "", "", ""},
		{"2.30", "stop", "behind", "", "", ""},
		{"odd", "stop", "missing", "", "", ""},
	} {
		t.Run(c.layout+"_"+c.fault, func(t *testing.T) {
			t.Setenv("SIMNCCL_LAYOUT", c.layout)
			v := rankVariant{
				fault: rankFault{
					name:  c.fault,
					hangs: true,
					split: true,
				},
				ranks:    3,
				hosts:    1,
				rank:     1,
				step:     20,
				hostUs:   1000,
				kernelUs: 200,
				buckets:  2,
			}
			run := startRankJob(t, v)
			must(t, os.WriteFile(run.path("count"), nil, 0o600))
			must(t, os.WriteFile(run.path("start"), nil, 0o600))
			run.waitForEnd()
			c.checkStacks(t, run)
			if c.hangs != "" {
				c.checkRecording(t, run)
			}
		})
	}
}

// stacksOutput has the tested values of gpurec stacks --format json.
type stacksOutput struct {
	Processes []struct {
		Pid           int32
		Missing       string `json:"communicators_missing"`
		Communicators []struct {
			Communicator string
			Rank, Size   int32
			Counts       map[string]int64
		}
	}
	Communicators []struct {
		Result string
		Size   int32
		Ranks  []int
	}
}

func (c *censusCase) checkStacks(t *testing.T, run *rankRun) {
	t.Helper()
	var pids []int
	for _, rank := range c.alive(run) {
		pids = append(pids, run.pids[rank])
	}
	stdout, stderr, code := runGpurec(t, "stacks", "-p", joinPids(pids), "--format", "json")
	var out stacksOutput
	if err := json.Unmarshal([]byte(stdout), &out); err != nil || code != 0 || len(out.Processes) != len(pids) {
		t.Fatalf("%v, exit status %d, %d processes\n%s", err, code, len(out.Processes), stderr)
	}
	if c.result == "missing" {
		for _, p := range out.Processes {
			if !strings.Contains(p.Missing, "does not know the memory layout of this NCCL") ||
				len(p.Communicators) > 0 {
				t.Errorf("process %d: %q, %d communicators", p.Pid, p.Missing, len(p.Communicators))
			}
		}
		return
	}
	launched := launchedByLedger(t, run)
	for _, p := range out.Processes {
		for _, f := range p.Communicators {
			if f.Size > 1 && f.Counts["AllReduce"] != launched[ledgerKey{p.Pid, f.Communicator}] {
				t.Errorf(
					"process %d, communicator %s: %v, the ledger has %d AllReduce",
					p.Pid,
					f.Communicator,
					f.Counts,
					launched[ledgerKey{p.Pid, f.Communicator}],
				)
			}
		}
	}
	whole := slices.IndexFunc(out.Communicators, func(j struct {
		Result string
		Size   int32
		Ranks  []int
	},
	) bool {
		return int(j.Size) == run.v.ranks
	})
	if whole < 0 || out.Communicators[whole].Result != c.result ||
		c.result == "behind" && !slices.Equal(out.Communicators[whole].Ranks, c.behind(run)) {
		t.Errorf("got %+v, want %s of rank %d", out.Communicators, c.result, run.v.rank)
	}
}

// alive returns the ranks that have a process.
func (c *censusCase) alive(run *rankRun) []int {
	return slices.DeleteFunc(
		ranksUpTo(run.v.ranks),
		func(rank int) bool { return c.fault == "kill" && rank == run.v.rank },
	)
}

// behind returns the ranks with fewer calls.
func (c *censusCase) behind(run *rankRun) []int {
	if c.fault != "extra" {
		return []int{run.v.rank}
	}
	return slices.DeleteFunc(ranksUpTo(run.v.ranks), func(rank int) bool { return rank == run.v.rank })
}

// ledgerKey is a communicator of a process.
type ledgerKey struct {
	pid          int32
	communicator string
}

// launchedByLedger counts the AllReduces that simnccl launched.
func launchedByLedger(t *testing.T, run *rankRun) map[ledgerKey]int64 {
	t.Helper()
	counts := make(map[ledgerKey]int64)
	calls := analyzetest.ReadNCCLLedger(t, run.path("nccl.tsv"))
	for i := range calls {
		if call := &calls[i]; call.Function == "ncclAllReduce" && call.Result == 0 {
			counts[ledgerKey{call.Pid, "0x" + strconv.FormatUint(uint64(call.Communicator), 16)}]++
		}
	}
	return counts
}

// checkRecording records the job that hangs.
func (c *censusCase) checkRecording(t *testing.T, run *rankRun) {
	t.Helper()
	recorder := run.startRecorder(0, c.alive(run))
	time.Sleep(5 * time.Second) // the verdict needs counts that have not changed for a second
	must(t, recorder.Process.Signal(syscall.SIGINT))
	waitForRecorder(t, recorder)
	j, err := job.Open([]string{run.path("r0.parquet")}, job.Options{})
	must(t, err)
	var opt hang.Options
	opt.LongNs, opt.Top = int64(time.Second), 20
	r, err := hang.RunJobWithOptions(j, opt)
	must(t, err)
	if hangs, fault := factText(r, "hangs"), factText(r, "fault"); !strings.Contains(hangs, c.hangs) ||
		!strings.Contains(fault, c.how) || c.how == "" && fault != "" {
		t.Errorf("hangs is %q and fault is %q, want %q and %q", hangs, fault, c.hangs, c.how)
	}
	t.Logf("%s\n%s\n%s", factText(r, "census"), factText(r, "hangs"), factText(r, "fault"))
	stdout, stderr, code := runGpurec(t, "analyze", "rules", "--format", "json", run.path("r0.parquet"))
	if rule := `"rule":"` + c.rule + `"`; code != 0 ||
		!strings.Contains(strings.ReplaceAll(stdout, `": "`, `":"`), rule) {
		t.Errorf("exit status %d, no finding of rule %s:\n%s\n%s", code, c.rule, stdout, stderr)
	}
}

func waitForRecorder(t *testing.T, recorder *exec.Cmd) {
	t.Helper()
	if err := recorder.Wait(); err != nil && recorder.ProcessState.ExitCode() != 130 {
		t.Fatal(err)
	}
}

func ranksUpTo(n int) (list []int) {
	for rank := range n {
		list = append(list, rank)
	}
	return list
}

func joinPids(pids []int) string {
	var list []string
	for _, pid := range pids {
		list = append(list, strconv.Itoa(pid))
	}
	return strings.Join(list, ",")
}
