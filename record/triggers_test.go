//go:build linux

package record

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/simtest"
	"github.com/gpurec/gpurec/record/trigger"
	"github.com/gpurec/gpurec/record/xid"
)

// triggerTest is a session with all triggers, and what they did.
type triggerTest struct {
	t        *testing.T
	s        *Session
	dir      string // folder of captures
	program  string // a copy of the program leak with a name of its own
	mu       sync.Mutex
	triggers []format.Trigger
	captured map[string]error // results by ID
	result   Result
	stop     func()
}

// startTriggers records all programs with the name of t.program.
func startTriggers(t *testing.T, change func(*Options)) *triggerTest {
	t.Helper()
	needKernel(t)
	x := &triggerTest{t: t, dir: t.TempDir(), captured: make(map[string]error)}
	comm := fmt.Sprintf("leak-%d", os.Getpid())
	x.program = filepath.Join(t.TempDir(), comm)
	copyProgram(t, filepath.Join(simcudaDir, "leak"), x.program)
	captures, err := os.OpenRoot(x.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { captures.Close() })
	opt := testOptions(t)
	opt.All, opt.Comm, opt.Ring, opt.RingFor = true, comm, true, time.Hour
	limits := trigger.DefaultThresholds
	limits.Hang, limits.Retry = time.Second, 100*time.Millisecond
	limits.Leak, limits.LeakBytes = 2*time.Second, 4<<20
	limits.Slow, limits.SlowFactor, limits.SlowRecent, limits.SlowBefore = 300*time.Millisecond, 3, 6, 40
	windows := make(map[trigger.Kind]trigger.Window)
	for kind, w := range trigger.DefaultWindows {
		w.Before, w.After = 2*time.Second, 500*time.Millisecond
		windows[kind] = w
	}
	opt.Triggers = &Triggers{
		Kinds: trigger.Kinds, PerHour: 1000, Windows: windows, Thresholds: limits, Captures: captures,
		IsSevereXid: func(code int64) bool { return code == 79 },
		OnTrigger: func(tr format.Trigger) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.triggers = append(x.triggers, tr)
		},
		OnCapture: func(tr format.Trigger, err error) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.captured[tr.ID] = err
		},
	}
	if change != nil {
		change(&opt)
	}
	if opt.All { // a library is probed from the begin if a process uses it
		x.run("keeper")
		eventually(t, "a program uses CUDA", func() bool { return len(programsWithDriver(comm)) > 0 })
	}
	x.s = start(t, opt)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := x.s.Run(ctx); ended <- err }()
	x.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
		if x.result, err = x.s.Finish(); err != nil {
			t.Errorf("finish: %v", err)
		}
		if err := x.s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	t.Cleanup(x.stop)
	return x
}

