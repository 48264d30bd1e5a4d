//go:build linux

package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// rankFault is a fault of examples/simnccl/ranks, and what analyze hang must say about it.
type rankFault struct {
	name  string // as in the flag --fault, with a value; "": none
	hangs bool
	// says is in the fault that the report finds, with %d for the number of the rank. "": it must find none. how is
	// in it, or in the row of the rank, too.
	says, how string
	// split gives pairs of ranks a second communicator. Without it, the ranks have one communicator.
	split bool
	// init says that the fault is before the communicators exist.
	init bool
}

var rankFaults = []rankFault{
	{},
	{split: true},
	{name: "host 4"},
	{name: "kernels 2"},
	{name: "copies 12"},
	{name: "network 4"},
	{name: "stop", hangs: true, says: "rank %d waits for no other rank", how: "read_shard"},
	{name: "stop", hangs: true, says: "rank %d waits for no other rank", how: "read_shard", split: true},
	{name: "kill", hangs: true, says: "has waited for rank %d", how: "died"},
	{name: "exit", hangs: true, says: "has waited for rank %d", how: "died"},
	{name: "skip", hangs: true, says: "rank %d calls something else", how: "one call less"},
	{name: "extra", hangs: true, says: "rank %d calls something else", how: "one call more, at log_stats"},
	{name: "count", hangs: true, says: "rank %d calls something else"},
	{name: "type", hangs: true, says: "rank %d calls something else"},
	{name: "op", hangs: true, says: "rank %d calls something else"},
	{name: "order", hangs: true, says: "wait for each other", split: true},
	{name: "send", hangs: true, says: "Send"},
	{name: "init", hangs: true, says: "has waited for rank %d", how: "init of communicator", init: true},
}

// slowFaults are the faults that may come before one that hangs. They are not the cause.
var slowFaults = []string{"host 4", "kernels 2", "copies 12", "network 4"}

// rankVariant is a random job of the simulation.
type rankVariant struct {
	seed             int
	fault            rankFault
	ranks, hosts     int
	rank, step       int     // the rank with the fault, and its step
	slow             string  // the fault of another rank before it, "": none
	each             bool    // a recorder for each rank, instead of one for all ranks of a host
	late             bool    // the recorders attach while the job runs
	shiftNs          []int64 // of the clocks of the hosts
	hostUs, kernelUs int
	buckets          int
}

func drawRankVariant(seed int) rankVariant {
	r := rand.New(rand.NewPCG(uint64(seed), 7)) //nolint:gosec // a seed that repeats
	v := rankVariant{seed: seed, fault: rankFaults[seed%len(rankFaults)]}
	v.ranks, v.hosts = 3+r.IntN(2), 1+r.IntN(2)
	if r.IntN(4) == 0 {
		v.ranks, v.hosts = 8, 2
	}
	v.each = r.IntN(2) == 0 && v.ranks < 8 // eight recorders need more processors than some machines have
	v.rank, v.step = r.IntN(v.ranks), 20+r.IntN(20)
	if v.fault.name == "order" {
		v.rank = r.IntN(v.ranks / 2 * 2) // a rank with a pair
	}
	v.late = !v.fault.init && r.IntN(3) == 0
	if v.fault.hangs && !v.fault.init && r.IntN(5) == 0 {
		v.slow = fmt.Sprintf(
			"%d %d %s",
			(v.rank+1+r.IntN(v.ranks-1))%v.ranks,
			r.IntN(20),
			slowFaults[r.IntN(len(slowFaults))],
		)
	}
	v.hostUs, v.kernelUs, v.buckets = 2000+r.IntN(3000), 200+r.IntN(500), 2+r.IntN(3)
	if v.fault.name == "skip" {
		v.buckets = max(v.buckets, 3) // of two alternating operations, none is known to be the skipped one
	}
	if v.late {
		v.hostUs *= v.ranks // these jobs run while the recorders attach, on few processors
	}
	const mostShiftNs = 50_000_000
	for range v.hosts {
		v.shiftNs = append(v.shiftNs, r.Int64N(2*mostShiftNs)-mostShiftNs)
	}
	return v
}

