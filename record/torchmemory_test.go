//go:build linux

package record

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/torchallocator"
)

func TestTorchMemoryErrors(t *testing.T) {
	testclass.Unit(t)
	for want, e := range map[string]*TorchMemoryError{
		"process 7 (a) has not loaded PyTorch's libc10_cuda.so": {Pid: 7, Comm: "a", Err: ErrNoTorch},
		"process 7 (a) has not loaded PyTorch's libc10_cuda.so, but its child 8 has an allocator": {
			Pid: 7, Comm: "a", Err: ErrNoTorch, Children: []int{8},
		},
		"process 7 (a) is a fork, and has only a copy of its parent's allocator": {Pid: 7, Comm: "a", Err: errFork},
		"process 7 (a): none, but 2 of its children have an allocator": {
			Pid: 7, Comm: "a", Err: errors.New("none"), Children: []int{8, 9},
		},
	} {
		if e.Error() != want || !errors.Is(e, e.Err) {
			t.Errorf("%q, want %q", e, want)
		}
	}
	denied := (&TorchMemory{process: &process.Process{Pid: 1}}).explain(torchallocator.ErrDenied)
	if text := denied.Error(); !errors.Is(denied, torchallocator.ErrDenied) ||
		!strings.Contains(text, "reading its memory ") {
		t.Errorf("denied: %v", denied)
	}
	if _, err := OpenTorchMemory(t.Context(), -1); !errors.Is(err, process.ErrNoProcess) {
		t.Errorf("pid -1: %v", err)
	}
}

func TestRunWithin(t *testing.T) {
	testclass.Unit(t)
	failed := errors.New("failed")
	if n, err := runWithin(t.Context(), time.Hour, func() (int, error) { return 7, failed }); n != 7 || err != failed {
		t.Errorf("%d, %v", n, err)
	}
	blocked := make(chan struct{})
	defer close(blocked)
	block := func() (int, error) {
		<-blocked
		return 7, nil
	}
	if _, err := runWithin(t.Context(), time.Millisecond, block); err != ErrBlocked {
		t.Errorf("blocked: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := runWithin(ended, time.Hour, block); err != context.Canceled {
		t.Errorf("interrupted: %v", err)
	}
}

func TestSystemCallOfProc(t *testing.T) {
	testclass.Unit(t)
	for text, want := range map[string]string{
		"running": "", "": "", "-1 0x7ffe 0x7f00": "", "99999 0x1 0x2": "system call 99999", "x 0x1": "", "7": "",
	} {
		if got := parseSystemCall(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestTorchSum(t *testing.T) {
	testclass.Unit(t)
	block := torchallocator.Block{Use: torchallocator.Allocated}
	state := &torchallocator.State{
		AllocatedBytes: 3<<30 + 700<<20, Segments: []torchallocator.Segment{{Blocks: []torchallocator.Block{block}}},
		Totals: []torchallocator.Total{{Name: "a", Blocks: 1, Statistics: 1}, {Name: "b", Blocks: 1}},
	}
	var sum torchSum
	if got, want := sum.String(), "no blocks yet"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for i, want := range []string{"1 block, 3.68 GiB, 1 of 2 totals agree", "2 blocks, 7.37 GiB, 2 of 4 totals agree"} {
		if sum.add(state); sum.String() != want {
			t.Errorf("%d states: %q, want %q", i+1, sum.String(), want)
		}
	}
	small := torchSum{allocated: 3 << 19, totals: 27, agree: 27}
	if got, want := fmt.Sprint(small.String()), "0 blocks, 1.50 MiB, 27 of 27 totals agree"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// execProgram is a Python program that allocates, waits for a byte, and executes its arguments, or itself.
const execProgram = `
import os, sys
sys.path.insert(0, sys.argv[1])
import simtorch
simtorch.init()
tensor = simtorch.empty(5 << 20, None)
print("ready", flush=True)
sys.stdin.read(1)
os.execv(sys.argv[2], sys.argv[2:])
`

// TestTorchMemoryOfAnotherProgram executes another program, or the same one again, between two readings, and then ends
// the process.
func TestTorchMemoryOfAnotherProgram(t *testing.T) {
	testclass.Root(t)
	python, err := exec.LookPath("python3")
	if err != nil {
		testclass.Missing(t, "needs python3")
	}
	examples, err := filepath.Abs("../examples/simtorch")
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"SIMTORCH_LIB=" + filepath.Dir(simtorch(t, "tensors"))}
	again := []string{python, "-B", "-c", execProgram, examples}
	for comm, next := range map[string][]string{"cat": {"/bin/cat"}, "python3": append(again, "/bin/cat")} {
		p := startSim(t, env, python, append(again[1:len(again):len(again)], next...)...)
		p.expect("ready")
		m, err := OpenTorchMemory(t.Context(), p.pid())
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		r, err := m.Read(t.Context(), 0)
		if err != nil || r.Refused != nil || r.State.AllocatedBytes != 5<<20 {
			t.Fatalf("%s: %+v, %v", comm, r, err)
		}
		if _, err := p.stdin.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if comm == "cat" {
			waitForComm(t, p.pid(), comm)
		} else {
			p.expect("ready")
		}
		if r, err := m.Read(t.Context(), 0); !errors.Is(err, ErrReplaced) {
			t.Errorf("%s: %+v, %v", comm, r, err)
		}
		p.kill()
		if r, err := m.Read(t.Context(), 0); !errors.Is(err, torchallocator.ErrEnded) {
			t.Errorf("%s ended: %+v, %v", comm, r, err)
		}
	}
}

// waitForComm waits until a process has a name.
func waitForComm(t *testing.T, pid int, comm string) {
	t.Helper()
	for range 1000 {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil {
			t.Fatal(err)
		}
		if string(text) == comm+"\n" {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("process %d is not %s after 10 s", pid, comm)
}
