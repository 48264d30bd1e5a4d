//go:build linux

package hostcontext

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/clock"
)

// rows is a Sink that keeps all rows.
type rows struct {
	mu   sync.Mutex
	host []format.Row
	fact format.HostFact // at the end
	lost int64
}

func (r *rows) SendHost(rows []format.Row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.host = append(r.host, rows...)
}

func (r *rows) CountLostHost(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost += n
}

// ofKind returns the rows of a kind and a thread.
func (r *rows) ofKind(kind string, tid int) (list []format.Row) {
	for _, row := range r.host {
		if row.Kind == kind && int(row.Tid) == tid {
			list = append(list, row)
		}
	}
	return list
}

// lastMetrics returns the last value of each metric of a thread.
func (r *rows) lastMetrics(tid int) map[string]float64 {
	last := make(map[string]float64)
	for _, row := range r.ofKind(format.KindHost, tid) {
		last[row.Name] = row.Value
	}
	return last
}

// program is hostwaits in one of its modes.
type program struct {
	t      *testing.T
	pid    int
	tids   []int
	input  io.WriteCloser
	output *bufio.Scanner
	waits  [][2]int64 // CLOCK_MONOTONIC
	ran    []int64    // CPU time of the workers

	children []int // processes without CUDA
	threads  []int // of wakers.c: all threads; tids has the first one
}

// compile compiles a test program.
func compile(t *testing.T, source string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), strings.TrimSuffix(source, ".c"))
	out, err := exec.Command("cc", "-O1", "-g", "-pthread", "-o", path, "testdata/"+source).CombinedOutput()
	if err != nil {
		testclass.Missing(t, fmt.Sprintf("no C compiler: %v: %s", err, out))
	}
	return path
}

// startProgram starts hostwaits and waits for its workers.
func startProgram(t *testing.T, workers int, args ...string) *program {
	t.Helper()
	return startProgramOf(t, "hostwaits.c", workers, args...)
}

// startProgramOf starts a test program and waits for its workers.
func startProgramOf(t *testing.T, source string, workers int, args ...string) *program {
	t.Helper()
	command := exec.Command(compile(t, source), args...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Stderr = os.Stderr
	input, err1 := command.StdinPipe()
	output, err2 := command.StdoutPipe()
	if err := errors.Join(err1, err2, command.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait() // killed
	})
	p := &program{t: t, pid: command.Process.Pid, input: input, output: bufio.NewScanner(output)}
	for len(p.tids) < workers && p.output.Scan() {
		var tid int
		if _, err := fmt.Sscanf(p.output.Text(), "thread %d", &tid); err != nil {
			t.Fatal(err)
		}
		p.tids = append(p.tids, tid)
	}
	return p
}

// step writes a line to the program.
func (p *program) step() {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.input); err != nil {
		p.t.Fatal(err)
	}
}

// run lets the workers run to their end.
func (p *program) run() {
	p.t.Helper()
	p.step()
	for p.output.Scan() {
		line := p.output.Text()
		var from, to int64
		switch {
		case line == "done":
			return
		case strings.HasPrefix(line, "wait"):
			_, err := fmt.Sscanf(line, "wait %d %d", &from, &to)
			p.waits = append(p.waits, [2]int64{from, to})
			if err != nil {
				p.t.Fatal(err)
			}
		case strings.HasPrefix(line, "ran"):
			if _, err := fmt.Sscanf(line, "ran %d", &from); err != nil {
				p.t.Fatal(err)
			}
			p.ran = append(p.ran, from)
		}
	}
	p.t.Fatal("the program has ended early")
}

// ids returns the workers as pid<<32|tid.
func (p *program) ids() []uint64 {
	var ids []uint64
	for _, tid := range p.tids {
		ids = append(ids, uint64(p.pid)<<32|uint64(tid))
	}
	return ids
}

// recordProgram records the workers of a program from before their begin until after their end.
func recordProgram(t *testing.T, mode Mode, workers int, args ...string) (*rows, *program) {
	t.Helper()
	p := startProgram(t, workers, args...)
	return recordWhile(t, mode, p, p.run), p
}

