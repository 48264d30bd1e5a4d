//go:build linux

package interpreter

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/hoststack/cpython"
	"github.com/gpurec/gpurec/record/process"
)

// interpreters returns the oldest and the newest CPython of 3.11 to 3.13 on this machine, with GPUREC_SEEDS all.
func interpreters(t testing.TB) []string {
	found, _ := filepath.Glob("../../build/python/*/bin/python3") // a fixed pattern
	if home, err := os.UserHomeDir(); err == nil {
		more, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions/3.1[123].*/bin/python3"))
		found = append(found, more...)
	}
	if system, err := exec.LookPath("/usr/bin/python3"); err == nil {
		found = append(found, system)
	}
	var supported []string
	var minors []int
	for _, path := range found {
		text, err := exec.Command(path, "-c", "import ctypes, sys; print(sys.version_info[1])").Output()
		if minor, _ := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && minor >= 11 && minor <= 13 {
			supported, minors = append(supported, path), append(minors, minor)
		}
	}
	if len(supported) == 0 {
		testclass.Missing(t, "no CPython 3.11 to 3.13 is installed")
	}
	if os.Getenv("GPUREC_SEEDS") != "" {
		return supported
	}
	oldest, newest := slices.Min(minors), slices.Max(minors)
	chosen := supported[slices.Index(minors, oldest):][:1:1]
	if newest > oldest {
		chosen = append(chosen, supported[slices.Index(minors, newest)])
	}
	return chosen
}

// interpreterName returns the folder of an interpreter, which names its version.
func interpreterName(file string) string { return filepath.Base(filepath.Dir(filepath.Dir(file))) }

// program is a program that waits for a line before it begins, and for another one before it ends.
type program struct {
	pid    int
	input  io.Writer
	output *bufio.Reader
}

// start starts a program and waits until it is ready.
func start(t testing.TB, name string, args ...string) *program {
	t.Helper()
	command := exec.Command(name, args...)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill() // it may have ended
		_ = command.Wait()
	})
	p := &program{command.Process.Pid, input, bufio.NewReader(output)}
	p.read(t)
	return p
}

// goOn writes a line to the program.
func (p *program) goOn(t testing.TB) {
	t.Helper()
	if _, err := fmt.Fprintln(p.input); err != nil {
		t.Fatal(err)
	}
}

// read reads a line of the program.
func (p *program) read(t testing.TB) string {
	t.Helper()
	line, err := p.output.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// rowSink keeps all rows.
type rowSink struct {
	mu   sync.Mutex
	rows []format.Row
}

func (s *rowSink) SendHost(rows []format.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = append(s.rows, rows...)
}

// all returns the rows of a kind and a name.
func (s *rowSink) all(kind, name string) (found []format.Row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rows {
		if r.Kind == kind && r.Name == name {
			found = append(found, r)
		}
	}
	return found
}

// growth returns by how much a metric has grown.
func (s *rowSink) growth(t testing.TB, pid int, tid int32, name string) float64 {
	t.Helper()
	var of []format.Row
	for _, r := range s.all(format.KindHost, name) {
		if int(r.Pid) == pid && r.Tid == tid {
			of = append(of, r)
		}
	}
	if len(of) == 0 {
		return 0
	}
	for i := range of[1:] {
		if of[i+1].StartNs < of[i].StartNs || of[i+1].Value < of[i].Value {
			t.Errorf("%s of thread %d: %v at %d, then %v at %d", name, tid, of[i].Value, of[i].StartNs,
				of[i+1].Value, of[i+1].StartNs)
		}
	}
	return of[len(of)-1].Value - of[0].Value
}

// recording is a Recorder that runs.
type recording struct {
	*Recorder
	rowSink
	clock clock.Clock
	stop  chan struct{}
	ended chan struct{}
}

// record records processes, and waits until all of them are read.
func record(t testing.TB, o Options, pids ...int) *recording {
	t.Helper()
	r := &recording{clock: clock.New(), stop: make(chan struct{}), ended: make(chan struct{})}
	o.Sink, o.Clock = r, r.clock
	if o.Processes == nil {
		o.Processes = func() map[int]int64 { return processMap(pids...) }
	}
	r.Recorder = New(o)
	go func() {
		defer close(r.ended)
		r.Run(r.stop)
	}()
	t.Cleanup(func() { r.end(t) })
	waitFor(t, func() bool { return len(r.all(format.KindHost, format.HostInterpreterReads)) >= len(pids) })
	return r
}

// processMap returns processes as Options.Processes does.
func processMap(pids ...int) map[int]int64 {
	all := make(map[int]int64)
	for _, pid := range pids {
		all[pid] = 1
	}
	return all
}

// end ends the recording.
func (r *recording) end(t testing.TB) {
	t.Helper()
	select {
	case <-r.stop:
	default:
		close(r.stop)
	}
	select {
	case <-r.ended:
	case <-time.After(2 * time.Minute):
		t.Fatal("Run does not end")
	}
}

// waitFor waits until a condition holds.
func waitFor(t testing.TB, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the condition does not hold within 30 s")
		}
	}
}