// programsWithDriver returns the processes of a name that have mapped libcuda.
func programsWithDriver(comm string) (pids []int) {
	for _, pid := range process.AllPids() {
		p, err := process.Open(pid)
		if err != nil {
			continue
		}
		if p.Comm == comm && hasMappedDriver(p) {
			pids = append(pids, pid)
		}
		p.Close()
	}
	return pids
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// runCopy starts another program as a job, with the name of t.program.
func (x *triggerTest) runCopy(job, program string, args ...string) *simProgram {
	x.t.Helper()
	path := filepath.Join(x.t.TempDir(), filepath.Base(x.program))
	copyProgram(x.t, filepath.Join(simcudaDir, program), path)
	p := startSim(x.t, []string{"TORCHELASTIC_RUN_ID=" + job}, path, args...)
	go func() { _, _ = io.Copy(io.Discard, p.stdout) }()
	return p
}

// run starts the program as a job, waits until it has made calls, and returns it.
func (x *triggerTest) run(job string, env ...string) *simProgram {
	x.t.Helper()
	env = append(env, "TORCHELASTIC_RUN_ID="+job, "SIMCUDA_LEDGER_SYNC=1")
	p := startSim(x.t, env, x.program, "--steps", "0", "--step-ms", "20")
	go func() { _, _ = io.Copy(io.Discard, p.stdout) }()
	return p
}

// end ends a program that still runs, and waits until the recorder has noticed.
func (x *triggerTest) end(p *simProgram, s syscall.Signal) {
	x.t.Helper()
	_ = p.cmd.Process.Signal(s) // it may have ended
	_ = p.cmd.Wait()
	eventually(x.t, "the recorder notices the end", func() bool {
		_, alive := x.s.Processes()[p.pid()]
		return !alive
	})
}

// fired returns the kinds of triggers about a job, without those that were merged into one of the same kind.
func (x *triggerTest) fired(job string) (kinds []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, tr := range x.triggers {
		if tr.Job == job && !slices.Contains(kinds, tr.Kind) {
			kinds = append(kinds, tr.Kind)
		}
	}
	return kinds
}

// all returns the kinds of triggers about a process.
func (x *triggerTest) all(pid int) (kinds []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, tr := range x.triggers {
		if int(tr.Pid) == pid {
			kinds = append(kinds, tr.Kind)
		}
	}
	return kinds
}

// await waits until a capture of a job is complete, and returns its trigger.
func (x *triggerTest) await(job string) (found format.Trigger) {
	x.t.Helper()
	eventually(x.t, "a capture of "+job, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		for _, tr := range x.triggers {
			if err, done := x.captured[tr.ID]; tr.Job == job && done {
				if err != nil {
					x.t.Fatalf("capture of %s: %v", job, err)
				}
				found = tr
				return true
			}
		}
		return false
	})
	return found
}

// seal seals a capture and returns its path.
func (x *triggerTest) seal(id string) string {
	x.t.Helper()
	path := filepath.Join(x.dir, id+format.CaptureSuffix)
	_, damaged, err := format.Seal(filepath.Join(x.dir, id+format.SealingSuffix), path, format.Owner{})
	if err != nil || len(damaged) > 0 {
		x.t.Fatal(err, damaged)
	}
	return path
}

// matrixPrograms are programs with one fault each, and the trigger that fires. "": none.
var matrixPrograms = []struct {
	job  string
	env  []string
	does func(x *triggerTest, p *simProgram) // nil: the program ends by itself, or SIGTERM ends it
	want string
}{
	{"healthy", nil, func(x *triggerTest, p *simProgram) { awaitLedger(x.t, p.ledger, 50_000) }, ""},
	{"terminated", nil, func(x *triggerTest, p *simProgram) {
		awaitLedger(x.t, p.ledger, 10_000)
		x.end(p, syscall.SIGTERM)
	}, ""},
	{"out of memory", []string{"SIMCUDA_FAIL=cuMemAlloc_v2:2@60"}, nil, "oom"},
	{"other error", []string{"SIMCUDA_FAIL=cuMemAlloc_v2:999@60"}, nil, ""},
	{"illegal address", []string{"SIMCUDA_FAIL=cuStreamSynchronize:700@20"}, nil, "sticky"},
	{"launch failed", []string{"SIMCUDA_FAIL=cuLaunchKernel:719@100"}, nil, "sticky"},
	{"not ready", []string{"SIMCUDA_FAIL=cuStreamSynchronize:600@20"}, nil, ""},
	{
		"stuck kernel",
		[]string{"SIMCUDA_TIME=on", "SIMCUDA_KERNEL_US=100000000"},
		func(x *triggerTest, p *simProgram) {
			eventually(x.t, "a hang", func() bool { return slices.Contains(x.all(p.pid()), "hang") })
			x.end(p, syscall.SIGKILL) // it does not react to SIGTERM
		},
		"hang exit",
	},
	{"killed", nil, func(x *triggerTest, p *simProgram) {
		awaitLedger(x.t, p.ledger, 10_000)
		x.end(p, syscall.SIGKILL)
	}, "exit"},
	{"aborted", nil, func(x *triggerTest, p *simProgram) {
		awaitLedger(x.t, p.ledger, 10_000)
		x.end(p, syscall.SIGABRT)
	}, "exit"},
}

