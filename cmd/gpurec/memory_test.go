//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

	"github.com/gpurec/gpurec/cmd/gpurec/memory"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/torchallocator"
)

// torchProgram is a running program of simtorch.
type torchProgram struct {
	*exec.Cmd
	stdin  io.Writer
	stdout *bufio.Reader
}

// startTorch starts a program with simtorch. It ends with the test.
func startTorch(t *testing.T, env []string, name string, args ...string) *torchProgram {
	t.Helper()
	folder := filepath.Join(simcudaDir(), "../simtorch")
	if _, err := os.Stat(filepath.Join(folder, "tensors")); err != nil {
		testclass.Missing(t, "simtorch is not built: make simtorch")
	}
	if !strings.Contains(name, "/") {
		name = filepath.Join(folder, name)
	}
	p := &torchProgram{Cmd: exec.Command(name, args...)}
	p.Env = append(os.Environ(), "SIMTORCH_LIB="+folder, "SIMCUDA_STATE="+filepath.Join(t.TempDir(), "state"))
	p.Env = append(p.Env, env...)
	stdin, err := p.StdinPipe()
	must(t, err)
	stdout, err := p.StdoutPipe()
	must(t, err)
	must(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	p.stdin, p.stdout = stdin, bufio.NewReader(stdout)
	return p
}

func (p *torchProgram) pid() string { return strconv.Itoa(p.Process.Pid) }

// startTorchLeak starts a program that keeps 60 tensors of 3,000,000 bytes, and waits. It returns its pid.
func startTorchLeak(t *testing.T) string {
	t.Helper()
	p := startTorch(t, nil, "tensorleak", "--steps", "60", "--step-ms", "0", "--leak-bytes", "3000000", "--wait")
	expectLine(t, p.stdout, "ready")
	_, err := p.stdin.Write([]byte("x"))
	must(t, err)
	expectLine(t, p.stdout, "done")
	return p.pid()
}

// readMemory runs "gpurec memory --json" and returns its devices.
func readMemory(t *testing.T, args ...string) []memory.Device {
	t.Helper()
	stdout, stderr, code := runGpurec(t, append([]string{"memory", "--json"}, args...)...)
	var object struct{ Devices []memory.Device }
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	must(t, json.Unmarshal([]byte(stdout), &object))
	return object.Devices
}

// lastCheckpoints returns the last checkpoint of each device in a ledger: numbers by the name of their column.
func lastCheckpoints(t *testing.T, ledger string) map[string]map[string]int64 {
	t.Helper()
	data, err := os.ReadFile(ledger)
	must(t, err)
	devices := make(map[string]map[string]int64)
	var names []string
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		switch cells[0] {
		case "#checkpoint":
			names = cells
		case "checkpoint":
			numbers := make(map[string]int64)
			for i := 1; i < len(cells); i++ {
				numbers[names[i]], _ = strconv.ParseInt(cells[i], 10, 64)
			}
			devices[cells[slices.Index(names, "device")]] = numbers
		}
	}
	return devices
}

// TestMemoryHints checks which command follows an error.
func TestMemoryHints(t *testing.T) {
	testclass.Unit(t)
	f := &memoryFlags{pid: 7}
	of := func(err error, parent int, children ...int) error {
		return &record.TorchMemoryError{Pid: 7, Err: err, Parent: parent, Children: children}
	}
	for _, c := range []struct {
		err  error
		hint string
	}{
		{nil, ""},
		{errors.New("other"), ""},
		{&process.Error{Pid: 7, Err: process.ErrNoProcess}, "sudo gpurec ps"},
		{of(torchallocator.ErrEnded, 0), "sudo gpurec ps"},
		{of(record.ErrReplaced, 0), "sudo gpurec ps"},
		{of(record.ErrNoTorch, 0), "sudo gpurec ps"},
		{of(record.ErrNoTorch, 0, 8, 9), "sudo gpurec memory -p 8"},
		{of(torchallocator.ErrUnused, 0), "sudo gpurec memory -p 7 --every 1s"},
		{of(errors.New("a fork"), 6), "sudo gpurec memory -p 6"},
		{of(&torchallocator.OtherAllocatorError{}, 0), "sudo gpurec record -p 7 -d 60s"},
		{&torchallocator.UnknownLayoutError{Err: errors.New("x")}, "sudo gpurec record -p 7 -d 60s"},
		{&torchallocator.BusyError{}, "sudo gpurec memory -p 7"},
		{record.ErrBlocked, "sudo gpurec stacks -p 7"},
	} {
		var hinted *message.HintedError
		hint := ""
		if err := f.explain(c.err); errors.As(err, &hinted) {
			hint = hinted.Hint
		} else if err != c.err {
			t.Errorf("%v became %v", c.err, err)
		}
		if hint != c.hint {
			t.Errorf("%v: hint %q, want %q", c.err, hint, c.hint)
		}
	}
}