// collection is a collection as the program wrote it.
type collection struct{ generation, startNs, endNs int64 }

func (c *collection) UnmarshalJSON(raw []byte) error {
	var words [3]int64
	err := json.Unmarshal(raw, &words)
	*c = collection{words[0], words[1], words[2]}
	return err
}

// TestCollections compares pauses and counts with the callbacks of the collector.
func TestCollections(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	for _, interpreter := range interpreters(t) {
		t.Run(interpreterName(interpreter), func(t *testing.T) {
			p := start(t, interpreter, "testdata/gcstorm.py", "600000", "5")
			r := record(t, Options{IsFull: true}, p.pid)
			p.goOn(t)
			var truth struct {
				Pauses []collection
				Counts [3]float64
			}
			if err := json.Unmarshal([]byte(p.read(t)), &truth); err != nil {
				t.Fatal(err)
			}
			r.end(t)
			for i, name := range []string{format.HostCollections0, format.HostCollections1, format.HostCollections2} {
				if got := r.growth(t, p.pid, 0, name); got != truth.Counts[i] || got == 0 {
					t.Errorf("%v collections of generation %d, not %v", got, i, truth.Counts[i])
				}
			}
			comparePauses(t, r, truth.Pauses, int32(p.pid))
			if missing := r.Missing(); len(missing) > 0 {
				t.Error(missing)
			}
		})
	}
}

// TestCollectionsAtLowRate checks counts, and that the sum of pauses has no bias although most are shorter than the
// time between two readings.
func TestCollectionsAtLowRate(t *testing.T) {
	testclass.Root(t)
	p := start(t, interpreters(t)[0], "testdata/gcstorm.py", "100000", "15")
	r := record(t, Options{}, p.pid)
	p.goOn(t)
	var truth struct {
		Pauses []collection
		Counts [3]float64
	}
	if err := json.Unmarshal([]byte(p.read(t)), &truth); err != nil {
		t.Fatal(err)
	}
	r.end(t)
	for i, name := range []string{format.HostCollections0, format.HostCollections1, format.HostCollections2} {
		if got := r.growth(t, p.pid, 0, name); got != truth.Counts[i] || got == 0 {
			t.Errorf("%v collections of generation %d, not %v", got, i, truth.Counts[i])
		}
	}
	var gotNs, wantNs, variance, longest float64
	rows := r.all(format.KindGC, "")
	for _, row := range rows {
		gotNs += float64(row.DurNs)
		variance += row.Value * row.Value / 6 // two ends, each uniform in the time between two readings
	}
	for _, c := range truth.Pauses {
		wantNs += float64(c.endNs - c.startNs)
		longest = max(longest, float64(c.endNs-c.startNs))
	}
	hz, lowest := r.Hz()
	deviation := math.Sqrt(variance)
	t.Logf(
		"%d rows of %d collections of up to %.1f ms at %.0f Hz, lowest %.0f Hz: %.0f ms, not %.0f ms; standard deviation %.0f ms",
		len(rows),
		len(truth.Pauses),
		longest/1e6,
		hz,
		lowest,
		gotNs/1e6,
		wantNs/1e6,
		deviation/1e6,
	)
	if math.Abs(gotNs-wantNs) > 4*deviation || len(rows) == 0 {
		t.Errorf(
			"pauses of %.0f ms, not %.0f ms, with a standard deviation of %.0f ms",
			gotNs/1e6,
			wantNs/1e6,
			deviation/1e6,
		)
	}
}