// TestTriggersFireOnTheirFault runs programs with one fault each, while all triggers are on. Each trigger fires on its
// fault, and on no other. GPUREC_TRIGGER_RUNS repeats it.
func TestTriggersFireOnTheirFault(t *testing.T) {
	testclass.Root(t)
	xids := simtest.NewSimulatedXids(t)
	x := startTriggers(t, func(opt *Options) {
		opt.Triggers.Thresholds.LeakBytes = 1 << 30 // the programs leak 13 MiB a second
		opt.xids = &xid.SourcePaths{Kmsg: xids.LogPath, Tracefs: xids.TracefsPaths}
	})
	simtest.AwaitPipeRead(t, xids.TraceFile)
	for round := range triggerRuns("GPUREC_TRIGGER_RUNS", 1) {
		for _, c := range matrixPrograms {
			job := c.job
			if round > 0 {
				job = fmt.Sprintf("%s %d", c.job, round)
			}
			p := x.run(job, c.env...)
			if c.does != nil {
				c.does(x, p)
			} else {
				_ = p.cmd.Wait() // it ends with status 1
			}
			x.end(p, syscall.SIGTERM)
			if c.want != "" {
				eventually(t, c.want+" fires", func() bool { return strings.Join(x.fired(job), " ") == c.want })
			}
			time.Sleep(300 * time.Millisecond) // for a trigger that must not fire
			if got := strings.Join(x.fired(job), " "); got != c.want {
				t.Errorf("%s: triggers %q, want %q", job, got, c.want)
			}
		}
	}
	if others := x.fired(trigger.UnknownJob); len(others) > 0 {
		t.Errorf("triggers without a program: %q", others)
	}
	xids.WriteKernelLog("NVRM: Xid (PCI:0000:00:06): 31, pid=462, name=illegal, channel 0x0a, MMU Fault", 0)
	xids.WriteKernelLog("NVRM: Xid (PCI:0000:00:07): 79, GPU has fallen off the bus.", 0)
	eventually(t, "an Xid fires", func() bool { return len(x.fired(trigger.UnknownJob)) > 0 })
	if tr := x.await(trigger.UnknownJob); tr.Kind != "xid" || !strings.Contains(tr.Evidence, "fallen off the bus") {
		t.Errorf("%+v", tr)
	}
	x.stop()
	if got := strings.Join(x.fired(trigger.UnknownJob), " "); got != "xid" {
		t.Errorf("Xid 79 after Xid 31: triggers %q", got)
	}
}

// growthPrograms are programs whose memory or steps change, and the trigger that fires. "": none.
var growthPrograms = []struct {
	job, program string
	args         []string
	want         string
}{
	{"leak", "verdicts", []string{"--scenario", "fast"}, "leak"},
	{"warm-up", "verdicts", []string{"--scenario", "warm-up"}, ""},
	{"full cache", "verdicts", []string{"--scenario", "short-ring"}, ""},
	{"sawtooth", "verdicts", []string{"--scenario", "sawtooth"}, ""},
	{"slower", "changing", []string{"steps", "noise", "--seconds", "7", "--times", "6"}, "slow"},
	{"pauses", "changing", []string{"none", "checkpoints", "--seconds", "7"}, ""},
	{"epochs", "changing", []string{"none", "epochs", "--seconds", "7"}, ""},
}

// TestGrowthTriggersFireOnTheirFault runs these programs at the same time, while all triggers are on. Each captures once,
// from before its event to after it. Other load of the machine makes steps slower, too, so only make agent-faults runs it.
func TestGrowthTriggersFireOnTheirFault(t *testing.T) {
	testclass.Root(t)
	if os.Getenv("GPUREC_TRIGGER_RUNS") == "" {
		t.Skip("make agent-faults runs it on a quiet machine")
	}
	x := startTriggers(t, nil)
	for round := range triggerRuns("GPUREC_TRIGGER_RUNS", 1) {
		job := func(name string) string { return fmt.Sprintf("%s %d", name, round) }
		var programs []*simProgram
		for _, c := range growthPrograms {
			programs = append(programs, x.runCopy(job(c.job), c.program, c.args...))
		}
		for i, c := range growthPrograms {
			_ = programs[i].cmd.Wait() // it ends by itself
			x.end(programs[i], syscall.SIGTERM)
			if c.want != "" {
				x.checkGrowth(x.await(job(c.job)), programs[i], c.want)
			}
		}
		for _, c := range growthPrograms {
			if got := strings.Join(x.fired(job(c.job)), " "); got != c.want {
				t.Errorf("%s: triggers %q, want %q", job(c.job), got, c.want)
			}
		}
	}
	if others := x.fired(trigger.UnknownJob); len(others) > 0 {
		t.Errorf("triggers without a program: %q", others)
	}
}

