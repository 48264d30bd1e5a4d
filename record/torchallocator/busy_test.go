//go:build linux

package torchallocator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/library"
)

// busyProgram is a running program of simtorch.
type busyProgram struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  *bufio.Scanner
	ledger string
}

// startBusy starts a program with more environment variables, and waits until it is ready. It works after a newline.
func startBusy(t testing.TB, env []string, name string, args ...string) *busyProgram {
	t.Helper()
	dir, err := filepath.Abs(simtorchDir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
		testclass.Missing(t, "simtorch is not built: make simtorch")
	}
	folder := t.TempDir()
	p := &busyProgram{ledger: filepath.Join(folder, "ledger")}
	p.cmd = exec.Command(filepath.Join(dir, name), args...)
	p.cmd.Env = append(
		append(os.Environ(), env...),
		"SIMTORCH_LEDGER="+p.ledger,
		"SIMCUDA_STATE="+filepath.Join(folder, "state"),
	)
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	p.lines = bufio.NewScanner(stdout)
	p.expect(t, "ready")
	return p
}

// expect returns the next line, which must begin with a word.
func (p *busyProgram) expect(t testing.TB, word string) string {
	t.Helper()
	if !p.lines.Scan() || !strings.HasPrefix(p.lines.Text(), word) {
		t.Fatalf("%s printed %q, want %s", p.cmd.Path, p.lines.Text(), word)
	}
	return p.lines.Text()
}

// busyReadings are the readings of a busy program.
type busyReadings struct {
	states          []*State // of those that were accepted
	refused         int
	took, processor []float64 // ms of each accepted reading: its time, and that of the processor
}

