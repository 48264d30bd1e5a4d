//go:build linux

package record

import (
	"errors"
	"fmt"
	"math"
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

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/process"
)

// faultTimes returns the number of repetitions of a fault: quick by default, or the percentage
// GPUREC_FAULTS of often, which scripts/faults.sh sets.
func faultTimes(t *testing.T, quick, often int) int {
	t.Helper()
	n := faultScale(quick, often)
	t.Cleanup(func() {
		if !t.Failed() && !t.Skipped() {
			t.Logf("fault\t%s\t%d times\tas it should be", strings.TrimPrefix(t.Name(), "TestFault"), n)
		}
	})
	return n
}

// faultScale returns quick by default, or the percentage GPUREC_FAULTS of long.
func faultScale(quick, long int) int {
	share, err := strconv.Atoi(os.Getenv("GPUREC_FAULTS"))
	if err != nil {
		return quick
	}
	return max(quick, long*share/100)
}

// TestFaultAttachedAgainAndAgain attaches to a running program and detaches, repeatedly, and
// compares the results of the program's calls with those of a run without recordings.
func TestFaultAttachedAgainAndAgain(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	n := faultTimes(t, 3, 1000)
	p := startSim(
		t,
		[]string{"SIMCUDA_LEDGER_SYNC=1"},
		"storm",
		"--calls",
		"1000000000",
		"--threads",
		"1",
		"--seed",
		"11",
		"--rate",
		"2000",
		"--wait",
	)
	p.expect("ready")
	p.step()
	calls := int64(0)
	for range n {
		opt := testOptions(t, p.pid())
		opt.Output = filepath.Join(t.TempDir(), "r.parquet")
		s := start(t, opt)
		result := runWhile(t, s, func() { awaitCalls(t, s, 20) })
		total := result.Meta.Totals()
		if total.Seen != total.Recorded || total.Abandoned != 0 {
			t.Fatalf("counts %+v", total)
		}
		calls += total.Recorded
		os.Remove(result.Output)
	}
	seen := monotonic()
	awaitLedger(t, p.ledger, 1000)
	if err := p.cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatalf("the program has exited: %v", err)
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	if dir := os.Getenv("GPUREC_FAULTS_KEEP"); dir != "" {
		if err := exec.Command("cp", p.ledger, dir).Run(); err != nil {
			t.Error(err)
		}
	}
	recorded := workerCalls(t, p.ledger)
	if last := recorded[len(recorded)-1]; last.startNs < seen || calls == 0 {
		t.Fatalf("the program's last call was %d ns before it was left alone; %d calls "+
			"recorded", seen-last.startNs, calls)
	}
	alone := startSim(t, nil, "storm", "--calls", fmt.Sprint(len(recorded)+1000), "--threads", "1", "--seed", "11")
	alone.expect("done")
	alone.finish()
	wanted := workerCalls(t, alone.ledger)
	for i, want := range wanted {
		if i >= len(recorded) {
			break
		}
		got := recorded[i]
		if strings.HasPrefix(got.name, "cuStreamQuery") || strings.HasPrefix(got.name, "cuEventQuery") {
			got.result = want.result // the result of a query depends on timing
		}
		if got.name != want.name || got.result != want.result || got.bytes != want.bytes {
			for k := max(0, i-3); k < min(i+4, len(recorded), len(wanted)); k++ {
				t.Logf("%d: %+v\n\twithout a recorder: %+v", k, recorded[k], wanted[k])
			}
			t.Fatalf(
				"call %d: %s %d of %d bytes, without a recorder %s %d of %d",
				i,
				got.name,
				got.result,
				got.bytes,
				want.name,
				want.result,
				want.bytes,
			)
		}
	}
	t.Logf("%d calls returned the same as without a recorder; %d of them recorded", len(recorded), calls)
}