// checkGrowth checks trigger and times of a capture.
func (x *triggerTest) checkGrowth(tr format.Trigger, p *simProgram, kind string) {
	x.t.Helper()
	m := metaOf(x.t, x.seal(tr.ID))
	x.t.Logf("%s: %s", kind, tr.Evidence)
	if tr.Kind != kind || int(tr.Pid) != p.pid() || m.Trigger.AfterNs != int64(500*time.Millisecond) ||
		m.StartNs > max(tr.FromNs(), m.Ring.AttachedNs) || m.EndNs < tr.AtNs+tr.AfterNs || m.Totals().Lost != 0 {
		x.t.Errorf("%s: from %d to %d, counts %+v: %+v", kind, m.StartNs, m.EndNs, m.Totals(), m.Trigger)
	}
	if kind == "slow" && tr.BeforeNs < int64(2*time.Second+300*time.Millisecond) {
		x.t.Errorf("the capture does not begin %v before the slow steps", 2*time.Second)
	}
}

// triggerRuns returns the number in an environment variable.
func triggerRuns(variable string, times int) int {
	if n := 0; os.Getenv(variable) != "" {
		if _, err := fmt.Sscan(os.Getenv(variable), &n); err == nil {
			return n
		}
	}
	return times
}

// TestCapturesHaveWhatHappened compares captures with the ledger of their programs. On a busy machine, memory grows for
// long enough for Leak, and steps are slow enough for Slow; both are tested elsewhere.
func TestCapturesHaveWhatHappened(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	x := startTriggers(t, func(opt *Options) {
		opt.Triggers.Kinds = slices.DeleteFunc(
			slices.Clone(trigger.Kinds),
			func(k trigger.Kind) bool { return k == trigger.Leak || k == trigger.Slow },
		)
	})
	for _, c := range []struct {
		job, call string
		env       []string
		signal    syscall.Signal
	}{
		{"oom", "cuMemAlloc_v2", []string{"SIMCUDA_FAIL=cuMemAlloc_v2:2@300"}, 0},
		{"hang", "cuStreamSynchronize", []string{"SIMCUDA_TIME=on", "SIMCUDA_KERNEL_US=100000000"}, 0},
		{"exit", anyCall, nil, syscall.SIGKILL}, // it may die inside of a call
	} {
		p := x.run(c.job, c.env...)
		if c.signal != 0 {
			awaitLedger(t, p.ledger, 60_000)
			x.end(p, c.signal)
		}
		tr := x.await(c.job)
		_ = p.cmd.Process.Kill()
		x.checkCapture(x.seal(tr.ID), p, c.job, c.call)
	}
	x.checkManual()
}

// anyCall means any function.
const anyCall = "*"

