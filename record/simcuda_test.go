//go:build linux

package record

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/simtest"
)

// simcudaDir holds what `make simcuda` builds.
const simcudaDir = "../build/simcuda"

// skip skips a test, or fails it where everything has to run.
var skip = simtest.Skip

// needKernel skips tests that attach to processes where that cannot be done.
func needKernel(t *testing.T) {
	t.Helper()
	if err := privilege.Check(privilege.AttachAuto); err != nil {
		skip(t, err.Error())
	}
	if _, err := os.Stat(filepath.Join(simcudaDir, "libcuda.so.1")); err != nil {
		skip(t, "simcuda is not built: make simcuda")
	}
}

// needMulti skips tests of what only uprobe_multi links can do, on kernels without them.
func needMulti(t *testing.T) {
	t.Helper()
	needKernel(t)
	if privilege.AttachAuto.OnThisKernel() != privilege.AttachMulti {
		skip(t, "this kernel has no uprobe_multi")
	}
}

// simProgram is a running program on simcuda.
type simProgram struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	ledger string
}

// simCommand makes a command that runs on simcuda with a ledger.
func simCommand(t *testing.T, env []string, name string, args ...string) (*exec.Cmd, string) {
	t.Helper()
	ledger := filepath.Join(t.TempDir(), "ledger.tsv")
	dir, err := filepath.Abs(simcudaDir)
	if err != nil {
		t.Fatal(err)
	}
	path := name // of a copy, if it is absolute
	if !filepath.IsAbs(name) {
		path = filepath.Join(dir, name)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "SIMCUDA_TIME=off", "SIMCUDA_LEDGER="+ledger,
		"SIMCUDA_STATE="+filepath.Join(t.TempDir(), "state"))
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	return cmd, ledger
}

// startSim starts a program that waits (--wait) until it is let go.
func startSim(t *testing.T, env []string, name string, args ...string) *simProgram {
	t.Helper()
	p := &simProgram{t: t}
	p.cmd, p.ledger = simCommand(t, env, name, args...)
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.stdin.Close()
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

// startSimCommand holds a program of simcuda as record -- COMMAND does. Its
// environment is this process's, so that is set for the test.
func startSimCommand(t *testing.T, env []string, name string, args ...string) *Command {
	t.Helper()
	cmd, _ := simCommand(t, env, name, args...)
	for _, kv := range cmd.Env {
		if name, value, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "SIMCUDA_") || name == "LD_LIBRARY_PATH" {
			t.Setenv(name, value)
		}
	}
	command, err := StartCommand(cmd.Args, format.Owner{})
	if err != nil {
		t.Fatal(err)
	}
	return command
}

func (p *simProgram) pid() int { return p.cmd.Process.Pid }

// expect waits for a line that begins with prefix and returns the rest.
func (p *simProgram) expect(prefix string) string {
	p.t.Helper()
	for {
		line, err := p.stdout.ReadString('\n')
		if err != nil {
			p.t.Fatalf("waiting for %q: %v", prefix, err)
		}
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
			return strings.TrimSpace(rest)
		}
	}
}

// step lets the program go on.
func (p *simProgram) step() {
	p.t.Helper()
	if _, err := p.stdin.Write([]byte("x")); err != nil {
		p.t.Fatal(err)
	}
}

// finish lets the program end.
func (p *simProgram) finish() {
	p.t.Helper()
	p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the recorded program failed: %v", err)
	}
}

// testOptions returns options for a recording in a folder of the test's own.
func testOptions(t *testing.T, pids ...int) Options {
	opt := DefaultOptions()
	// Complete stacks take seconds to start; tests of them ask for them.
	opt.Stacks, opt.KeepGetters, opt.KeepReturns = probe.StacksFP, true, true
	opt.Pids, opt.Output, opt.NVMLInterval = pids, filepath.Join(t.TempDir(), "r.parquet"), 0
	return opt
}

func start(t *testing.T, opt Options) *Session {
	t.Helper()
	s, err := Start(opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// runWhile runs a session while do runs, and ends it.
func runWhile(t *testing.T, s *Session, do func()) Result {
	t.Helper()
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	return finishAfter(t, s, do)
}

// finishAfter runs a session while do runs, and makes the file.
func finishAfter(t *testing.T, s *Session, do func()) Result {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx)
		ended <- err
	}()
	do()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
	result, err := s.Finish()
	if err != nil {
		t.Fatalf("finish: %v", err)
	}
	return result
}

// endless is a number of calls that no storm reaches: its test kills it.
const endless = "100000000000"

// kill ends the program while it runs.
func (p *simProgram) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	_ = p.cmd.Wait() // "signal: killed" it was
}

// ledgerCall is one line of simcuda's ledger: what really happened.
type ledgerCall struct {
	startNs, endNs int64
	pid, tid       int32
	name           string
	result         int32
	ptr, bytes     int64
	stream         int64
	context        int64
	device         int32
	src, function  int64
	grid, block    [3]int32
	shared         int32
	value          int64
	kernel         string
}