// workerCalls returns the calls of the worker thread: the thread with most calls.
func workerCalls(t *testing.T, ledger string) (calls []ledgerCall) {
	t.Helper()
	data, err := os.ReadFile(ledger)
	if err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(t.TempDir(), "whole.tsv") // the last line of a killed program may be incomplete
	if err := os.WriteFile(whole, data[:strings.LastIndexByte(string(data), '\n')+1], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, thread := range readLedger(t, whole, 0) {
		if len(thread) > len(calls) {
			calls = thread
		}
	}
	return calls
}

// TestFaultManyChildrenAtOnce starts children faster than the recorder can open them.
func TestFaultManyChildrenAtOnce(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	n := faultTimes(t, 40, 500)
	cmd, begin, ledger := simShell(t, copySimcuda(t), fmt.Sprintf(
		`for seed in $(seq %d); do $SIM/storm --calls 60 --threads 1 --seed $seed >/dev/null 2>&1 || exit 1 & done; wait`,
		n,
	))
	opt := testOptions(t, cmd.Process.Pid)
	opt.WaitForLibrary = true
	s := start(t, opt)
	result := runWhile(t, s, func() {
		begin()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the recorded program failed: %v", err)
		}
	})
	calls := readLedger(t, ledger, 0)
	if len(calls) < n {
		t.Errorf("%d threads of %d children made calls", len(calls), n)
	}
	early := dropEarlyThreads(t, result, calls)
	if early > n/4 {
		t.Errorf("%d of %d children called CUDA before the library was probed", early, n)
	}
	total := result.Meta.Totals()
	t.Logf("%d calls of %d threads compared, %d lost; %d children were too early",
		compare(t, result.Output, calls), len(calls), total.Lost, early)
}

// dropEarlyThreads removes threads from a ledger that called CUDA before the first recorded call, and
// returns their number. Children of a process that gpurec attaches to are not held. On a busy machine
// the first of them call CUDA before the library is probed.
func dropEarlyThreads(t *testing.T, result Result, calls map[int32][]ledgerCall) (early int) {
	t.Helper()
	first := int64(math.MaxInt64)
	for _, rows := range recordedCalls(t, result.Output) {
		first = min(first, rows[0].StartNs)
	}
	for tid, thread := range calls {
		if thread[0].startNs+result.Meta.ClockOffsetNs < first-int64(time.Millisecond) {
			delete(calls, tid)
			early++
		}
	}
	return early
}

// TestFaultChildrenForkedWhileAttaching attaches to a program that starts children all the time:
// some live long, others exit before the recorder can open them.
func TestFaultChildrenForkedWhileAttaching(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	for range faultTimes(t, 1, 20) {
		cmd, begin, ledger := simShell(t, copySimcuda(t), `
			for i in $(seq 25); do $SIM/storm --calls 4000 --threads 1 --seed $i --rate 1000 >/dev/null & $SIM/storm --calls 10 --threads 1 >/dev/null & sleep 0.02; done; wait`)
		begin()
		eventually(t, "there are children", func() bool { return len(process.Descendants([]int{cmd.Process.Pid})) > 4 })
		opt := testOptions(t, cmd.Process.Pid)
		opt.WaitForLibrary = true
		s := start(t, opt)
		ready := monotonic()
		result := runWhile(t, s, func() {
			if err := cmd.Wait(); err != nil {
				t.Errorf("the recorded program failed: %v", err)
			}
		})
		recorded := recordedCalls(t, result.Output)
		children, missing := 0, 0
		for tid, calls := range readLedger(t, ledger, 0) {
			if last := calls[len(calls)-1].startNs; last < ready+int64(time.Second) || len(calls) < 1000 {
				continue // the child exited before its first call
			}
			children++
			if len(recorded[tid]) == 0 {
				missing++
			}
		}
		if missing > 0 || children < 5 {
			t.Errorf("%d children made calls, %d of them were not recorded", children, missing)
		}
		t.Logf("%d children recorded", children)
	}
}