// checkCapture checks a capture against the ledger of a program. call is the function that is open, or that failed.
func (x *triggerTest) checkCapture(path string, p *simProgram, kind, call string) {
	t := x.t
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	m := &rec.Meta
	tr := m.Trigger
	if m.Complete != format.CompleteFrozen || tr == nil || tr.Kind != kind || int(tr.Pid) != p.pid() ||
		tr.Evidence == "" {
		t.Fatalf("%s: complete %s, trigger %+v", kind, m.Complete, tr)
	}
	if m.StartNs > max(tr.FromNs(), m.Ring.AttachedNs) || m.EndNs < tr.AtNs+tr.AfterNs {
		t.Errorf("%s: the capture is from %d to %d: %+v", kind, m.StartNs, m.EndNs, tr)
	}
	total, rows, open := m.Totals(), int64(0), int64(0)
	openOf := make(map[int32]int)
	if err := rec.Rows(func(r *format.Row) error {
		rows++
		if r.Flags&format.FlagOpen != 0 {
			open++
			if openOf[r.Tid]++; int(r.Pid) == p.pid() && call != anyCall && r.Name != call {
				t.Errorf("%s: %s is open", kind, r.Name)
			}
		}
		return nil
	}, format.ClassMemory, format.ClassCall); err != nil {
		t.Fatal(err)
	}
	for tid, n := range openOf {
		if n > 1 {
			t.Errorf("%s: thread %d has %d open calls", kind, tid, n)
		}
	}
	if total.Recorded != rows || total.Open != open || total.Lost != 0 || total.Seen != rows+total.Dropped {
		t.Errorf("%s: %d rows, %d open; counts %+v", kind, rows, open, total)
	}
	if kind == "hang" {
		x.checkHang(path, p)
	}
	notes := 0
	for _, r := range factRows(t, path, format.KindNote) {
		if r.Name == format.NoteTrigger && r.StartNs == tr.AtNs {
			notes++
		}
	}
	if notes != 1 {
		t.Errorf("%s: %d notes about the trigger", kind, notes)
	}
	n := x.compareLedger(path, p, m)
	t.Logf("%s: %d calls of the ledger are in the capture of %v", kind, n, time.Duration(m.EndNs-m.StartNs))
}

// compareLedger checks that each call in the ledger that ended in the time of the capture is in it.
func (x *triggerTest) compareLedger(path string, p *simProgram, m *format.Meta) (n int) {
	x.t.Helper()
	recorded, counted := recordedCalls(x.t, path), countedCalls()
	from, to := m.StartNs-m.ClockOffsetNs, m.EndNs-m.ClockOffsetNs
	for tid, calls := range readLedger(x.t, p.ledger, 0) {
		for _, c := range calls {
			if isCounted, probed := counted[c.name]; !probed || isCounted || c.endNs < from || c.endNs > to ||
				c.startNs < m.Ring.AttachedNs-m.ClockOffsetNs {
				continue
			}
			n++
			start, end := c.startNs+m.ClockOffsetNs, c.endNs+m.ClockOffsetNs
			if !slices.ContainsFunc(recorded[tid], func(r format.Row) bool {
				return r.Name == c.name && r.StartNs <= start && r.StartNs+r.DurNs >= end
			}) {
				x.t.Errorf("%s is missing, %v after the start and %v before the end", c.name,
					time.Duration(c.endNs-from), time.Duration(to-c.endNs))
			}
		}
	}
	if n == 0 {
		x.t.Error("the ledger has no call in the time of the capture")
	}
	return n
}

// checkHang checks that a capture has the open call and the stacks of all threads.
func (x *triggerTest) checkHang(path string, p *simProgram) {
	x.t.Helper()
	states := 0
	rec, err := format.Open(path)
	if err != nil {
		x.t.Fatal(err)
	}
	defer rec.Close()
	if err := rec.Rows(func(r *format.Row) error {
		var fact format.WaitFact
		if r.Kind == format.KindThreadState && int(r.Pid) == p.pid() &&
			json.Unmarshal([]byte(r.Message), &fact) == nil && fact.When == format.WhenTrigger && r.StackID != 0 {
			states++
		}
		return nil
	}, format.ClassHost); err != nil {
		x.t.Fatal(err)
	}
	if states == 0 || rec.Meta.Totals().Open == 0 {
		x.t.Errorf("%d stacks of threads, counts %+v", states, rec.Meta.Totals())
	}
}

