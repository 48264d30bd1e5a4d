//go:build linux && amd64

package hoststack

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
)

// simcuda returns the path of a program of the simulated CUDA.
func simcuda(t *testing.T, name string) string {
	t.Helper()
	folder, err := filepath.Abs("../../build/simcuda")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
		testclass.Missing(t, "simcuda is missing; run make simcuda")
	}
	t.Setenv("LD_LIBRARY_PATH", folder)
	return filepath.Join(folder, name)
}

// countCalls counts the calls in a ledger by function and result. The results of queries depend on the
// time.
func countCalls(t *testing.T, ledger string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(ledger)
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		columns := strings.Split(line, "\t")
		if len(columns) < 6 {
			t.Fatalf("%s: %q", ledger, line)
		}
		if strings.Contains(columns[4], "Query") {
			columns[5] = ""
		}
		counts[columns[4]+" "+columns[5]]++
	}
	return counts
}

// TestSnapshotsOfSimcuda takes 1,000 snapshots of a program that calls CUDA from four threads. Its calls and
// their results must be those of a run without snapshots.
func TestSnapshotsOfSimcuda(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	l := openSnapshotter(t)
	storm := simcuda(t, "storm")
	args := []string{"--calls", "100000", "--threads", "4", "--seed", "7", "--rate", "50000", "--wait"}
	t.Setenv("SIMCUDA_TIME", "off")
	run := func(between func(*program)) map[string]int {
		ledger := filepath.Join(t.TempDir(), "ledger")
		t.Setenv("SIMCUDA_LEDGER", ledger)
		p := start(t, storm, args...)
		if line, err := p.output.ReadString('\n'); err != nil || !strings.HasPrefix(line, "ready ") {
			t.Fatal(line, err)
		}
		p.goOn(t)
		between(p)
		if line, err := p.output.ReadString('\n'); err != nil || line != "done 100000\n" {
			t.Fatal(line, err)
		}
		return countCalls(t, ledger)
	}
	want := run(func(*program) {})
	statuses, inCall, threads := make(map[string]int), 0, 0
	got := run(func(p *program) {
		begin := time.Now()
		for range 1000 {
			for _, th := range takeSnapshot(t, l, p.pid).Threads {
				statuses[th.Status+" "+th.Reason]++
				threads++
				if th.CUDACall != "" {
					inCall++
				}
			}
		}
		t.Logf("1,000 snapshots in %v: %d stacks, %d in a CUDA call, %v", time.Since(begin), threads, inCall, statuses)
	})
	if !maps.Equal(got, want) {
		t.Error("the snapshots changed the calls or their results")
	}
	if statuses[StatusComplete+" "]*100 < threads*95 {
		t.Errorf("%d stacks, %d in a CUDA call, %v", threads, inCall, statuses)
	}
}

// TestCUDACall checks the CUDA call of a process that hangs.
func TestCUDACall(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	l := openSnapshotter(t)
	devices, jobs := simcuda(t, "devfiles"), simcuda(t, "jobs")
	if os.Geteuid() != 0 {
		testclass.Missing(t, "needs root")
	}
	t.Setenv("SIMCUDA_CHANNELS", "on")
	p := start(t, devices, jobs, "stuck", "--seed", "3")
	for {
		line, err := p.output.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "stuck\n" {
			break
		}
	}
	// devfiles starts jobs in place of itself.
	calls := ""
	for deadline := time.Now().Add(2 * time.Minute); calls == "" && time.Now().Before(deadline); {
		for _, th := range takeSnapshot(t, l, p.pid).Threads {
			calls += th.CUDACall
		}
	}
	if want := "cuStreamSynchronize"; calls != want {
		t.Errorf("the CUDA call is %q, not %s", calls, want)
	}
}