// TestMemoryEqualsTheLedger compares the memory of an idle program with the last checkpoint of its ledger: two devices,
// streams, private pools and captured graphs, with and without expandable segments.
func TestMemoryEqualsTheLedger(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	for _, conf := range []string{"", "expandable_segments:True"} {
		ledger := filepath.Join(t.TempDir(), "torch.tsv")
		seed := fmt.Sprint(rand.IntN(1000))
		p := startTorch(t, []string{"SIMTORCH_LEDGER=" + ledger, "PYTORCH_CUDA_ALLOC_CONF=" + conf}, "tensors",
			"--events", "3000", "--devices", "2", "--threads", "2", "--streams", "2", "--seed", seed, "--wait")
		expectLine(t, p.stdout, "ready")
		if out, _, code := runGpurec(t, "memory", "-p", p.pid()); code != 0 ||
			!strings.HasSuffix(out, "devices 0-1: nothing is reserved\n") {
			t.Errorf("before the first request: exit %d, %s", code, out)
		}
		_, err := p.stdin.Write([]byte("x"))
		must(t, err)
		expectLine(t, p.stdout, "done")
		checkpoints := lastCheckpoints(t, ledger)
		for _, d := range readMemory(t, "-p", p.pid()) {
			want := checkpoints[fmt.Sprint(d.Device)]
			got := map[string]int64{
				"allocated_bytes": d.AllocatedBytes, "reserved_bytes": d.ReservedBytes,
				"requested_bytes": d.RequestedBytes, "active_bytes": d.AllocatedBytes + d.AwaitingBytes,
				"segments": d.Segments, "allocations": d.AllocatedBlocks,
				"active_blocks": d.AllocatedBlocks + d.AwaitingBlocks,
			}
			for name, n := range got {
				if n != want[name] {
					t.Errorf("conf %q, seed %s, device %d: %s %d, want %d", conf, seed, d.Device, name, n, want[name])
				}
			}
			if !d.IsProved || d.Proof.Totals != 27 || d.Proof.TotalsAgree != 27 || d.Proof.Calls == 0 ||
				(d.MappedRanges > 0) != (conf != "") || want["reserved_bytes"] == 0 {
				t.Errorf("conf %q, seed %s: device %+v", conf, seed, d)
			}
		}
		blocks := checkpoints["0"]["active_blocks"] + checkpoints["1"]["active_blocks"]
		out, _, _ := runGpurec(t, "check", "-p", p.pid())
		if want := fmt.Sprintf("PyTorch blocks  ok       %d blocks, ", blocks); !strings.Contains(out, want) ||
			!strings.Contains(out, ", 54 of 54 totals agree\n") {
			t.Errorf("conf %q: gpurec check prints no %q:\n%s", conf, want, out)
		}
	}
}

// TestMemoryOfAHungProcess stops a program until it holds the lock of its allocator.
func TestMemoryOfAHungProcess(t *testing.T) {
	testclass.Root(t)
	p := startTorch(t, nil, "tensors", "--events", "100000000", "--wait")
	expectLine(t, p.stdout, "ready")
	_, err := p.stdin.Write([]byte("x"))
	must(t, err)
	var d memory.Device
	for range 200 {
		must(t, p.Process.Signal(syscall.SIGSTOP))
		waitForState(t, p.Process.Pid, 'T')
		if d = readMemory(t, "-p", p.pid())[0]; d.Holder != nil {
			break
		}
		must(t, p.Process.Signal(syscall.SIGCONT))
	}
	if d.Holder == nil || d.Memory != nil && d.IsProved || d.Holder.Name != "tensors" || d.Holder.HeldNs <= 0 ||
		d.Holder.Tid != d.Holder.NamespaceTid || d.Holder.WaitPlace == "" {
		t.Fatalf("holder %+v of device %+v", d.Holder, d)
	}
	doubt := "\nits blocks are unknown: "
	if d.Memory != nil {
		doubt = "\nthe blocks below are not proved: "
	}
	out, stderr, code := runGpurec(t, "memory", "-p", p.pid())
	for _, want := range []string{
		fmt.Sprintf("inside the allocator: thread %d (tensors) holds its lock, for at least ", d.Holder.Tid),
		", and waits in ", d.Holder.WaitPlace, doubt,
		"\nnext: sudo gpurec stacks -p " + p.pid() + "\n",
	} {
		if !strings.Contains(out, want) || code != 0 || stderr != "" {
			t.Errorf("exit %d, no %q in\n%s%s", code, want, out, stderr)
		}
	}
	line, _, code := runGpurec(t, "memory", "-p", p.pid(), "--every", "10ms", "--count", "1")
	if !strings.Contains(line, "  refused: inside the allocator: thread ") || code != 0 {
		t.Errorf("--every: exit %d, %q", code, line)
	}
}