// recordWhile records the workers of a program while do runs.
func recordWhile(t *testing.T, mode Mode, p *program, do func()) *rows {
	t.Helper()
	sink := new(rows)
	r, err := New(Options{
		Mode: mode, Sink: sink, Clock: clock.Clock{}, Threads: p.ids,
		Processes: func() map[int]int64 {
			processes := map[int]int64{p.pid: 1}
			for _, pid := range p.children {
				processes[pid] = 1
			}
			return processes
		},
		Warn: func(text string) { t.Log("warning:", text) },
	})
	if err != nil {
		testclass.Missing(t, err.Error())
	}
	defer r.Close()
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		r.Run(stop)
	}()
	awaitWatched(t, r, len(p.tids)+len(p.children))
	do()
	close(stop)
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Fatal("Run does not end")
	}
	sink.fact = r.Fact()
	return sink
}

// awaitWatched waits until a recorder watches n threads, which wait, and has withStack at each.
func awaitWatched(t *testing.T, r *Recorder, n int) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		withStack := 0
		for _, th := range r.threads.all() {
			th.stacks.mu.Lock()
			withStack += len(th.stacks.recent)
			th.stacks.mu.Unlock()
		}
		if withStack >= n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d threads are watched and %d have a stack, want %d", len(r.threads.all()), withStack, n)
		}
	}
}

// inside returns the rows that lie in a time of the program's log, with 1 ms on both sides.
func inside(list []format.Row, from, to int64) (found []format.Row) {
	const slack = 1_000_000
	for _, row := range list {
		if row.StartNs >= from-slack && row.StartNs+row.DurNs <= to+slack {
			found = append(found, row)
		}
	}
	return found
}

// TestWaits compares rows of waits with the program's log.
func TestWaits(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	for _, c := range []struct{ mode, call, reason, function string }{
		{"sleeps", "clock_nanosleep", format.ReasonSleep, "wait_sleeping"},
		{"futex", "futex", format.ReasonCondition, "wait_futex"},
		{"pipe", "read", format.ReasonPipe, "wait_pipe"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			got, p := recordProgram(t, ModeAuto, 1, c.mode, "12")
			all := got.ofKind(format.KindWait, p.tids[0])
			if len(p.waits) != 12 {
				t.Fatalf("%d waits in the log", len(p.waits))
			}
			status, reasons := make(map[string]int), 0
			for _, w := range p.waits {
				var sleep format.Row
				var preemptedNs int64 // before and after the call
				for _, row := range inside(all, w[0], w[1]) {
					if row.Name == format.StateSleeping && row.DurNs > sleep.DurNs {
						sleep = row
					} else if row.Name == format.StateRunnable {
						preemptedNs += max(0, min(row.StartNs+row.DurNs, w[1])-max(row.StartNs, w[0]))
					}
				}
				if off := w[1] - w[0] - sleep.DurNs - preemptedNs; off < 0 || off > 1_000_000 {
					t.Errorf("wait of %d ns has a row of %d ns", w[1]-w[0], sleep.DurNs)
				}
				var fact format.WaitFact
				if err := json.Unmarshal([]byte(sleep.Message), &fact); err != nil {
					t.Fatal(err)
				}
				if fact.SystemCall != c.call {
					t.Errorf("system call %q, want %q", fact.SystemCall, c.call)
				}
				if fact.Reason == c.reason {
					reasons++
				} else if fact.Reason != "" {
					t.Errorf("reason %q, want %q", fact.Reason, c.reason)
				}
				if len(sleep.Frames) > 0 && !hasFunction(sleep.Frames, c.function) {
					t.Errorf("the stack has no %s: %+v", c.function, sleep.Frames)
				}
				status[sleep.StackStatus]++
			}
			// On a busy machine, a snapshot may come late.
			if reasons < 10 {
				t.Errorf("%d of 12 waits have a reason", reasons)
			}
			if status[format.StackComplete] < 4 || status[format.StackComplete]+status[format.StackInferred] < 11 {
				t.Errorf("stacks %v of 12 waits", status)
			}
		})
	}
}