// TestFaultProgramCallsExec records a program that calls exec after it has loaded libcuda.
func TestFaultProgramCallsExec(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	for range faultTimes(t, 1, 20) {
		dir := copySimcuda(t)
		cmd, ledger := simCommand(t, []string{"LD_LIBRARY_PATH=" + dir, "LD_PRELOAD=" + dir + "/libcuda.so.1"}, "storm")
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "read line; exec " + dir + "/storm --calls 3000 " +
			"--threads 2 --seed 3 >/dev/null"}
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := cmd.Process.Pid
		eventually(t, "the shell has libcuda", func() bool {
			maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
			return err == nil && strings.Contains(string(maps), "libcuda")
		})
		s := start(t, testOptions(t, pid))
		result := runWhile(t, s, func() {
			fmt.Fprintln(stdin, "go")
			if err := cmd.Wait(); err != nil {
				t.Errorf("the recorded program failed: %v", err)
			}
		})
		if n := compare(t, result.Output, readLedger(t, ledger, 0)); n < 2900 {
			t.Errorf("only %d calls", n)
		}
	}
}

// TestFaultProgramDiesWhileAttaching kills programs at random times during Start.
func TestFaultProgramDiesWhileAttaching(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	before := openDescriptors()
	started := 0
	n := faultTimes(t, 4, 100)
	for i := range n {
		p := startSim(
			t,
			nil,
			"storm",
			"--calls",
			"1000000000",
			"--threads",
			"2",
			"--seed",
			fmt.Sprint(i),
			"--rate",
			"20000",
			"--wait",
		)
		p.expect("ready")
		p.step()
		signal := []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGTERM}[i%4]
		time.AfterFunc(rand.N(150*time.Millisecond), func() { _ = p.cmd.Process.Signal(signal) })
		opt := testOptions(t, p.pid())
		s, err := Start(opt)
		if err != nil {
			if !errors.Is(err, process.ErrNoProcess) && !errors.Is(err, process.ErrNoLibrary) {
				t.Errorf("attaching to a process that dies: %v", err)
			}
			if _, err := os.Stat(opt.Output + format.SegmentSuffix); err == nil {
				t.Error("a folder of segments was left behind")
			}
			continue
		}
		go func() { _ = p.cmd.Wait() }() // reap the process: /proc files of a zombie remain
		started++
		if end, err := s.Run(t.Context()); end != EndProcesses || err != nil {
			t.Errorf("ended because %q, %v", end, err)
		}
		result, err := s.Finish()
		_ = s.Close() // the kernel may have removed a probe with its process
		if total := result.Meta.Totals(); err != nil || total.Seen != total.Recorded+total.Lost {
			t.Errorf("%v, counts %+v", err, total)
		}
	}
	for end := time.Now().Add(2 * time.Second); openDescriptors() > before+n && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	t.Logf("%d of %d programs lived long enough to be recorded", started, n)
}

// TestFaultLibraryIsReplaced replaces the file of the library by another one. Processes with the
// old file must be recorded, also if the recording starts afterwards. Processes that load the new
// file must be recorded, too.
func TestFaultLibraryIsReplaced(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	for range faultTimes(t, 1, 20) {
		dir := copySimcuda(t)
		library := filepath.Join(dir, "libcuda.so.1")
		p := startSim(
			t,
			[]string{"LD_LIBRARY_PATH=" + dir},
			filepath.Join(dir, "storm"),
			"--calls",
			"20000",
			"--threads",
			"2",
			"--seed",
			"4",
			"--rate",
			"20000",
			"--wait",
		)
		p.expect("ready")
		replace := func() {
			data, err := os.ReadFile(library)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(
				os.WriteFile(library+".new", data, 0o755),
				os.Rename(library+".new", library),
			); err != nil {
				t.Fatal(err)
			}
		}
		replace() // before the recording
		later, begin, laterLedger := simShell(
			t,
			dir,
			`exec $SIM/storm --calls 4000 --threads 1 --seed 5 --rate 1000 >/dev/null`,
		)
		opt := testOptions(t, p.pid(), later.Process.Pid)
		opt.WaitForLibrary = true
		s := start(t, opt)
		var since int64
		result := runWhile(t, s, func() {
			since = monotonic()
			p.step()
			awaitCalls(t, s, 1000)
			replace() // during the recording
			begin()
			p.expect("done")
			if err := later.Wait(); err != nil {
				t.Errorf("the program with the new library failed: %v", err)
			}
		})
		p.finish()
		if n := compareAmongOthers(t, result.Output, readLedger(t, p.ledger, since)); n < 19000 {
			t.Errorf("only %d calls through the old library", n)
		}
		notes := lateNotes(t, result.Output)
		late := slices.IndexFunc(notes, func(n lateNote) bool { return n.pid == int32(later.Process.Pid) })
		if late < 0 {
			t.Fatalf("no note about the new library: %+v", notes)
		}
		compareFrom(t, result, readLedger(t, laterLedger, 0), notes[late].startNs)
	}
}