// waitForState waits until all threads of a process have a state of /proc/PID/stat.
func waitForState(t *testing.T, pid int, state byte) {
	t.Helper()
	for range 1000 {
		others := 0
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		must(t, err)
		for _, path := range tasks {
			text, err := os.ReadFile(path)
			must(t, err)
			if after := text[strings.LastIndexByte(string(text), ')')+2]; after != state {
				others++
			}
		}
		if others == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("process %d has threads that are not in state %c", pid, state)
}

// TestMemoryOfAProcessThatEnds watches a process until it ends.
func TestMemoryOfAProcessThatEnds(t *testing.T) {
	testclass.Root(t)
	p := startTorch(t, nil, "tensors", "--events", "100000000", "--rate", "3000", "--wait")
	expectLine(t, p.stdout, "ready")
	_, err := p.stdin.Write([]byte("x"))
	must(t, err)
	gpurec, err := exec.LookPath("gpurec")
	must(t, err)
	cmd := exec.CommandContext(t.Context(), gpurec, "memory", "-p", p.pid(), "--every", "20ms", "--json")
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	var messages strings.Builder
	cmd.Stderr = &messages
	must(t, cmd.Start())
	lines, read := bufio.NewScanner(stdout), 0
	for ; read < 5 && lines.Scan(); read++ {
		if !strings.HasPrefix(lines.Text(), `{"pid":`+p.pid()+`,`) {
			t.Errorf("line %q", lines.Text())
		}
	}
	must(t, p.Process.Kill())
	for lines.Scan() {
		read++
	}
	if err := cmd.Wait(); err != nil || read < 5 || !strings.Contains(messages.String(), " has ended; ") {
		t.Errorf("%v, %d lines, %q", err, read, messages.String())
	}
}

// TestMemoryOfAPipeThatCloses checks that gpurec ends with the reader of its lines.
func TestMemoryOfAPipeThatCloses(t *testing.T) {
	testclass.Root(t)
	p := startTorch(t, nil, "tensors", "--events", "100000000", "--wait")
	expectLine(t, p.stdout, "ready")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", "gpurec memory -p "+p.pid()+" --every 10ms | head -n 3")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil || strings.Count(string(out), "\n") != 3 {
		t.Errorf("%v: %s", err, out)
	}
}

// forkProgram is a Python program that allocates, and then forks. The child has only a copy of the allocator.
const forkProgram = `
import os, sys
sys.path.insert(0, sys.argv[1])
import simtorch
simtorch.init()
tensor = simtorch.empty(5 << 20, None)
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print(child, flush=True)
sys.stdin.read()
os.kill(child, 9)
`

// TestMemoryOfAFork names the parent of a process that has only a copy of an allocator, and reads the parent.
func TestMemoryOfAFork(t *testing.T) {
	testclass.Root(t)
	python, err := exec.LookPath("python3")
	if err != nil {
		testclass.Missing(t, "needs python3")
	}
	examples, err := filepath.Abs("../../examples/simtorch")
	must(t, err)
	p := startTorch(t, nil, python, "-B", "-c", forkProgram, examples)
	line, err := p.stdout.ReadString('\n')
	must(t, err)
	child, err := strconv.Atoi(strings.TrimSpace(line))
	must(t, err)
	defer func() { _ = syscall.Kill(child, syscall.SIGKILL) }()
	_, stderr, code := runGpurec(t, "memory", "-p", strconv.Itoa(child))
	if code != 1 || !strings.Contains(stderr, "has only a copy of its parent's allocator") ||
		!strings.Contains(stderr, "hint: sudo gpurec memory -p "+p.pid()+"\n") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if d := readMemory(t, "-p", p.pid(), "--device", "0"); len(d) != 1 || d[0].AllocatedBytes != 5<<20 {
		t.Errorf("the parent has %+v", d)
	}
}