// hasFunction reports whether a function is on a stack.
func hasFunction(frames []format.Frame, name string) bool {
	return slices.ContainsFunc(frames, func(f format.Frame) bool { return f.Func == name })
}

// TestManyWaits counts waits of 2 ms: recorded and lost ones are as many as the program made.
func TestManyWaits(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	got, p := recordProgram(t, ModeAuto, 1, "many", "400")
	found, split := int64(0), int64(0)
	all := got.ofKind(format.KindWait, p.tids[0])
	for _, w := range p.waits {
		switch n := len(inside(all, w[0], w[1])); {
		case n == 1:
			found++
		default:
			split++ // the thread was preempted between its call and its sleep, or after it
		}
	}
	if found+split+got.lost != 400 || split > 20 {
		t.Errorf("%d recorded, %d split and %d lost waits, want 400", found, split, got.lost)
	}
}

// TestShortWaits checks that waits below 1 ms have no rows, but are part of the sums.
func TestShortWaits(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	got, p := recordProgram(t, ModeAuto, 1, "short", "2000")
	var slept int64
	for _, w := range p.waits {
		slept += w[1] - w[0]
	}
	short := 0
	for _, row := range inside(got.ofKind(format.KindWait, p.tids[0]), p.waits[0][0], p.waits[1999][1]) {
		if row.DurNs < int64(minWait) {
			short++
		}
	}
	if short > 0 {
		t.Errorf("%d rows of short waits", short)
	}
	m := got.lastMetrics(p.tids[0])
	// The log also has the time of the system calls, some µs each.
	off := m[format.HostSleeping] + m[format.HostRunnable]
	if off < 0.75*float64(slept) {
		t.Errorf("sleeping and runnable %.0f ns, want %d", off, slept)
	}
	if m[format.HostSwitches] < 2000 {
		t.Errorf("%.0f switches", m[format.HostSwitches])
	}
}

// TestSpin compares the time on a processor with the program's own CPU clock.
func TestSpin(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	got, p := recordProgram(t, ModeAuto, 1, "spin", "1")
	m := got.lastMetrics(p.tids[0])
	if ran := float64(p.ran[0]); m[format.HostRunning] < 0.95*ran || m[format.HostRunning] > 1.05*ran {
		t.Errorf("running %.0f ns, want %.0f", m[format.HostRunning], ran)
	}
	samples := got.ofKind(format.KindCPUSample, p.tids[0])
	sampled, others := int64(0), 0
	for _, row := range samples {
		sampled += row.DurNs
		if row.StackStatus != format.StackComplete {
			t.Errorf("sample %+v", row)
		}
		if !hasFunction(row.Frames, "run_spinning") {
			others++
		}
	}
	if others > 1 { // the thread writes before and after it spins
		t.Errorf("%d samples of %d outside of run_spinning", others, len(samples))
	}
	if share := float64(sampled) / float64(p.ran[0]); share < 0.9 || share > 1.1 {
		t.Errorf("%d samples represent %.2f of %d ns", len(samples), share, p.ran[0])
	}
}

// TestRunQueue pins two threads that spin to one processor: each waits half of the time in the run queue.
func TestRunQueue(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	got, p := recordProgram(t, ModeAuto, 2, "pinned", "1")
	for i, tid := range p.tids {
		m := got.lastMetrics(tid)
		wall := float64(p.ran[0]+p.ran[1]) / 2
		if m[format.HostRunnable] < wall/2 {
			t.Errorf("thread %d: runnable %.0f ns, ran %d", tid, m[format.HostRunnable], p.ran[i])
		}
		for _, row := range got.ofKind(format.KindWait, tid) {
			if row.Name == format.StateRunnable && row.Value != float64(row.DurNs) {
				t.Errorf("a runnable thread waits %d ns, but %.0f in run queues", row.DurNs, row.Value)
			}
		}
	}
}

