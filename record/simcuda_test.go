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
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
)

// simcudaDir is the output folder of `make simcuda`, a simulated libcuda.
const simcudaDir = "../build/simcuda"

// needKernel skips a test if the machine cannot attach probes to processes.
func needKernel(t *testing.T) {
	t.Helper()
	if err := privilege.CheckAttach(privilege.AttachAuto); err != nil {
		testclass.Missing(t, err.Error())
	}
	if _, err := os.Stat(filepath.Join(simcudaDir, "libcuda.so.1")); err != nil {
		testclass.Missing(t, "simcuda is not built: make simcuda")
	}
}

// needMulti skips a test if the kernel has no uprobe_multi links.
func needMulti(t *testing.T) {
	t.Helper()
	needKernel(t)
	if privilege.AttachAuto.ResolveForKernel() != privilege.AttachMulti {
		testclass.Missing(t, "this kernel has no uprobe_multi")
	}
}

// simProgram is a running program that uses simcuda.
type simProgram struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	ledger string
}

// simCommand returns a command that uses simcuda, and the path of its ledger.
func simCommand(t *testing.T, env []string, name string, args ...string) (*exec.Cmd, string) {
	t.Helper()
	ledger := filepath.Join(t.TempDir(), "ledger.tsv")
	dir, err := filepath.Abs(simcudaDir)
	if err != nil {
		t.Fatal(err)
	}
	path := name // an absolute path names a copy
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

// startSim starts a program that waits (--wait) until step.
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

// startSimCommand starts a simcuda program with StartCommand, as record -- COMMAND does. It sets
// the program's environment in this process for the duration of the test.
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

// expect waits for an output line that begins with prefix, and returns the rest of the line.
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

// step lets the program continue.
func (p *simProgram) step() {
	p.t.Helper()
	if _, err := p.stdin.Write([]byte("x")); err != nil {
		p.t.Fatal(err)
	}
}

// finish lets the program continue to its end, and waits for its exit.
func (p *simProgram) finish() {
	p.t.Helper()
	p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("the recorded program failed: %v", err)
	}
}

// testOptions returns options for a recording in a temporary folder of the test.
func testOptions(t *testing.T, pids ...int) Options {
	opt := DefaultOptions()
	// Complete stacks take seconds to start, so only tests that need them enable them.
	opt.Stacks, opt.KeepGetters, opt.KeepReturns = probe.StacksFP, true, true
	opt.MaxOverheadPct = 0 // the recording is compared with the truth
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

// runWhile runs a session while do runs, and closes the session.
func runWhile(t *testing.T, s *Session, do func()) Result {
	t.Helper()
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	return finishAfter(t, s, do)
}

// finishAfter runs a session while do runs, and finishes the file.
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

// endless is a number of calls that storm never reaches: the test kills the program.
const endless = "100000000000"

// kill kills the running program.
func (p *simProgram) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		p.t.Fatal(err)
	}
	_ = p.cmd.Wait() // the error "signal: killed" is expected
}

// ledgerCall is one call in simcuda's ledger, which the recording must match.
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

// readLedger returns the calls of a ledger that began at or after sinceNs (CLOCK_MONOTONIC), by
// thread and in order.
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

// monotonic returns the current time of CLOCK_MONOTONIC, which the ledger uses.
func monotonic() int64 { return clock.ReadNs(unix.CLOCK_MONOTONIC) }

// recordedCalls returns the calls of a recording, by thread and in order of their starts.
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

// stackFunctions returns the function names of each stack in a recording, by stack id.
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

// factRows returns the rows of one kind, of the classes facts, stacks and samples.
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

// eventuallyLimit is long enough for a machine whose CPUs are busy with other work.
const eventuallyLimit = 5 * time.Minute

// eventually polls until ok returns true, for effects of another process.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(eventuallyLimit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("timed out: %s", what)
}

// seenCalls returns the calls that the probes have seen so far.
func seenCalls(t *testing.T, s *Session) (seen uint64) {
	t.Helper()
	for class := range bpf.CudaCallClassCLASS_COUNT {
		var perCPU []bpf.CudaClassStats
		if err := s.probes.Objects.Stats.Lookup(uint32(class), &perCPU); err != nil {
			t.Fatal(err)
		}
		for i := range perCPU {
			seen += perCPU[i].Seen
		}
	}
	return seen
}

// awaitCalls waits until the BPF programs have counted n calls.
func awaitCalls(t *testing.T, s *Session, n uint64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d calls are seen", n), func() bool { return seenCalls(t, s) >= n })
}

// awaitOpenCall waits until a call of this function has been open for a duration.
func awaitOpenCall(t *testing.T, s *Session, name string, since time.Duration) {
	t.Helper()
	eventually(t, name+" is open", func() bool {
		open, err := s.probes.OpenCalls()
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(open, func(e bpf.CudaEvent) bool {
			_, called, _, _ := bpf.FunctionByCookie(e.Call)
			return called == name && monotonic()-int64(e.StartNs) > since.Nanoseconds()
		})
	})
}

// awaitLedger waits until a program has written n more bytes to its ledger.
func awaitLedger(t *testing.T, path string, n int64) {
	t.Helper()
	size := func() int64 {
		info, err := os.Stat(path)
		if err != nil {
			return 0 // the file does not exist yet
		}
		return info.Size()
	}
	before := size()
	eventually(t, "the ledger grows", func() bool { return size() >= before+n })
}