// compareFrom checks that a recording has every call of the ledger that began after fromNs (Unix
// ns).
func compareFrom(t *testing.T, result Result, ledger map[int32][]ledgerCall, fromNs int64) {
	t.Helper()
	recorded, offset := recordedCalls(t, result.Output), result.Meta.ClockOffsetNs
	for tid, calls := range ledger {
		ledger[tid] = slices.DeleteFunc(calls, func(c ledgerCall) bool { return c.startNs+offset < fromNs })
		recorded[tid] = slices.DeleteFunc(recorded[tid], func(r format.Row) bool {
			return len(ledger[tid]) == 0 || r.StartNs+r.DurNs < ledger[tid][0].endNs+offset
		})
	}
	if n, _ := compareThreads(t, recorded, ledger, offset); n == 0 {
		t.Error("the program made no call after it was attached to")
	}
}

// TestFaultClockIsSet simulates that the wall clock is set by an hour during the recording. The
// recording starts with a shifted clock instead, because other programs use the wall clock.
func TestFaultClockIsSet(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	faultTimes(t, 1, 1)
	p := startSim(t, nil, "storm", "--calls", "5000", "--threads", "2", "--seed", "9", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.clockShift = -time.Hour
	s := start(t, opt)
	var since int64
	result := runWhile(t, s, func() {
		since = monotonic()
		p.step()
		p.expect("done")
	})
	p.finish()
	if n := compare(t, result.Output, readLedger(t, p.ledger, since)); n < 4000 {
		t.Errorf("only %d calls", n)
	}
	if off := time.Duration(result.Meta.ClockStepNs) - time.Hour; off.Abs() > time.Second {
		t.Errorf("the metadata has a clock step of %v", time.Duration(result.Meta.ClockStepNs))
	}
}

// TestFaultTwoRecordersOnOneProcess makes two recordings of the same calls.
func TestFaultTwoRecordersOnOneProcess(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	for range faultTimes(t, 1, 20) {
		p := startSim(t, nil, "storm", "--calls", "30000", "--threads", "2", "--seed", "12", "--wait")
		p.expect("ready")
		first, second := start(t, testOptions(t, p.pid())), start(t, testOptions(t, p.pid()))
		since := monotonic()
		var results [2]Result
		results[0] = runWhile(t, first, func() {
			results[1] = runWhile(t, second, func() { p.step(); p.expect("done") })
		})
		p.finish()
		ledger := readLedger(t, p.ledger, since)
		for i, r := range results {
			if n := compare(t, r.Output, ledger); n < 25000 || int64(n) != r.Meta.Totals().Seen {
				t.Errorf("recorder %d: %d calls, counts %+v", i, n, r.Meta.Totals())
			}
		}
	}
}

// TestStateOfExitedThreadsIsDeleted checks the kernel's map of thread states.
func TestStateOfExitedThreadsIsDeleted(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	p := startSim(t, nil, "storm", "--calls", "4000", "--threads", "8", "--seed", "13", "--rate", "8000", "--wait")
	p.expect("ready")
	s := start(t, testOptions(t, p.pid()))
	since := monotonic()
	result := runWhile(t, s, func() {
		p.step()
		eventually(
			t,
			"the kernel keeps state of the threads",
			func() bool { return len(s.probes.ListThreadIDs()) >= 8 },
		)
		if open := s.probes.ReapThreads(); len(open) != 0 || len(s.probes.ListThreadIDs()) < 8 {
			t.Error("the state of running threads was deleted")
		}
		p.expect("done")
		p.finish()
		if open := s.probes.ReapThreads(); len(open) != 0 || len(s.probes.ListThreadIDs()) != 0 {
			t.Errorf("%d open calls, %d threads left", len(open), len(s.probes.ListThreadIDs()))
		}
	})
	compare(t, result.Output, readLedger(t, p.ledger, since))
}