func (v *rankVariant) String() string {
	name := fmt.Sprintf("%d_%s_rank%dof%d_hosts%d", v.seed, cmp.Or(v.fault.name, "none"), v.rank, v.ranks, v.hosts)
	for text, is := range map[string]bool{"_split": v.fault.split, "_late": v.late, "_each": v.each, "_slow": v.slow != ""} {
		if is {
			name += text
		}
	}
	return name
}

// host returns the host of a rank, as simrun chooses it.
func (v *rankVariant) host(rank int) int { return rank / ((v.ranks + v.hosts - 1) / v.hosts) }

// recordings returns the ranks of each recording.
func (v *rankVariant) recordings() (list [][]int) {
	for rank := range v.ranks {
		if v.each || rank == 0 || v.host(rank) != v.host(rank-1) {
			list = append(list, nil)
		}
		list[len(list)-1] = append(list[len(list)-1], rank)
	}
	return list
}

// rankRun is a simulated job that runs.
type rankRun struct {
	t      *testing.T
	v      rankVariant
	folder string
	job    *exec.Cmd
	output *messages
	pids   []int // by rank
	ended  chan struct{}
}

// TestRankJobs records simulated jobs of several ranks with a known fault, and compares what analyze hang says with
// the fault. The clocks of different hosts differ by up to 100 ms. GPUREC_SEEDS is the number of jobs. GPUREC_SEED is
// the only seed to run.
func TestRankJobs(t *testing.T) {
	testclass.Root(t)
	requireSimcuda(t, "ranks", privilege.AttachAuto)
	seeds, err := strconv.Atoi(cmp.Or(os.Getenv("GPUREC_SEEDS"), "3"))
	must(t, err)
	list := make([]int, 0, seeds)
	for seed := range seeds {
		list = append(list, seed*7) // so few seeds have different faults
	}
	if only := os.Getenv("GPUREC_SEED"); only != "" {
		list = nil
		for text := range strings.SplitSeq(only, ",") {
			seed, err := strconv.Atoi(text)
			must(t, err)
			list = append(list, seed)
		}
	}
	for _, seed := range list {
		v := drawRankVariant(seed)
		t.Run(v.String(), func(t *testing.T) {
			run := startRankJob(t, v)
			run.check(run.record())
		})
	}
}

// endlessSteps is a number of steps that no job reaches during a test.
const endlessSteps = 1_000_000

// startRankJob starts the ranks. They wait for the file start before they make their communicators, and count the steps
// of faults from the time on at which the file count exists.
func startRankJob(t *testing.T, v rankVariant) *rankRun {
	t.Helper()
	run := &rankRun{t: t, v: v, folder: t.TempDir(), output: new(messages), ended: make(chan struct{})}
	steps := 80
	if v.late {
		steps = endlessSteps
	}
	args := []string{
		"-n", strconv.Itoa(v.ranks), "-m", strconv.Itoa(v.hosts), filepath.Join(simcudaDir(), "ranks"),
		"--seed", strconv.Itoa(v.seed), "--steps", strconv.Itoa(steps), "--host-us", strconv.Itoa(v.hostUs),
		"--kernel-us", strconv.Itoa(v.kernelUs), "--buckets", strconv.Itoa(v.buckets), "--start", run.path("start"),
		"--count", run.path("count"),
	}
	if v.fault.split {
		args = append(args, "--split")
	}
	if v.slow != "" {
		args = append(args, "--fault", v.slow)
	}
	if v.fault.name != "" {
		args = append(args, "--fault", fmt.Sprintf("%d %d %s", v.rank, v.step, v.fault.name))
	}
	run.job = exec.Command("../../examples/simnccl/simrun", args...)
	run.job.Env = append(
		os.Environ(),
		"SIMNCCL_DIR="+run.folder,
		"SIMNCCL_LEDGER="+run.path("nccl.tsv"),
		"SIMCUDA_STATE="+run.path("state"),
		"SIMCUDA_CHANNELS=tear_ns=0,decoys=off",
		"SIMCUDA_TIME=on",
	)
	run.job.Stdout, run.job.Stderr = run.output, run.output
	run.job.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, run.job.Start())
	go func() { _ = run.job.Wait(); close(run.ended) }()
	t.Cleanup(func() {
		_ = syscall.Kill(-run.job.Process.Pid, syscall.SIGKILL)
		<-run.ended
	})
	waitFor(t, "all ranks are ready", func() bool { return len(run.linesOf("ready")) == v.ranks })
	run.pids = make([]int, v.ranks)
	for _, line := range run.linesOf("ready") {
		rank, pid := 0, 0
		_, err := fmt.Sscanf(line, "ready %d %d", &rank, &pid)
		must(t, err)
		run.pids[rank] = pid
	}
	return run
}

