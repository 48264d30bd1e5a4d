//go:build linux

package record

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/process"
)

// TestMain runs the tests and fails if they leave file descriptors open. It removes shared
// programs.
func TestMain(m *testing.M) {
	before := openDescriptors()
	code := m.Run()
	if chainsDir != "" {
		_ = os.RemoveAll(chainsDir) // the folder is temporary anyway
	}
	// The OpenTelemetry profiler leaves its maps to the garbage collector, and its goroutines
	// take some time to end.
	for end := time.Now().Add(time.Minute); openDescriptors() > before+2 && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		runtime.GC()
	}
	// A real NVML, the Go poller and the pidfd check of package os keep descriptors open.
	benchmarks := slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.bench") })
	if after := openDescriptors(); code == 0 && !benchmarks && after > before+2 {
		fmt.Fprintf(os.Stderr, "%d file descriptors were left open\n", after-before)
		code = 1
	}
	os.Exit(code)
}

func openDescriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

func TestRecordedPlusLostEqualsTheLedger(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	calls := faultScale(150_000, 400_000)
	p := startSim(t, nil, "storm", "--calls", fmt.Sprint(calls), "--threads", "4", "--seed", "3", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.BufferBytes = 64 << 10 // too small on purpose: room for 480 calls
	s := start(t, opt)
	var since int64
	result := runWhile(t, s, func() {
		since = monotonic()
		p.step()
		p.expect("done")
	})
	p.finish()
	happened := 0
	counted := countedCalls()
	for _, thread := range readLedger(t, p.ledger, since) {
		for _, c := range thread {
			if isCounted, probed := counted[c.name]; probed && !isCounted {
				happened++
			}
		}
	}
	total := result.Meta.Totals()
	if total.Lost == 0 {
		t.Error("nothing was lost: the buffer was not too small and the test shows nothing")
	}
	if total.Recorded+total.Lost != int64(happened) || total.Seen != int64(happened) {
		t.Errorf("recorded %d + lost %d, seen %d, happened %d", total.Recorded, total.Lost, total.Seen, happened)
	}
	rows := 0
	for _, thread := range recordedCalls(t, result.Output) {
		rows += len(thread)
	}
	lost := 0.0
	for _, r := range factRows(t, result.Output, format.KindLost) {
		if r.StartNs < result.Meta.StartNs || r.StartNs+r.DurNs > result.Meta.EndNs || r.Message != "ring buffer full" {
			t.Errorf("a row of kind lost without a reason, or outside the recording: %+v", r)
		}
		lost += r.Value
	}
	if int64(rows) != total.Recorded || int64(lost) != total.Lost {
		t.Errorf("rows %d of %d recorded; rows of kind lost sum to %.0f of %d", rows, total.Recorded, lost, total.Lost)
	}
	t.Logf("recorded %d + lost %d = happened %d", total.Recorded, total.Lost, happened)
}

func TestKilledTargetLosesNothing(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	p := startSim(
		t,
		[]string{"SIMCUDA_LEDGER_SYNC=1"},
		"storm",
		"--calls",
		"100000000",
		"--threads",
		"2",
		"--seed",
		"5",
		"--wait",
	)
	p.expect("ready")
	s := start(t, testOptions(t, p.pid()))
	var since int64
	result := runWhile(t, s, func() {
		since = monotonic()
		p.step()
		awaitCalls(t, s, 2000)
		if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = p.cmd.Wait() // the error "signal: killed" is expected
		eventually(t, "the recorder notices the end", func() bool { return len(s.targets.All()) == 0 })
	})
	recorded := recordedCalls(t, result.Output)
	counted := countedCalls()
	n, open := 0, 0
	for tid, calls := range readLedger(t, p.ledger, since) {
		rows := recorded[tid]
		for _, c := range calls {
			if isCounted, probed := counted[c.name]; isCounted || !probed {
				continue
			}
			if len(rows) == 0 {
				t.Fatalf("thread %d: %s before the kill is missing", tid, c.name)
			}
			if rows[0].Flags&format.FlagOpen != 0 {
				open++ // killed after the ledger's line and before the return
			} else if diff := difference(&rows[0], &c, result.Meta.ClockOffsetNs); diff != "" {
				t.Errorf("%s: %s", c.name, diff)
			}
			rows = rows[1:]
			n++
		}
		if len(rows) > 1 || len(rows) == 1 && rows[0].Flags&format.FlagOpen == 0 {
			t.Errorf("thread %d: %d calls more than the ledger has", tid, len(rows))
		}
	}
	if n < 100 || open > 2 {
		t.Errorf("%d calls before the kill, %d of them open", n, open)
	}
	var exits int
	for _, r := range factRows(t, result.Output, format.KindProcess) {
		exits += strings.Count(r.Message, `"exit_ns"`)
	}
	if exits != 1 {
		t.Errorf("%d rows for the exit of the process", exits)
	}
	t.Logf("%d calls before the kill recorded, %d open", n, open)
}

func TestCallThatBlocksIsRecordedAsOpen(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	// Every launch takes a minute of simulated time, so the first synchronize blocks.
	command := startSimCommand(t, []string{"SIMCUDA_TIME=on", "SIMCUDA_KERNEL_US=60000000"}, "leak", "--steps", "1")
	defer command.Kill()
	opt := testOptions(t)
	opt.Command = command
	s := start(t, opt)
	result := runWhile(t, s, func() {
		command.Run()
		awaitOpenCall(t, s, "cuStreamSynchronize", 100*time.Millisecond)
	})
	calls := recordedCalls(t, result.Output)[int32(command.Pid())]
	if len(calls) == 0 {
		t.Fatal("no call was recorded")
	}
	last := calls[len(calls)-1]
	if last.Kind != format.KindSync || last.Flags&format.FlagOpen == 0 || last.DurNs < 100e6 || last.StackID == 0 {
		t.Errorf("last call: %+v", last)
	}
	if total := result.Meta.Totals(); total.Open != 1 || total.Seen != total.Recorded {
		t.Errorf("counts %+v", total)
	}
}

func TestCommandIsRecordedFromItsFirstCall(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	command := startSimCommand(t, nil, "storm", "--calls", "20000", "--threads", "2", "--seed", "9")
	opt := testOptions(t)
	opt.Command = command
	s := start(t, opt)
	command.Run()
	end, err := s.Run(t.Context())
	if err != nil || end != EndProcesses {
		t.Errorf("ended because %q, %v", end, err)
	}
	defer s.Close()
	result, err := s.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if status, err := command.Wait(t.Context()); status != 0 || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
	ledger := readLedger(t, os.Getenv("SIMCUDA_LEDGER"), 0)
	n := compare(t, result.Output, ledger)
	if n < 19000 {
		t.Errorf("only %d calls", n)
	}
	// In a recording from the program's start, every context is known, and so is the device.
	unknown := 0
	for _, rows := range recordedCalls(t, result.Output) {
		for _, r := range rows {
			if r.Context == 0 || r.Device == -1 {
				unknown++
			}
		}
	}
	if unknown > 50 { // calls before the first context
		t.Errorf("%d calls without a context", unknown)
	}
}

func TestCommandExitStatusIsReturned(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -TERM $$": 128 + 15} {
		command, err := StartCommand([]string{"sh", "-c", script}, format.Owner{})
		if err != nil {
			t.Fatal(err)
		}
		command.Run()
		if got, err := command.Wait(t.Context()); got != want || err != nil {
			t.Errorf("sh -c %q: status %d, want %d (%v)", script, got, want, err)
		}
	}
	if _, err := StartCommand([]string{"/does/not/exist"}, format.Owner{}); err == nil {
		t.Error("a missing command was started without an error")
	}
}

