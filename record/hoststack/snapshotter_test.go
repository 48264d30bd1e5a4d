//go:build linux && amd64

package hoststack

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/hoststack/snapshot"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/symbolize/elftest"
)

// openSnapshotter opens a Snapshotter for a test, which needs root.
func openSnapshotter(t testing.TB) *Snapshotter {
	t.Helper()
	l, err := Open(nil)
	if err != nil {
		testclass.Missing(t, err.Error())
	}
	t.Cleanup(l.Close)
	return l
}

// program is a running test program.
type program struct {
	pid    int
	input  io.WriteCloser
	output *bufio.Reader
}

// start starts a program that ends with the test.
func start(t testing.TB, path string, args ...string) *program {
	t.Helper()
	command := exec.Command(path, args...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	command.Stderr = os.Stderr
	input, err1 := command.StdinPipe()
	output, err2 := command.StdoutPipe()
	if err := errors.Join(err1, err2, command.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) // the program and its children
		_ = command.Wait()                                      // killed
	})
	return &program{command.Process.Pid, input, bufio.NewReader(output)}
}

// goOn writes a line to the program.
func (p *program) goOn(t testing.TB) {
	t.Helper()
	if _, err := fmt.Fprintln(p.input); err != nil {
		t.Fatal(err)
	}
}

// waitForThreads waits until a process has n threads in system calls, and others that run.
func (p *program) waitForThreads(t testing.TB, waiting, running int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		calls, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", p.pid))
		if err != nil {
			t.Fatal(err)
		}
		inCall := 0
		for _, call := range calls {
			text, err := os.ReadFile(call)
			if err == nil && !bytes.HasPrefix(text, []byte("running")) {
				inCall++
			}
		}
		if inCall == waiting && len(calls) == waiting+running {
			return
		}
	}
	t.Fatalf("process %d has not %d waiting threads", p.pid, waiting)
}