// comparePauses compares rows of kind gc with collections.
func comparePauses(t *testing.T, r *recording, truth []collection, tid int32) {
	t.Helper()
	const untilNextNs = 20_000_000 // the program runs as long between two collections
	rows := r.all(format.KindGC, "")
	var gotNs, wantNs, gapNs int64
	for _, row := range rows {
		gotNs += row.DurNs
		gapNs = max(gapNs, int64(row.Value))
	}
	long, right, threads := 0, 0, 0
	for _, c := range truth {
		wantNs += c.endNs - c.startNs
		start, end := r.clock.UnixNs(uint64(c.startNs)), r.clock.UnixNs(uint64(c.endNs))
		if end-start < 20e6 {
			continue
		}
		long++
		for _, row := range rows {
			if row.StartNs > end || row.StartNs+row.DurNs < start {
				continue
			}
			slack := int64(row.Value)
			// Between two readings as far apart, several collections may end, so that no generation is known.
			isUnknown := row.Result == generationUnknown && slack >= untilNextNs
			if abs(row.StartNs-start) <= slack && abs(row.StartNs+row.DurNs-end) <= slack &&
				(row.Result == int32(c.generation) || isUnknown) {
				right++
				if row.Tid == tid {
					threads++
				}
			}
		}
	}
	error := float64(gotNs-wantNs) / float64(wantNs)
	t.Logf(
		"%d rows of %d collections, %d of %d long ones right, %d threads; %d ms, not %d: %.1f %%; largest gap %.1f ms, %.0f µs a second",
		len(rows),
		len(truth),
		right,
		long,
		threads,
		gotNs/1e6,
		wantNs/1e6,
		100*error,
		float64(gapNs)/1e6,
		r.Cost().Seconds()*1e6/5,
	)
	if long < 10 || right < long*95/100 || threads < right*95/100 {
		t.Errorf("%d of %d long pauses are right, %d threads", right, long, threads)
	}
	if error < -0.1 || error > 0.1 {
		t.Errorf("pauses of %d ms, not %d ms", gotNs/1e6, wantNs/1e6)
	}
}

func abs(n int64) int64 { return max(n, -n) }

// TestHolders compares the holder of the GIL with the turns that the threads wrote.
func TestHolders(t *testing.T) {
	testclass.Root(t)
	for _, interpreter := range interpreters(t) {
		t.Run(interpreterName(interpreter), func(t *testing.T) {
			p := start(t, interpreter, "testdata/gilturns.py", "3", "4")
			opened, err := process.Open(p.pid)
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			s, err := findState(opened)
			if err != nil || s == nil {
				t.Fatal(s, err)
			}
			r := record(t, Options{
				IsFull: true, Threads: func() []uint64 { return listThreads(p.pid) },
			}, p.pid)
			p.goOn(t)
			var readings []reading
			for end := time.Now().Add(4 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
				now, err := s.read()
				if err != nil {
					t.Fatal(err)
				}
				readings = append(readings, now)
			}
			var truth struct{ Turns []collection }
			if err := json.Unmarshal([]byte(p.read(t)), &truth); err != nil {
				t.Fatal(err)
			}
			r.end(t)
			checkHolders(t, readings, truth.Turns)
			checkShares(t, r, p.pid, truth.Turns)
			checkWaits(t, r, p.pid, truth.Turns)
		})
	}
}

// checkHolders checks the holder of each reading inside of a turn.
func checkHolders(t *testing.T, readings []reading, turns []collection) {
	t.Helper()
	right, inside := 0, 0
	for _, now := range readings {
		for _, turn := range turns {
			if now.fromNs > turn.startNs && now.toNs < turn.endNs {
				inside++
				if now.locked && int64(now.holder.NativeID) == turn.generation {
					right++
				}
			}
		}
	}
	t.Logf("%d of %d holders are right", right, inside)
	if inside < 200 || right < inside*95/100 {
		t.Errorf("%d of %d holders are right", right, inside)
	}
}