func TestWaitForLibrary(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	// A shell calls exec to become storm: the same process, without libcuda at first.
	cmd, begin, ledger := simShell(
		t,
		copySimcuda(t),
		`exec $SIM/storm --calls 500 --threads 1 --seed 1 --rate 2000 >/dev/null`,
	)
	opt := testOptions(t, cmd.Process.Pid)
	if _, err := Start(opt); !errors.Is(err, process.ErrNoLibrary) {
		t.Fatalf("without --wait: %v", err)
	}
	opt.WaitForLibrary = true
	s := start(t, opt)
	result := runWhile(t, s, func() {
		begin()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the recorded program failed: %v", err)
		}
	})
	if n := compare(t, result.Output, readLedger(t, ledger, 0)); n < 450 {
		t.Errorf("only %d calls", n)
	}
}

func TestStartReturnsTypedErrors(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	p := startSim(t, nil, "storm", "--calls", "10", "--threads", "1", "--seed", "1", "--wait")
	p.expect("ready")
	before := openDescriptors()
	exists := t.TempDir() + "/exists.parquet"
	if err := os.WriteFile(exists, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*Options)
		want   error
	}{
		{"no such process", func(o *Options) { o.Pids = []int{1 << 22} }, process.ErrNoProcess},
		{"no libcuda", func(o *Options) { o.Pids, o.Children = []int{os.Getpid()}, false }, process.ErrNoLibrary},
		{"output exists", func(o *Options) { o.Output = exists }, format.ErrExists},
		{"no such folder", func(o *Options) { o.Output = t.TempDir() + "/none/x.parquet" }, os.ErrNotExist},
	} {
		opt := testOptions(t, p.pid())
		c.change(&opt)
		if _, err := Start(opt); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := os.Stat(opt.Output + format.SegmentSuffix); err == nil {
			t.Errorf("%s: a folder of segments was left behind", c.name)
		}
	}
	if after := openDescriptors(); after > before {
		t.Errorf("%d file descriptors were left open", after-before)
	}
}

func TestFullDiskKeepsWhatWasWritten(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		testclass.Missing(t, "cannot mount a small disk: "+err.Error())
	}
	defer syscall.Unmount(dir, 0)
	p := startSim(t, nil, "storm", "--calls", "100000000", "--threads", "2", "--seed", "2", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.Output, opt.SegmentInterval = dir+"/r.parquet", 300*time.Millisecond
	s := start(t, opt)
	p.step()
	_, err := s.Run(t.Context())
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("run ended with %v", err)
	}
	defer s.Close()
	result, err := s.Finish()
	if !errors.Is(err, syscall.ENOSPC) || result.Unfinished == "" {
		t.Fatalf("finish: %v, unfinished %q", err, result.Unfinished)
	}
	total := result.Meta.Totals()
	if total.Recorded+total.Lost != total.Seen || total.Lost == 0 {
		t.Errorf("counts %+v", total)
	}
	saved := t.TempDir() + "/saved.parquet"
	if _, err := format.Recover(result.Unfinished, saved, format.Options{}); err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, thread := range recordedCalls(t, saved) {
		rows += len(thread)
	}
	if int64(rows) != total.Recorded || rows == 0 {
		t.Errorf("%d rows saved, the metadata has %d", rows, total.Recorded)
	}
	rec, err := format.Open(saved)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	// The full disk may have had no room for the note "unfinished".
	if on := rec.Meta.Totals(); on.Recorded != int64(rows) || on.Recorded+on.Lost != on.Seen {
		t.Errorf("counts in the segments %+v, counts of the recorder %+v", on, total)
	}
	t.Logf("saved %d of %d calls", rows, total.Seen)
}