// takeSnapshot takes one snapshot.
func takeSnapshot(t testing.TB, l *Snapshotter, pid int) *ProcessSnapshot {
	t.Helper()
	taken, err := l.Take(context.Background(), pid)
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

// functions returns the function names of frames of a type, innermost first, without those that the
// file does not name.
func functions(frames []format.Frame, kind string) []string {
	var names []string
	for _, f := range frames {
		if f.Type == kind && f.Func != "" {
			names = append(names, f.Func)
		}
	}
	return names
}

// waitsTruth has the own functions of each thread of waits.c, innermost first, the system call, the state
// and the reason of its wait.
var waitsTruth = map[string]struct {
	call, state, reason string
	frames              []string
}{
	"waits": {"pause", snapshot.StateSleeping, "", []string{"main", "_start"}},
	"sleep": {
		"clock_nanosleep",
		snapshot.StateSleeping,
		format.ReasonSleep,
		append(slices.Repeat([]string{"middle"}, 21), "sleeper"),
	},
	"mutex": {"futex", snapshot.StateSleeping, format.ReasonLock, []string{"locker"}},
	"condition": {
		"futex",
		snapshot.StateSleeping,
		format.ReasonCondition,
		[]string{"wait_for_condition", "conditioner"},
	},
	"read":      {"read", snapshot.StateSleeping, format.ReasonPipe, []string{"reader"}},
	"poll":      {"poll", snapshot.StateSleeping, format.ReasonPipe, []string{"poller"}},
	"epoll":     {"epoll_wait", snapshot.StateSleeping, format.ReasonPipe, []string{"wait_for_events", "epoller"}},
	"semaphore": {"futex", snapshot.StateSleeping, format.ReasonCondition, []string{"wait_for_semaphore", "poster"}},
	"qsort":     {"clock_nanosleep", snapshot.StateSleeping, format.ReasonSleep, []string{"compare", "sorter"}},
	"signal": {
		"clock_nanosleep",
		snapshot.StateSleeping,
		format.ReasonSleep,
		[]string{"handler", "wait_in_handler", "signaled"},
	},
	"bigframe": {"clock_nanosleep", snapshot.StateSleeping, format.ReasonSleep, []string{"wait_in_big_frame", "big"}},
	"alloca": {
		"clock_nanosleep",
		snapshot.StateSleeping,
		format.ReasonSleep,
		[]string{"wait_behind_alloca", "allocator"},
	},
	"vfork": {"vfork", snapshot.StateUninterruptible, format.ReasonChild, []string{"wait_for_vfork", "forker"}},
	"vforkalloca": {
		"vfork",
		snapshot.StateUninterruptible,
		format.ReasonChild,
		[]string{"vfork_behind_alloca", "allocating_forker"},
	},
	"spin": {"", snapshot.StateRunning, "", []string{"spin", "spinner"}},
}

// ownFunctions returns the functions of the test program on a stack, without leaf_sleep.
func ownFunctions(th *Thread, module string) []string {
	var names []string
	for _, f := range th.Frames {
		if f.Type == "native" && strings.HasSuffix(f.Module, module) && f.Func != "leaf_sleep" && f.Func != "" {
			names = append(names, f.Func)
		}
	}
	return names
}

// checkWaits compares the threads of waits.c with the truth.
func checkWaits(t *testing.T, l *ProcessSnapshot) {
	t.Helper()
	if len(l.Threads) != len(waitsTruth) {
		t.Errorf("%d threads, not %d", len(l.Threads), len(waitsTruth))
	}
	for i := range l.Threads {
		th := &l.Threads[i]
		want := waitsTruth[th.Name]
		if th.Status != StatusComplete {
			t.Errorf("%s: %s, %s", th.Name, th.Status, th.Reason)
		}
		if got := ownFunctions(th, "waits"); !slices.Equal(got, want.frames) {
			t.Errorf("%s: frames %v, not %v", th.Name, got, want.frames)
		}
		isRunning := want.state == snapshot.StateRunning && th.State == snapshot.StateRunnable
		if th.State != want.state && !isRunning || th.SystemCall != want.call {
			t.Errorf("%s: %s in %q, not %s in %q", th.Name, th.State, th.SystemCall, want.state, want.call)
		}
		if want.state != snapshot.StateRunning && th.Wait.Reason != want.reason {
			t.Errorf("%s: waits for %q, not %q", th.Name, th.Wait.Reason, want.reason)
		}
		if owner := th.Wait.Owner; th.Name == "mutex" && (owner != "waits" || int(th.Wait.OwnerTid) != l.Pid) ||
			th.Name == "vfork" && (owner != "vfork" || th.Wait.OwnerPid == 0) {
			t.Errorf("%s: the owner is %q, %d, %d", th.Name, owner, th.Wait.OwnerPid, th.Wait.OwnerTid)
		}
	}
}

func TestThreadsOfAllKinds(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	l := openSnapshotter(t)
	p := start(t, elftest.Compile(t, "testdata/waits.c", "waits", "-pthread", "-w"))
	p.goOn(t)
	p.waitForThreads(t, len(waitsTruth)-1, 1)
	for range 3 { // the second snapshot uses what the first one has read
		checkWaits(t, takeSnapshot(t, l, p.pid))
	}
}

// TestWithoutCopiedStacks takes snapshots as on kernels before 5.18: all stacks are read later, and count only if
// their thread has not run.
func TestWithoutCopiedStacks(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	l := openSnapshotter(t)
	plain, err := snapshot.OpenPlain()
	if err != nil {
		t.Fatal(err)
	}
	l.reader.Close()
	l.reader = plain
	p := start(t, elftest.Compile(t, "testdata/waits.c", "waits", "-pthread", "-w"))
	p.goOn(t)
	p.waitForThreads(t, len(waitsTruth)-1, 1)
	checkWaits(t, takeSnapshot(t, l, p.pid))
	moving := start(t, elftest.Compile(t, "testdata/depths.c", "depths", "-pthread", "-w"), "20", "5000")
	moving.waitForDepths(t)
	for range 10 {
		for _, th := range takeSnapshot(t, l, moving.pid).Threads {
			checkCDepth(t, &th)
		}
	}
}

// TestNoSuchProcess checks the errors of a number without a process.
func TestNoSuchProcess(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	l := openSnapshotter(t)
	if _, err := l.Take(context.Background(), 1<<22+1); !errors.Is(err, process.ErrNoProcess) {
		t.Errorf("the error is %v", err)
	}
	command := exec.Command("true")
	if err := command.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Take(context.Background(), command.Process.Pid); !errors.Is(err, process.ErrNoProcess) {
		t.Errorf("the error is %v", err)
	}
}

// TestMovingThreads checks that no stack is torn: the innermost function names the depth.
func TestMovingThreads(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	l := openSnapshotter(t)
	file := elftest.Compile(t, "testdata/depths.c", "depths", "-pthread", "-w")
	for _, wait := range []string{"2000", "100", "10"} {
		p := start(t, file, "20", wait)
		p.waitForDepths(t)
		right, missed := 0, 0
		for range 50 {
			for _, th := range takeSnapshot(t, l, p.pid).Threads {
				if th.Status == StatusMissed {
					missed++
				} else if checkCDepth(t, &th) {
					right++
				}
			}
		}
		t.Logf("waits of %s µs: %d stacks with the right depth, %d missed", wait, right, missed)
		if right < 200 || missed > 500 {
			t.Errorf("waits of %s µs: %d stacks, %d missed", wait, right, missed)
		}
	}
}

// checkCDepth compares the depth of a stack of depths.c with its innermost function. It returns false
// for stacks without user frames, or with another innermost function.
func checkCDepth(t *testing.T, th *Thread) bool {
	t.Helper()
	names := ownFunctions(th, "depths")
	deep := len(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n != "deep" }))
	if th.Status == StatusTruncated {
		t.Errorf("%s: %s", th.Status, th.Reason)
	}
	if len(names) == 0 || !strings.HasPrefix(names[0], "wait_at_") {
		return false
	}
	if want := fmt.Sprintf("wait_at_%d", deep); names[0] != want {
		t.Errorf("%d frames of deep below %s", deep, names[0])
	}
	return true
}

// waitForDepths waits until depths.c has all its threads, and its first thread waits for them. Before, that
// thread may be in clone3, which has no unwind information.
func (p *program) waitForDepths(t testing.TB) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.pid))
		if err != nil || len(tasks) < 21 {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stat", p.pid, p.pid))
		if _, state, ok := strings.Cut(string(stat), ") "); err == nil && ok && strings.HasPrefix(state, "S") {
			return
		}
	}
	t.Fatal("the threads have not started")
}