// checkShares checks the shares of the GIL by thread.
func checkShares(t *testing.T, r *recording, pid int, turns []collection) {
	t.Helper()
	heldNs := make(map[int32]float64)
	sumNs, sum := 0.0, 0.0
	for _, turn := range turns {
		heldNs[int32(turn.generation)] += float64(turn.endNs - turn.startNs)
		sumNs += float64(turn.endNs - turn.startNs)
	}
	for tid := range heldNs {
		sum += r.growth(t, pid, tid, format.HostGILHeld)
	}
	for tid, ns := range heldNs {
		got, want := r.growth(t, pid, tid, format.HostGILHeld)/sum, ns/sumNs
		t.Logf("thread %d held the GIL for %.3f of the readings, %.3f of the turns", tid, got, want)
		if abs(int64(1000*(got-want))) > 50 {
			t.Errorf("thread %d held the GIL for %.3f of the readings, %.3f of the turns", tid, got, want)
		}
	}
	if reads := r.growth(t, pid, 0, format.HostInterpreterReads); sum < 0.5*reads || sum > reads {
		t.Errorf("%d threads held the GIL in %v of %v readings", len(heldNs), sum, reads)
	}
}

// listThreads returns the threads of a process.
func listThreads(pid int) (threads []uint64) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid)) // a fixed pattern
	for _, task := range tasks {
		if tid, err := strconv.Atoi(filepath.Base(task)); err == nil {
			threads = append(threads, uint64(pid)<<32|uint64(tid))
		}
	}
	return threads
}

// checkWaits compares how long threads waited for the GIL and held it. Between two turns, a thread sleeps half
// as long as its turns, then it waits.
func checkWaits(t *testing.T, r *recording, pid int, turns []collection) {
	t.Helper()
	last := make(map[int64]collection)
	var heldNs, waitedNs, held, waited float64
	for _, turn := range turns {
		heldNs += float64(turn.endNs - turn.startNs)
		if before, ok := last[turn.generation]; ok {
			// Turns have 10, 20 and 30 ms.
			length := (before.endNs - before.startNs) / 10e6 * 10e6
			waitedNs += float64(turn.startNs - before.endNs - length/2)
		}
		last[turn.generation] = turn
	}
	for tid := range last {
		held += r.growth(t, pid, int32(tid), format.HostGILHeld)
		waited += r.growth(t, pid, int32(tid), format.HostGILWaited)
	}
	got, want := waited/held, waitedNs/heldNs
	t.Logf("threads waited for the GIL %.2f times as long as they held it, %.2f by their turns", got, want)
	if got < 0.75*want || got > 1.25*want || want < 0.2 {
		t.Errorf("threads waited for the GIL %.2f times as long as they held it, not %.2f times", got, want)
	}
}

// BenchmarkReading takes readings of a process whose threads take turns with the GIL.
func BenchmarkReading(b *testing.B) {
	p := start(b, interpreters(b)[0], "testdata/gilturns.py", "3", "60")
	opened, err := process.Open(p.pid)
	if err != nil {
		b.Fatal(err)
	}
	defer opened.Close()
	s, err := findState(opened)
	if err != nil || s == nil {
		b.Fatal(s, err)
	}
	p.goOn(b)
	b.Run("state", func(b *testing.B) {
		cpu := startCPU()
		for b.Loop() {
			if _, err := s.read(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(cpu.stop())/float64(b.N), "cpu-ns/op")
	})
	b.Run("waiter", func(b *testing.B) {
		var w waiters
		w.set(p.pid, []int{p.pid})
		defer w.close()
		cpu := startCPU()
		for b.Loop() {
			w.find(cpython.GIL{})
		}
		b.ReportMetric(float64(cpu.stop())/float64(b.N), "cpu-ns/op")
	})
	b.Run("find", func(b *testing.B) {
		cpu := startCPU()
		for b.Loop() {
			if _, err := findState(opened); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(cpu.stop())/float64(b.N), "cpu-ns/op")
	})
}