// add makes a reading, and adds it.
func (b *busyReadings) add(t *testing.T, read func(context.Context) (*State, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	begin, used := time.Now(), processorTime()
	state, err := read(ctx)
	switch {
	case err == nil:
		b.states = append(b.states, state)
		b.took = append(b.took, time.Since(begin).Seconds()*1e3)
		b.processor = append(b.processor, (processorTime()-used).Seconds()*1e3)
	case errors.Is(err, ErrBusy):
		b.refused++
	default:
		t.Fatal(err)
	}
}

// readBusy makes n readings of a busy program, with a pause between two.
func readBusy(t *testing.T, p *busyProgram, n int, pause time.Duration) (b busyReadings) {
	t.Helper()
	r := openBusy(t, p)
	if _, err := readSimtorch(t, r, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(p.stdin, "\n"); err != nil {
		t.Fatal(err)
	}
	for range n {
		b.add(t, func(ctx context.Context) (*State, error) { return r.Read(ctx, 0) })
		time.Sleep(pause)
	}
	if _, err := io.WriteString(p.stdin, "\n"); err != nil {
		t.Fatal(err)
	}
	slices.Sort(b.took)
	slices.Sort(b.processor)
	if n := len(b.states); n > 0 {
		var pauses []int64
		for _, s := range b.states {
			pauses = append(pauses, (s.EndNs-s.AtNs)/1000)
		}
		slices.Sort(pauses)
		t.Logf("ms of a reading: median %.0f, most %.0f; of the processor: median %.0f, most %.0f; "+
			"µs in the pause: median %d, most %d; blocks %d", b.took[n/2], b.took[n-1], b.processor[n/2],
			b.processor[n-1], pauses[n/2], pauses[n-1], b.states[n-1].CountBlocks())
	}
	return b
}

// openBusy finds the allocators of a program.
func openBusy(t testing.TB, p *busyProgram) *Reader {
	t.Helper()
	cache := library.NewCache()
	defer cache.Close()
	r, err := openSimtorch(t, cache, p.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// processorTime returns the time of the processor that this process has used.
func processorTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// compareWithLedger compares states with the events of a ledger that began before them.
func compareWithLedger(t *testing.T, path string, states []*State) (equal int) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	truth := newMemoryTruth()
	lines := bufio.NewScanner(file)
	for lines.Scan() && len(states) > 0 {
		if !strings.HasPrefix(lines.Text(), "event\t") {
			continue
		}
		e, err := parseEvent(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		for len(states) > 0 && e.startNs > states[0].AtNs {
			if text := truth.compare(states[0]); text != "" {
				t.Errorf("a reading of %d blocks: %s", states[0].CountBlocks(), text)
			} else {
				equal++
			}
			states = states[1:]
		}
		e.apply([]*memoryTruth{truth})
	}
	if len(states) > 0 {
		t.Errorf("%d readings are behind the ledger", len(states))
	}
	return equal
}

// testBusy makes n readings of a busy program that leaks. Those that are accepted must equal the ledger, and at most
// maxRefused may be refused.
func testBusy(t *testing.T, blocks, n, maxRefused int, pause time.Duration) {
	p := startBusy(t, nil, "busyleak", "--blocks", strconv.Itoa(blocks))
	b := readBusy(t, p, n, pause)
	rate := p.expect(t, "done")
	equal := compareWithLedger(t, p.ledger, b.states)
	t.Logf("%d blocks at first, %s: %d readings equal, %d refused", blocks, rate, equal, b.refused)
	if equal < n-maxRefused {
		t.Errorf("%d of %d readings equal, %d refused", equal, n, b.refused)
	}
}

// TestBusyLeakEqualsTheLedger reads a program with many blocks and short pauses. Half of the readings may be refused,
// because other programs can use the processors.
func TestBusyLeakEqualsTheLedger(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	testBusy(t, 20_000, 6, 3, 50*time.Millisecond)
}

// TestSearchOfBusyLeaks finds the layout of such programs while they work. One reading of two may be refused.
func TestSearchOfBusyLeaks(t *testing.T) {
	testclass.Root(t)
	for _, blocks := range []int{1_000, 20_000, 60_000} {
		t.Run(fmt.Sprintf("blocks=%d", blocks), func(t *testing.T) {
			p := startBusy(t, nil, "busyleak", "--blocks", strconv.Itoa(blocks))
			if _, err := io.WriteString(p.stdin, "\n"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
			var b busyReadings
			for range 10 {
				r := openBusy(t, p)
				r.library = "" // it has not seen this library
				for found := len(b.states); len(b.states) == found && b.refused < 10; {
					b.add(t, func(ctx context.Context) (*State, error) { return r.Read(ctx, 0) })
				}
			}
			time.Sleep(500 * time.Millisecond) // events after the last reading
			if _, err := io.WriteString(p.stdin, "\n"); err != nil {
				t.Fatal(err)
			}
			rate := p.expect(t, "done")
			equal := compareWithLedger(t, p.ledger, b.states)
			t.Logf("%s: %d searches equal, %d readings refused, ms %.0f", rate, equal, b.refused, b.took)
			if equal < 10 {
				t.Errorf("%d of 10 searches equal, %d readings refused", equal, b.refused)
			}
		})
	}
}

// TestBusyLeaks reads such programs for longer. One of ten readings may be refused. GPUREC_READINGS is their number.
func TestBusyLeaks(t *testing.T) {
	testclass.Root(t)
	n := 20
	if number, err := strconv.Atoi(os.Getenv("GPUREC_READINGS")); err == nil {
		n = number
	}
	for _, blocks := range []int{1_000, 20_000, 60_000, 150_000} {
		t.Run(
			fmt.Sprintf("blocks=%d", blocks),
			func(t *testing.T) { testBusy(t, blocks, n, n/10, 100*time.Millisecond) },
		)
	}
	// Blocks that were leaked since the last reading must not be read in the pause.
	t.Run("rarely", func(t *testing.T) { testBusy(t, 20_000, max(2, n/4), n/10, 4*time.Second) })
}

// TestSurveysOfTensorsEqualTheLedger reads a program with private pools, captured graphs and side streams as one whose
// pauses are short.
func TestSurveysOfTensorsEqualTheLedger(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	for _, conf := range []string{"", "expandable_segments:True"} {
		t.Run("conf="+conf, func(t *testing.T) {
			args := strings.Fields("--events 60000 --rate 20000 --threads 2 --wait")
			p := startBusy(t, []string{"PYTORCH_CUDA_ALLOC_CONF=" + conf}, "tensors", args...)
			r := openBusy(t, p)
			if _, err := io.WriteString(p.stdin, "\n"); err != nil {
				t.Fatal(err)
			}
			var b busyReadings
			for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				b.add(t, func(ctx context.Context) (*State, error) {
					if l := r.known(); l != nil {
						return r.objects[0].surveyWith(r.image.memory, l).read(ctx, r)
					}
					return r.Read(ctx, 0)
				})
			}
			p.expect(t, "done")
			equal := compareWithLedger(t, p.ledger, b.states)
			t.Logf("%d readings equal, %d refused", equal, b.refused)
			if equal < 20 || b.refused > equal/20 {
				t.Errorf("%d readings equal, %d refused", equal, b.refused)
			}
		})
	}
}

// BenchmarkIdleBlocks reads the blocks of an idle program: all in one pause, and as a survey.
func BenchmarkIdleBlocks(b *testing.B) {
	for _, blocks := range []int{1_000, 10_000, 100_000} {
		p := startBusy(b, nil, "busyleak", "--blocks", strconv.Itoa(blocks))
		r := openBusy(b, p)
		if _, err := r.Read(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("blocks=%d/pause", blocks), func(b *testing.B) {
			for b.Loop() {
				if _, err := r.Read(b.Context(), 0); err != nil {
					b.Fatal(err)
				}
			}
		})
		s := newSurvey(r.image.memory, &r.objects[0], r.layout)
		b.Run(fmt.Sprintf("blocks=%d/survey", blocks), func(b *testing.B) {
			for b.Loop() {
				if _, err := s.read(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