// readLedger returns the calls of a ledger that began at or after a CLOCK_MONOTONIC
// time, by thread, in order.
func readLedger(t *testing.T, path string, sinceNs int64) map[int32][]ledgerCall {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	calls := make(map[int32][]ledgerCall)
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, 1<<20), 1<<20)
	for n := 1; lines.Scan(); n++ {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		c, err := parseLedger(lines.Text())
		if err != nil {
			t.Fatalf("%s line %d: %v", path, n, err)
		}
		if c.startNs >= sinceNs {
			calls[c.tid] = append(calls[c.tid], c)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for _, thread := range calls {
		slices.SortFunc(thread, func(a, b ledgerCall) int { return int(a.startNs - b.startNs) })
	}
	return calls
}

func parseLedger(line string) (c ledgerCall, err error) {
	f := strings.Split(line, "\t")
	if len(f) != 22 {
		return c, fmt.Errorf("%d columns", len(f))
	}
	number := func(i int) int64 {
		n, perr := strconv.ParseUint(strings.TrimPrefix(f[i], "0x"), base(f[i]), 64)
		if strings.HasPrefix(f[i], "-") {
			var signed int64
			signed, perr = strconv.ParseInt(f[i], 10, 64)
			n = uint64(signed)
		}
		if perr != nil && err == nil {
			err = perr
		}
		return int64(n)
	}
	c = ledgerCall{
		startNs: number(0),
		endNs:   number(1),
		pid:     int32(number(2)),
		tid:     int32(number(3)),
		name:    f[4],
		result: int32(
			number(5),
		),
		ptr:      number(6),
		bytes:    number(7),
		stream:   number(8),
		context:  number(9),
		device:   int32(number(10)),
		src:      number(11),
		function: number(12),
		shared:   int32(number(19)),
		value:    number(20),
		kernel:   f[21],
	}
	for i := range 3 {
		c.grid[i], c.block[i] = int32(number(13+i)), int32(number(16+i))
	}
	return c, err
}

func base(s string) int {
	if strings.HasPrefix(s, "0x") {
		return 16
	}
	return 10
}

// monotonic is the present on the ledger's clock.
func monotonic() int64 { return clock.Ns(unix.CLOCK_MONOTONIC) }

// recordedCalls reads the calls of a recording by thread, in order of their starts.
func recordedCalls(t *testing.T, path string) map[int32][]format.Row {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	calls := make(map[int32][]format.Row)
	err = rec.Rows(func(r *format.Row) error {
		calls[r.Tid] = append(calls[r.Tid], *r)
		return nil
	}, format.ClassMemory, format.ClassCall)
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range calls {
		slices.SortFunc(thread, func(a, b format.Row) int { return int(a.StartNs - b.StartNs) })
	}
	return calls
}

// stackFunctions are the functions of the stacks of a recording, by stack.
func stackFunctions(t *testing.T, path string) map[int32][]string {
	t.Helper()
	functions := make(map[int32][]string)
	for _, row := range factRows(t, path, format.KindStack) {
		for _, f := range row.Frames {
			functions[row.StackID] = append(functions[row.StackID], f.Func)
		}
	}
	return functions
}

// factRows reads the rows of facts, stacks and samples of one kind.
func factRows(t *testing.T, path, kind string) []format.Row {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	var rows []format.Row
	err = rec.Rows(func(r *format.Row) error {
		if r.Kind == kind {
			rows = append(rows, *r)
		}
		return nil
	}, format.ClassFact, format.ClassStack, format.ClassSample)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// eventuallyLimit is long enough for a machine whose processors are all busy with other work.
const eventuallyLimit = 5 * time.Minute

// eventually polls until ok, for what another process does in its own time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(eventuallyLimit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("timed out: %s", what)
}

// awaitCalls waits until the BPF programs have seen n calls.
func awaitCalls(t *testing.T, s *Session, n uint64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d calls are seen", n), func() bool {
		var seen uint64
		for class := range bpf.CudaCallClassCLASS_COUNT {
			var perCPU []bpf.CudaClassStats
			if err := s.probes.Objects.Stats.Lookup(uint32(class), &perCPU); err != nil {
				t.Fatal(err)
			}
			for i := range perCPU {
				seen += perCPU[i].Seen
			}
		}
		return seen >= n
	})
}

// awaitOpenCall waits until a call of this name has been open for a time.
func awaitOpenCall(t *testing.T, s *Session, name string, since time.Duration) {
	t.Helper()
	eventually(t, name+" is open", func() bool {
		open, err := s.probes.OpenCalls()
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(open, func(e bpf.CudaEvent) bool {
			_, called, _, _ := bpf.ByCookie(e.Call)
			return called == name && monotonic()-int64(e.StartNs) > since.Nanoseconds()
		})
	})
}

// awaitLedger waits until a program has written n bytes more into its ledger.
func awaitLedger(t *testing.T, path string, n int64) {
	t.Helper()
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			return 0 // not there yet
		}
		return info.Size()
	}
	before := size()
	eventually(t, "the ledger grows", func() bool { return size() >= before+n })
}