// TestPreempted has a thread that wakes another one, which has a higher priority and spins on the same
// processor. So each time, the first thread waits in the run queue while the other one runs.
func TestPreempted(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	got, p := recordProgram(t, ModeAuto, 2, "preempted", "10")
	if len(p.waits) != 10 {
		t.Fatalf("the other thread ran %d times", len(p.waits))
	}
	waits, sum := got.ofKind(format.KindWait, p.tids[0]), int64(0)
	for _, ran := range p.waits {
		sum += ran[1] - ran[0]
		i := slices.IndexFunc(waits, func(row format.Row) bool {
			return row.StartNs <= ran[0] && row.StartNs+row.DurNs >= ran[1]
		})
		if i < 0 {
			t.Errorf("no wait from %d to %d", ran[0], ran[1])
			continue
		}
		var fact format.WaitFact
		if err := json.Unmarshal([]byte(waits[i].Message), &fact); err != nil {
			t.Fatal(err)
		}
		if waits[i].Name != format.StateRunnable || waits[i].Value != float64(waits[i].DurNs) ||
			int(fact.OwnerTid) != p.tids[1] {
			t.Errorf("wait %+v, want a wait for thread %d", waits[i], p.tids[1])
		}
	}
	if m := got.lastMetrics(p.tids[0]); m[format.HostRunnable] < float64(sum) {
		t.Errorf("runnable %.0f ns, but the other thread ran %d", m[format.HostRunnable], sum)
	}
}

// TestChild checks that the first thread of a child without CUDA is watched, with stacks.
func TestChild(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	p := startProgram(t, 2, "child", "10")
	child := p.tids[0]
	p.tids = p.tids[1:]
	p.children = []int{child}
	got := recordWhile(t, ModeAuto, p, p.run)
	waits, withStack := got.ofKind(format.KindWait, child), 0
	for _, row := range waits {
		if int(row.Pid) != child {
			t.Errorf("pid %d, want %d", row.Pid, child)
		}
		if hasFunction(row.Frames, "wait_sleeping") {
			withStack++
		}
	}
	if len(waits) == 0 || withStack == 0 {
		t.Errorf("%d waits, %d with a stack", len(waits), withStack)
	}
}

// TestEndedThread checks that the account of a thread that has ended stays as it was, and that its ID may be
// used again.
func TestEndedThread(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	p := startProgram(t, 1, "sleeps", "5")
	var since int64
	got := recordWhile(t, ModeAuto, p, func() {
		p.run() // the worker ends
		since = clock.ReadNs(unix.CLOCK_MONOTONIC)
		time.Sleep(1500 * time.Millisecond) // longer than the time between metrics
	})
	for _, row := range got.ofKind(format.KindWait, p.tids[0]) {
		if row.StartNs > since+100_000_000 {
			t.Errorf("a wait of the ended thread: %+v", row)
		}
	}
	m := got.lastMetrics(p.tids[0])
	sum := m[format.HostRunning] + m[format.HostRunnable] + m[format.HostSleeping]
	if sum > 1.4e9+float64(since-p.waits[0][0]) {
		t.Errorf("the ended thread has %.0f ns", sum)
	}
	if len(got.ofKind(format.KindWait, p.tids[0])) < 5 {
		t.Error("its last waits are missing")
	}
}

// TestOpenWait checks that a wait that has not ended has a row.
func TestOpenWait(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	p := startProgram(t, 1, "sleeps", "1")
	got := recordWhile(t, ModeAuto, p, func() { time.Sleep(200 * time.Millisecond) })
	waits := got.ofKind(format.KindWait, p.tids[0])
	if len(waits) != 1 || waits[0].Flags != format.FlagOpen || waits[0].DurNs < 200_000_000 ||
		waits[0].Name != format.StateSleeping || !hasFunction(waits[0].Frames, "worker") {
		t.Fatalf("rows %+v", waits)
	}
	if fact := got.fact; fact.Mode != "auto" || fact.MinWaitNs != 1_000_000 || fact.Switches == 0 {
		t.Errorf("note %+v", fact)
	}
}