func (run *rankRun) path(name string) string { return filepath.Join(run.folder, name) }

func (run *rankRun) linesOf(prefix string) (list []string) {
	for line := range strings.Lines(run.output.String()) {
		if strings.HasPrefix(line, prefix+" ") && strings.HasSuffix(line, "\n") {
			list = append(list, line)
		}
	}
	return list
}

// record records the job until it ends, has stood still, or has run for some seconds. It returns the job as analyze
// reads it.
func (run *rankRun) record() *job.Job {
	run.t.Helper()
	start := func() { must(run.t, os.WriteFile(run.path("start"), nil, 0o600)) }
	if run.v.late {
		start()
		waitFor(run.t, "the ranks have made steps", func() bool { return len(run.linesOf("steps")) == run.v.ranks })
	}
	recordings := run.v.recordings()
	recorders := make([]*exec.Cmd, len(recordings))
	for i, ranks := range recordings {
		recorders[i] = run.startRecorder(i, ranks)
	}
	must(run.t, os.WriteFile(run.path("count"), nil, 0o600))
	if !run.v.late {
		start()
	}
	run.waitForEnd()
	for _, recorder := range recorders {
		_ = recorder.Process.Signal(syscall.SIGINT) // it has ended if all of its ranks have
	}
	for i, recorder := range recorders {
		if err := recorder.Wait(); err != nil && recorder.ProcessState.ExitCode() != 130 {
			run.t.Fatalf(
				"recorder %d: %v\n%s",
				i,
				err,
				recorder.Stderr.(*messages).String(),
			) //nolint:forcetypeassert // see below
		}
	}
	return run.rewrite(recordings)
}

func (run *rankRun) startRecorder(i int, ranks []int) *exec.Cmd {
	run.t.Helper()
	gpurec, err := exec.LookPath("gpurec")
	must(run.t, err)
	var pids []string
	for _, rank := range ranks {
		pids = append(pids, strconv.Itoa(run.pids[rank]))
	}
	recorder := exec.Command(
		gpurec,
		"record",
		"-p",
		strings.Join(pids, ","),
		"-o",
		run.path(fmt.Sprintf("r%d.parquet", i)),
		"--stacks",
		"fp",
		"--host",
		"auto",
		"--max-overhead",
		"off",
		"--nvml-interval",
		"0",
	)
	output := new(messages)
	recorder.Stdout, recorder.Stderr = output, output
	must(run.t, recorder.Start())
	run.t.Cleanup(func() { _ = recorder.Process.Kill() })
	waitFor(run.t, "the recorder has attached", func() bool { return strings.Contains(output.String(), "attached to") })
	return recorder
}