// checkManual asks for two captures, the first one of a time in the past, and ends the second one early.
func (x *triggerTest) checkManual() {
	t := x.t
	t.Helper()
	p := x.run("manual")
	awaitLedger(t, p.ledger, 60_000)
	at := time.Now()
	awaitLedger(t, p.ledger, 10_000)
	tr, err := x.s.Trigger(TriggerRequest{At: at, Before: 500 * time.Millisecond, Job: "past", Reason: "a test"})
	if err != nil || tr.Outcome != format.TriggerCaptured || tr.AtNs != at.UnixNano() {
		t.Fatalf("%+v, %v", tr, err)
	}
	x.await("past")
	if m := metaOf(t, x.seal(tr.ID)); m.StartNs > at.Add(-500*time.Millisecond).UnixNano() || m.EndNs < at.UnixNano() ||
		m.Trigger.Cut {
		t.Errorf("from %d to %d: %+v", m.StartNs, m.EndNs, m.Trigger)
	}
	tr, err = x.s.Trigger(TriggerRequest{After: time.Hour, Job: "future"})
	if err != nil {
		t.Fatal(err)
	}
	x.stop()
	if m := metaOf(t, x.seal(tr.ID)); !m.Trigger.Cut || m.Complete != format.CompleteFrozen {
		t.Errorf("ended early: %+v", m.Trigger)
	}
	if _, err := x.s.Trigger(TriggerRequest{}); err == nil {
		t.Error("a trigger after the end")
	}
}

// TestNextTriggerIsLimited kills two programs of a job, one after the other.
func TestNextTriggerIsLimited(t *testing.T) {
	testclass.Root(t)
	x := startTriggers(t, nil)
	for range 2 {
		p := x.run("killed")
		awaitLedger(t, p.ledger, 5_000)
		eventually(t, "the job is known", func() bool { return x.s.triggers.rows.Job(int32(p.pid())) == "killed" })
		x.end(p, syscall.SIGKILL)
		x.await("killed")
	}
	eventually(t, "the second is refused", func() bool { return x.s.TriggerCounts()[format.TriggerLimited] == 1 })
	x.stop()
	if counts := x.s.TriggerCounts(); counts[format.TriggerCaptured] != 1 || len(x.captured) != 1 {
		t.Errorf("counts %v, captures %v", counts, x.captured)
	}
	refused := 0
	for _, r := range factRows(t, x.result.Output, format.KindNote) {
		var tr format.Trigger
		if r.Name == format.NoteTrigger && json.Unmarshal([]byte(r.Message), &tr) == nil &&
			tr.Outcome == format.TriggerLimited && tr.Kind == "exit" && strings.Contains(tr.Detail, "10m0s") {
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d notes about the refused trigger", refused)
	}
}

// TestCaptureCountsLosses records with a buffer that is too small. All calls happen before the end of the capture, so
// recorded and lost calls are those of the ledger.
func TestCaptureCountsLosses(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	calls := faultScale(100_000, 400_000)
	p := startSim(t, nil, "storm", "--calls", fmt.Sprint(calls), "--threads", "4", "--seed", "3", "--wait")
	p.expect("ready")
	x := startTriggers(t, func(opt *Options) {
		opt.Pids, opt.All, opt.Comm, opt.BufferBytes = []int{p.pid()}, false, "", 64<<10
		opt.Triggers.Kinds = []trigger.Kind{trigger.Manual}
	})
	since := monotonic()
	p.step()
	p.expect("done")
	tr, err := x.s.Trigger(TriggerRequest{Job: "losses", Before: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	x.await("losses")
	path := x.seal(tr.ID)
	happened := 0
	counted := countedCalls()
	for _, thread := range readLedger(t, p.ledger, since) {
		for _, c := range thread {
			if isCounted, probed := counted[c.name]; probed && !isCounted {
				happened++
			}
		}
	}
	rows := 0
	for _, thread := range recordedCalls(t, path) {
		rows += len(thread)
	}
	meta := metaOf(t, path)
	total := meta.Totals()
	if total.Lost == 0 || total.Recorded+total.Lost != int64(happened) || int64(rows) != total.Recorded {
		t.Errorf("recorded %d (%d rows) + lost %d, happened %d", total.Recorded, rows, total.Lost, happened)
	}
	t.Logf("recorded %d + lost %d = happened %d", total.Recorded, total.Lost, happened)
}