// waitForEnd waits until all ranks have ended, or stand still because of the fault. Jobs of late recorders without such a
// fault do not end.
func (run *rankRun) waitForEnd() {
	const still = 4 * time.Second
	switch {
	case run.v.fault.hangs:
		fault := fmt.Sprintf("fault %d ", run.v.rank)
		waitFor(run.t, "the fault has come", func() bool { return strings.Contains(run.output.String(), fault) })
		time.Sleep(still)
	case run.v.late:
		time.Sleep(still)
	default:
		waitFor(run.t, "all ranks have ended", func() bool { return len(run.linesOf("done")) == run.v.ranks })
		return
	}
	if n := len(run.linesOf("done")); n > 0 {
		run.t.Fatalf("%d ranks have ended", n)
	}
}

// rewrite gives the recordings the hosts and the clocks of the job.
func (run *rankRun) rewrite(recordings [][]int) *job.Job {
	run.t.Helper()
	var paths []string
	for i, ranks := range recordings {
		path := run.path(fmt.Sprintf("r%d.parquet", i))
		if run.v.hosts > 1 {
			host, to := run.v.host(ranks[0]), run.path(fmt.Sprintf("rewritten%d.parquet", i))
			analyzetest.RewriteRecording(run.t, path, to, analyzetest.Rewriting{
				Host: fmt.Sprintf("node%d", host), BootID: fmt.Sprintf("boot%d", host), ShiftNs: run.v.shiftNs[host],
			})
			path = to
		}
		paths = append(paths, path)
	}
	j, err := job.Open(paths, job.Options{})
	must(run.t, err)
	return j
}

// check compares what analyze hang says about a job with its fault.
func (run *rankRun) check(j *job.Job) {
	t, v := run.t, &run.v
	t.Helper()
	var opt hang.Options
	opt.LongNs, opt.Top = int64(time.Second), 20
	r, err := hang.RunJobWithOptions(j, opt)
	must(t, err)
	says := factText(r, "fault")
	if v.fault.says == "" {
		if says != "" {
			t.Errorf("the job has no fault that hangs, the report says %q", says)
		}
		return
	}
	says = factText(r, "hangs") + "\n\t" + says + "\n\t" + whereOf(r, v.rank)
	want := v.fault.says
	if strings.Contains(want, "%d") {
		want = fmt.Sprintf(want, v.rank)
	}
	number := ""
	if v.fault.name == "stop" && !v.fault.split {
		number = fmt.Sprintf("AllReduce #%d of", run.lastNumber(v.rank)+1)
	}
	if !namesRank(says, want) || !strings.Contains(says, v.fault.how) || !strings.Contains(says, number) {
		t.Errorf("the report says\n\t%s\nwant %q, %q and %q", says, want, v.fault.how, number)
	}
}

// lastNumber returns the number of the last collective that a rank called, by simnccl's ledger.
func (run *rankRun) lastNumber(rank int) (last int64) {
	run.t.Helper()
	for _, c := range analyzetest.ReadNCCLLedger(run.t, run.path("nccl.tsv")) {
		if int(c.Pid) == run.pids[rank] && c.IsOperation() {
			last = max(last, c.Sequence)
		}
	}
	return last
}

// whereOf returns what the table of ranks says about the host of a rank, if the rank has a row of its own.
func whereOf(r *report.Report, rank int) string {
	for i := range r.Tables {
		table := &r.Tables[i]
		if table.Name != "ranks" {
			continue
		}
		for row := range table.Rows {
			if r := &table.Rows[row]; table.Cell(r, "ranks") == strconv.Itoa(rank) {
				return fmt.Sprint(table.Cell(r, "where"))
			}
		}
	}
	return ""
}

// namesRank reports whether a text has a phrase, and not only as the start of a longer number.
func namesRank(text, phrase string) bool {
	i := strings.Index(text, phrase)
	return i >= 0 && (i+len(phrase) == len(text) || !strings.ContainsAny(text[i+len(phrase):][:1], "0123456789"))
}

// factText returns the text of a fact, or "".
func factText(r *report.Report, key string) string {
	i := slices.IndexFunc(r.Facts, func(f report.Fact) bool { return f.Key == key })
	if i < 0 || r.Facts[i].Value == nil {
		return ""
	}
	return fmt.Sprint(r.Facts[i].Value)
}
